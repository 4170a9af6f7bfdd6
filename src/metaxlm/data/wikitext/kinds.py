"""Pages that are no articles: redirects and disambiguation pages.

Comes in: the wikitext of a page and its `Site`. Goes out: whether it only points to another page,
or only lists the meanings of its title. Dumps mark redirects themselves; the words serve for those
that do not. The tables hold a language a line, names separated by commas.
"""

from __future__ import annotations

import re

from metaxlm.data.wikitext.site import Site
from metaxlm.data.wikitext.words import fold, read_table

_REDIRECTS = """
af aanstuur
ar تحويل
az istiqamətləndirmə, istiqamətləndir
be перанакіраванне, перанакіраваньне
bg пренасочване, виж
bn পুনর্নির্দেশ, পুননির্দেশ
br adkas
bs preusmjeri
ca redirecció
cs přesměruj
cy ail-cyfeirio, ailgyfeirio
da omdirigering
de weiterleitung
el ανακατευθυνση, ανακατεύθυνση
en redirect
eo alidirektu, alidirekti
es redirección, redireccion
et suuna
eu birzuzendu
fa تغییرمسیر, تغییر مسیر
fi ohjaus, uudelleenohjaus
fr redirection
fy trochferwizing
ga athsheoladh
gl redirección
he הפניה
hi अनुप्रेषित, पुनर्निर्देशन, पुनर्प्रेषित
hr preusmjeri
hu átirányítás
hy վերահղում
id alih
is tilvísun
it rinvia, rinvio
ja 転送, リダイレクト, 転送先, リダイレクト
jv alih
ka გადამისამართება
kk айдау
km ប្តូរទីតាំងទៅ, បញ្ជូនបន្ត
kn ಪುನರ್ನಿರ್ದೇಶನ
ko 넘겨주기
ku beralîkirin
ky багыттама
la redirect
lt peradresavimas
lv pāradresācija
mk пренасочување, види
ml തിരിച്ചുവിടുക, തിരിച്ചുവിടൽ
mn чиглүүлэг
mr पुनर्निर्देशन
ms lencong
my
nl doorverwijzing
no omdirigering
or ଲେଉଟାଣି
pa ਰੀਡਿਰੈਕਟ
pl patrz, przekieruj, tam
ps مخګرځونه
pt redirecionamento, redireciona
ro redirecteaza
ru перенаправление, перенапр
sa अनुप्रेषितम्
si යළියොමුව
sk presmeruj
sl preusmeritev
sq ridrejto
sr преусмери, preusmeri
su alih
sv omdirigering
sw elekeza
ta வழிமாற்று
te దారిమార్పు
th เปลี่ยนทาง
tl redirect
tr yönlendirme, yönlendir
ug
uk перенаправлення, перенаправление
ur رجوع مکرر
uz yoʻnaltirish
vi đổi
yi ווייטערפירן
zh 重定向
"""

_DISAMBIGUATIONS = """
af dubbelsinnig
am መንታ
ar توضيح, صفحة توضيح
as দ্ব্যৰ্থতা দূৰীকৰণ
az dəqiqləşdirmə, dəqiqləşdirmə (ad)
be неадназначнасць, неадназначнасьць
bg пояснение, пояснителна страница
bn দ্ব্যর্থতা নিরসন
br disheñvelout, digejañ
bs čvor, višeznačna odrednica
ca desambiguació, acrònim, biografies
cs rozcestník, rozcestník - příjmení
cy gwahaniaethu
da flertydig
de begriffsklärung, bkl
el αποσαφήνιση, αποσαφ
en disambiguation, disambig, disamb, dab, geodis, hndis, disambiguation page, numberdis
eo apartigilo
es desambiguación, desambig, des, desamb
et täpsustuslehekülg, täpsustus
eu argipen, argipen orri
fa ابهام‌زدایی, ابهامزدایی
fi täsmennyssivu, täsmennys
fr homonymie, patronymie, homonymes, arrêt homonymie, internationalisation
fy neibetsjuttings
ga idirdhealú, idirdhealáin
gd soilleireachadh
gl homónimos
gu સંદિગ્ધ શીર્ષક
he פירושונים
hi बहुविकल्पी, बहुविकल्पी शब्द
hr razdvojba, preusmjeravanje-razdvojba
hu egyért, egyért-rövid, egyértelműsítő lap
hy բազմիմաստություն, փարատում
id disambiguasi, disambig
is aðgreining
it disambigua, disambiguazione
ja aimai, 曖昧さ回避, 人名の曖昧さ回避, 地名の曖昧さ回避
jv disambiguasi
ka მრავალმნიშვნელოვანი, მრავმნიშ
kk айрық, көп мағыналы
km ណែនាំ
kn ದ್ವಂದ್ವ ನಿವಾರಣೆ
ko 동음이의, 동명이인
ku cudakirin
ky текмаанисиздик, көп маанилүү
la discretiva
lt nuorodinis, nuorodinis straipsnis
lv nozīmju atdalīšana, disambig
mg homonymie, pejy mitovy anarana
mk појаснување
ml വിവക്ഷകൾ, നാനാർത്ഥം
mn салаа утгатай
mr निःसंदिग्धीकरण, नि:संदिग्धीकरण
ms nyahkekaburan, nyahtaksaan
my သံတူကြောင်းကွဲ
ne अस्पष्टता, बहुविकल्पी
nl dp, doorverwijspagina, dpintro, disambiguatie
no peker, pekerside, flertydig, etternavn, fleirtyding
or ବହୁବିକଳ୍ପ
pa ਗੁੰਝਲਖੋਲ੍ਹ, ਗੁੰਝਲ-ਖੋਲ੍ਹ
pl ujednoznacznienie, disambigR
ps نامبهمېدنه
pt desambiguação, desambig, disambig-bio
ro dezambiguizare, dezamb
ru неоднозначность, disambig, многозначность, однофамильцы, список однофамильцев
sd سلجهائپ
si වක්‍රෝත්ති
sk rozlišovacia stránka, disambig
sl razločitev, disambig
so caddayn
sq kthjellim
sr вишезначна одредница, višeznačna odrednica, вишезначник
su disambiguasi
sv förgrening, gren, efternamn, grensida, robotskapad förgrening
sw maana
ta பக்கவழி நெறிப்படுத்தல், பக்கவழிநெறிப்படுத்தல்
te అయోమయ నివృత్తి
th แก้ความกำกวม, แก้กำกวม
tl paglilinaw
tr anlam ayrımı, anlam ayrım
uk disambig, багатозначність, неоднозначність, прізвище, DisambigG, DisambigN
ur ضد ابہام
uz koʻp maʼnolilik, disambig
vi định hướng, trang định hướng, thdh
yi באדייטן
zh 消歧义, 消歧義, 消歧义页, 消歧義頁, disambig-cn, 人名消歧义, 人名消歧義, 地名消歧義
"""

_REDIRECT_WORDS = frozenset().union(*read_table(_REDIRECTS).values())
_DISAMBIGUATION_NAMES = read_table(_DISAMBIGUATIONS)
_ALL_NAMES = frozenset().union(*_DISAMBIGUATION_NAMES.values())

_REDIRECT = re.compile(r"\s*#\s*([^\s\[\]:#][^\[\]:#\n]{0,40}?)\s*:?\s*\[\[[^\[\]\n]+\]\]")
_SWITCH = re.compile(r"__disambig__", re.IGNORECASE)
_TEMPLATE = re.compile(r"\{\{\s*([^\s{}|<>\[\]][^{}|<>\[\]\n]{0,80})(?=[|}\n])")
_PREFIX = re.compile(r"(?:template|msg|subst)\s*:\s*")


def is_redirect(wikitext: str) -> bool:
    """Say whether a page only points to another one, in any language's word for it."""
    match = _REDIRECT.match(wikitext)
    return match is not None and fold(match[1]) in _REDIRECT_WORDS


def is_disambiguation(wikitext: str, site: Site) -> bool:
    """Say whether a page lists the meanings of its title, by the template that marks it so."""
    if _SWITCH.search(wikitext):
        return True
    names = _ALL_NAMES
    if site.language:
        own = _DISAMBIGUATION_NAMES.get(site.language, frozenset())
        names = own | _DISAMBIGUATION_NAMES["en"]
    for match in _TEMPLATE.finditer(wikitext):
        name = _PREFIX.sub("", fold(match[1]), count=1)
        if name in names or name.endswith(" disambiguation"):
            return True
    return False
