"""Words with which links of wikis in different languages begin.

A dump's header names a wiki's namespaces in its own language but not their older names, which
articles are full of (`[[Bild:...]]` for `[[Datei:...]]`). The tables below hold both, a language a
line, names separated by commas.
"""

from __future__ import annotations

import re

_DIRECTION_MARKS = re.compile("[\u200e\u200f\u202a-\u202e]")


def read_words(words: str) -> frozenset[str]:
    """Return words that are separated by white space."""
    return frozenset(words.split())


def read_table(table: str) -> dict[str, frozenset[str]]:
    """Return the folded names of each language."""
    rows = (line.split(maxsplit=1) for line in table.strip().splitlines())
    return {
        code: frozenset(fold(name) for name in names.split(","))
        for code, names in (row for row in rows if len(row) == 2)
    }


def fold(name: str) -> str:
    """Return a name as MediaWiki compares it: underscores are spaces, and case does not count."""
    # Turkish İ folds to two characters, and direction marks are not part of a name.
    name = _DIRECTION_MARKS.sub("", name).replace("_", " ").replace("İ", "i")
    return " ".join(name.split()).casefold()


_FILES = """
af Lêer, Beeld
am ስዕል, ፋይል
ar ملف, صورة
as চিত্ৰ, চিত্র
az Şəkil, Fayl
be Файл, Выява
bg Файл, Картинка
bn চিত্র
br Restr, Skeudenn
bs Datoteka, Slika
ca Fitxer, Imatge
cs Soubor
cy Delwedd
da Fil, Billede
de Datei, Bild
el Αρχείο, Εικόνα
en File, Image
eo Dosiero
es Archivo, Imagen
et Pilt, Fail
eu Fitxategi, Irudi
fa پرونده, تصویر
fi Tiedosto, Kuva
fr Fichier, Image
fy Ofbyld
ga Íomhá
gd Faidhle, Ìomhaigh
gl Ficheiro, Imaxe, Arquivo
gu ચિત્ર
he קובץ, תמונה
hi चित्र
hr Datoteka, Slika
hu Fájl, Kép
hy Պատկեր
id Berkas, Gambar
is Mynd
it File, Immagine
ja ファイル, 画像
jv Gambar, Berkas
ka ფაილი, სურათი
kk Сурет, Файл
km ឯកសារ, រូបភាព
kn ಚಿತ್ರ
ko 파일, 그림
ku Wêne
ky Файл, Сүрөт
la Fasciculus, Imago
lo ຮູບ, ໄຟລ໌
lt Vaizdas
lv Attēls
mg Sary, Rakitra
mk Податотека, Слика
ml പ്രമാണം, ചിത്രം
mn Файл, Зураг
mr चित्र
ms Fail, Imej
my ဖိုင်, ပုံ
ne चित्र
nl Bestand, Afbeelding
no Fil, Bilde
or ଚିତ୍ର
pa ਤਸਵੀਰ
pl Plik, Grafika
ps دوتنه, انځور
pt Ficheiro, Imagem, Arquivo
ro Fișier, Fişier, Imagine
ru Файл, Изображение
sa सञ्चिका, चित्रम्
sd عڪس, فائل
si ගොනුව, රූපය
sk Súbor, Obrázok
sl Slika, Datoteka
sq Skeda, Figura
sr Датотека, Слика, Datoteka, Slika
su Gambar, Koropak, Berkas
sv Fil, Bild
sw Picha, Faili
ta படிமம்
te దస్త్రం, బొమ్మ
th ไฟล์, ภาพ
tl Talaksan, Larawan
tr Dosya, Resim
ug ھۆججەت
uk Файл, Зображення
ur فائل, تصویر, ملف
uz Fayl, Tasvir
vi Tập tin, Hình
yi טעקע, בילד
zh 文件, 檔案, 档案, 图像, 圖像, 图片, 圖片
"""

_CATEGORIES = """
af Kategorie
am መደብ
ar تصنيف
as শ্ৰেণী
az Kateqoriya
be Катэгорыя
bg Категория
bn বিষয়শ্রেণী
br Rummad
bs Kategorija
ca Categoria
cs Kategorie
cy Categori
da Kategori
de Kategorie
el Κατηγορία
en Category
eo Kategorio
es Categoría
et Kategooria
eu Kategoria
fa رده
fi Luokka
fr Catégorie
fy Kategory
ga Catagóir
gd Roinn-seòrsa
gl Categoría
gu શ્રેણી
he קטגוריה
hi श्रेणी
hr Kategorija
hu Kategória
hy Կատեգորիա
id Kategori
is Flokkur
it Categoria
ja カテゴリ
jv Kategori
ka კატეგორია
kk Санат
km ចំណាត់ថ្នាក់ក្រុម
kn ವರ್ಗ
ko 분류
ku Kategorî
ky Категория
la Categoria
lo ໝວດ
lt Kategorija
lv Kategorija
mg Sokajy
mk Категорија
ml വർഗ്ഗം
mn Ангилал
mr वर्ग
ms Kategori
my ကဏ္ဍ
ne श्रेणी
nl Categorie
no Kategori
or ଶ୍ରେଣୀ
pa ਸ਼੍ਰੇਣੀ
pl Kategoria
ps وېشنيزه
pt Categoria
ro Categorie
ru Категория
sa वर्गः
sd زمرو
si ප්‍රවර්ගය
sk Kategória
sl Kategorija
sq Kategoria
sr Категорија, Kategorija
su Kategori
sv Kategori
sw Jamii
ta பகுப்பு
te వర్గం
th หมวดหมู่
tl Kategorya
tr Kategori
ug تۈر
uk Категорія
ur زمرہ
uz Turkum
vi Thể loại
yi קאטעגאריע
zh 分类, 分類, 类别
"""

FILES = frozenset().union(*read_table(_FILES).values())
"""Names of the namespace of files, in all languages together: in titles they hardly ever clash."""

CATEGORIES = frozenset().union(*read_table(_CATEGORIES).values())
"""Names of the namespace of categories."""

LANGUAGES = read_words(
    """
    aa ab ace ady af ak als alt am ami an ang ann anp ar arc ary arz as ast atj av avk awa ay az azb
    ba ban bar bat-smg bbc bcl bdr be be-tarask be-x-old bew bg bh bi bjn blk bm bn bo bpy br bs
    btm bug bxr ca cbk-zam cdo ce ceb ch cho chr chy ckb co cr crh cs csb cu cv cy da dag de dga din
    diq dsb dtp dty dv dz ee el eml en eo es et eu ext fa fat ff fi fiu-vro fj fo fon fr frp frr fur
    fy ga gag gan gcr gd gl glk gn gom gor got gpe gsw gu guc gur guw gv ha hak haw he hi hif ho hr
    hsb ht hu hy hyw hz ia iba id ie ig igl ii ik ilo inh io is it iu ja jam jbo jv ka kaa kab kbd
    kbp kcg kg kge ki kj kk kl km kn knc ko koi kr krc ks ksh ku kus kv kw ky la lad lb lbe lez lfn
    lg li lij lld lmo ln lo lrc lt ltg lv lzh mad mai map-bms mdf mg mh mhr mi min mk ml mn mni mnw
    mo mos mr mrj ms mt mus mwl my myv mzn na nah nan nap nb nds nds-nl ne new ng nia nl nn no nov
    nqo nr nrm nso nup nv ny oc olo om or os pa pag pam pap pcd pcm pdc pfl pi pih pl pms pnb pnt ps
    pt pwn qu rm rmy rn ro roa-rup roa-tara rsk ru rue rup rw sa sah sat sc scn sco sd se sg sgs sh
    shi shn shy si simple sk skr sl sm smn sn so sq sr srn ss st stq su sv sw szl szy ta tay tcy tdd
    te tet tg th ti tig tk tl tly tn to tpi tr trv ts tt tum tw ty tyv udm ug uk ur uz ve vec vep vi
    vls vo vro wa war wo wuu xal xh xmf yi yo yue za zea zgh zh zh-classical zh-min-nan zh-yue zu
    """
)
"""Prefixes of links to the same article in another language."""

SISTERS = read_words(
    """
    b betawikiversity bugzilla c commons d doi foundation incubator m mail mediazilla meta metawiki
    metawikipedia mw n outreach phab phabricator q s species strategy test toollabs tools v voy w
    wikibooks wikidata wikimedia wikinews wikipedia wikiquote wikisource wikispecies wikitech
    wikiversity wikivoyage wikt wiktionary wmf
    """
)
"""Prefixes of links to other projects."""
