"""A few sentences in many languages, with the spellings that are hard for a tokenizer."""

from __future__ import annotations

SENTENCES = {
    "ar": ["القِطَّةُ تَرَى البيتَ القديم.", "أين كتابي؟ إنّه على الطاولة.", "اشتريتُ ٣ أرغفة ﻻ أكثر"],
    "bg": ["Котката вижда старата къща.", "Къде е моята книга?", "Ѝ казах да дойде в 9 ч."],
    "bn": ["বিড়ালটি পুরোনো বাড়ি দেখে।", "আমার বই কোথায়?", "কে\u09be\u09a8 দিন যা\u0993য়া যায\u09bc?"],
    "de": [
        "Die Katze sieht das alte Haus.",
        "Wo ist mein Buch?",
        "Größe ½ m², süße Äpfel – „gut“!",
    ],
    "el": ["Η γάτα βλέπει το παλιό σπίτι.", "Πού είναι το βιβλίο μου;", "Α\u0301λφα και ΐ και ῷ"],
    "en": ["The cat sees the old house.", "Where's my book?", "ﬁne oﬃces cost 10 € … don’t"],
    "es": ["El gato ve la casa vieja.", "¿Dónde está mi libro?", "El nin\u0303o comió 2ª ración"],
    "fi": ["Kissa näkee vanhan talon.", "Missä kirjani on?", "Hääyöaie, a\u030ake ja A\u030a"],
    "fr": ["Le chat voit la vieille maison.", "Où est mon livre ?", "L’œuvre cou\u0302te « 5 € »"],
    "he": ["החתול רואה את הבית הישן.", "איפה הספר שלי?", "שָׁלוֹם בַּיִת, וּ\u05d1\u05bc\u05b0רָכָה"],
    "hi": ["बिल्ली पुराना घर देखती है।", "मेरी किताब कहाँ है?", "क\u093cलम और \u0958लम, पढ\u093c\u093eई"],
    "id": ["Kucing itu melihat rumah tua.", "Di mana buku saya?", "Anak-anak membeli 1.000 apel"],
    "ja": ["猫は古い家を見る。", "私の本はどこですか？", "ｶﾞﾗｽとﾊﾟﾝ、カ\u3099ラス㌔①～"],
    "ka": ["კატა ძველ სახლს ხედავს.", "სად არის ჩემი წიგნი?", "წელს 15 გრადუსია"],
    "ko": [
        "고양이가 오래된 집을 본다.",
        "내 책은 어디에 있나요?",
        "\u1112\u1161\u11ab글 ㄱㅏ ㈜ 가\u11a8",
    ],
    "ml": ["പൂച്ച പഴയ വീട് കാണുന്നു.", "എന്റെ പുസ്തകം എവിടെ?", "ല\u0d47\u0d3eകം ക\u0d46\u0d3eടി"],
    "ru": ["Кошка видит старый дом.", "Где моя книга?", "Ёж и и\u0306од, е\u0308лка — № 7"],
    "sw": ["Paka anaona nyumba ya zamani.", "Kitabu changu kiko wapi?", "Ng'ombe 30000 wa ng’ambo"],
    "ta": ["பூனை பழைய வீட்டைப் பார்க்கிறது.", "என் புத்தகம் எங்கே?", "ப\u0bc7\u0bbeகிற\u0bc7\u0ba9்"],
    "te": ["పిల్లి పాత ఇంటిని చూస్తుంది.", "నా పుస్తకం ఎక్కడ?", "క\u0c46\u0c56 అక్షరం"],
    "th": ["แมวเห็นบ้านเก่า", "หนังสือของฉันอยู่ที่ไหน", "น้ำตาลและกำลังใจ ๑๒ ๓"],
    "tr": ["Kedi eski evi görüyor.", "Kitabım nerede?", "I\u0307stanbul'da ıs\u0327ık g\u0306ibi"],
    "ur": ["بلی پرانا گھر دیکھتی ہے۔", "میری کتاب کہاں ہے؟", "ا\u0653پ کا نام، ۂ اور ہ\u0654"],
    "vi": [
        "Con mèo nhìn ngôi nhà cũ.",
        "Sách của tôi ở đâu?",
        "Vie\u0323\u0302t Nam, Viê\u0323t, tie\u0302\u0301ng",
    ],
    "zh": ["猫看见老房子。", "我的书在哪里？", "Ａ股～上涨１２％（約）"],
}
