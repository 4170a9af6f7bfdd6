"""Turkish: pinned sentences for the hard points, and properties of everything it can say."""

from __future__ import annotations

import re
from random import Random

import pytest

from metaxlm.phrasebook.alignment import align
from metaxlm.phrasebook.concepts import NAME_KINDS, load_concepts
from metaxlm.phrasebook.lexicon import load_lexicon
from metaxlm.phrasebook.meaning import Meaning, Phrase
from metaxlm.phrasebook.morphology import load_morphology
from metaxlm.phrasebook.morphology import tr_suffixes as forms
from metaxlm.phrasebook.morphology.tr_suffixes import NounStem, Stem, VerbStem
from metaxlm.phrasebook.realization import realize
from metaxlm.phrasebook.sampling import Sampler

P = Phrase
ANNA = P("anna", gender="f")
MAX, LEO = P("max", gender="m"), P("leo", gender="m")
ME, WE, YOU = P("i", gender="f"), P("we", "pl", gender="m"), P("you", gender="m")
SISTER = P("sister", gender="f", possessor="1sg")
YES, NO = "affirmative", "negative"
Slots = dict[str, Phrase]

SENTENCES: list[tuple[str, str, str, Slots, str]] = [
    # case by definiteness; article after the adjective; SOV with time and place before the object
    (
        "transitive",
        "past",
        YES,
        {
            "agent": ANNA,
            "verb": P("buy"),
            "theme": P("coat", definiteness="indef", adjective="red"),
            "place": P("market"),
            "time": P("yesterday"),
        },
        "Anna dün pazarda kırmızı bir palto satın aldı.",
    ),
    (
        "transitive",
        "progressive",
        YES,
        {"agent": ANNA, "verb": P("read"), "theme": P("book")},
        "Anna kitabı okuyor.",
    ),
    (
        "transitive",
        "past",
        NO,
        {"agent": ME, "verb": P("read"), "theme": P("book", definiteness="indef")},
        "Kitap okumadım.",
    ),
    (
        "transitive",
        "future",
        YES,
        {"agent": ME, "verb": P("eat"), "theme": P("apple", "pl", "indef")},
        "Elma yiyeceğim.",
    ),
    (
        "transitive",
        "past",
        YES,
        {"agent": ANNA, "verb": P("lose"), "theme": P("bag", possessor="@agent")},
        "Anna çantasını kaybetti.",
    ),
    (
        "transitive",
        "past",
        YES,
        {"agent": WE, "verb": P("lose"), "theme": P("watch", possessor="@agent")},
        "Kol saatimizi kaybettik.",
    ),
    # a numeral takes the singular
    (
        "counted",
        "past",
        YES,
        {"agent": MAX, "verb": P("eat"), "theme": P("apple", "pl", "indef", numeral="three")},
        "Max üç elma yedi.",
    ),
    # apostrophes, harmony, devoicing, buffer letters, a comma between two names
    (
        "encounter",
        "past",
        YES,
        {"agent": ANNA, "verb": P("meet"), "theme": LEO},
        "Anna, Leo'yla buluştu.",
    ),
    (
        "encounter",
        "future",
        NO,
        {"agent": ME, "verb": P("help"), "theme": MAX, "time": P("tomorrow")},
        "Yarın Max'a yardım etmeyeceğim.",
    ),
    (
        "flight",
        "past",
        YES,
        {"agent": WE, "verb": P("fly"), "source": P("paris"), "goal": P("moscow")},
        "Paris'ten Moskova'ya uçtuk.",
    ),
    (
        "person_at",
        "past",
        NO,
        {"agent": ME, "place": P("zoo")},
        "Hayvanat bahçesinde değildim.",
    ),
    # compounds with -(s)I, stems that soften or lose a vowel
    (
        "possession_counted",
        "present",
        YES,
        {"agent": SISTER, "verb": P("have"), "theme": P("son", "pl", "indef", numeral="two")},
        "Kız kardeşimin iki oğlu var.",
    ),
    (
        "possession",
        "present",
        NO,
        {"agent": WE, "verb": P("have"), "theme": P("camera", definiteness="indef")},
        "Fotoğraf makinemiz yok.",
    ),
    (
        "need_thing",
        "present",
        YES,
        {"agent": ME, "verb": P("need"), "theme": P("map", definiteness="indef")},
        "Bir haritaya ihtiyacım var.",
    ),
    (
        "kinship",
        "present",
        YES,
        {"agent": ANNA, "owner": LEO, "relation": P("colleague", gender="f")},
        "Anna, Leo'nun iş arkadaşı.",
    ),
    # predicates without a verb
    ("person_state", "past", YES, {"agent": ME, "adjective": P("busy")}, "Meşguldüm."),
    ("person_state", "past", YES, {"agent": WE, "adjective": P("sick")}, "Hastaydık."),
    (
        "weather_state",
        "future",
        NO,
        {"weather": P("cold_weather"), "place": P("prague")},
        "Prag'da hava soğuk olmayacak.",
    ),
    # subordinate clauses
    (
        "stay_home_state",
        "past",
        YES,
        {"agent": ME, "verb": P("stay"), "adjective": P("sick")},
        "Hasta olduğum için evde kaldım.",
    ),
    (
        "when_came",
        "past",
        YES,
        {"agent": WE, "verb": P("come"), "weather": P("rain")},
        "Eve geldiğimizde yağmur yağıyordu.",
    ),
    (
        "think_that",
        "present",
        YES,
        {
            "agent": ANNA,
            "verb": P("think"),
            "theme": P("book", definiteness="this"),
            "adjective": P("interesting"),
        },
        "Anna bu kitabın ilginç olduğunu düşünüyor.",
    ),
    # the question particle, ability, necessity, habit
    (
        "ask_liking",
        "present",
        YES,
        {"agent": YOU, "verb": P("like"), "theme": P("tea", "sg", "generic")},
        "Çay sever misin?",
    ),
    (
        "can_do",
        "present",
        NO,
        {"agent": ME, "verb": P("can"), "verb2": P("sing")},
        "Şarkı söyleyemiyorum.",
    ),
    (
        "must_do",
        "present",
        YES,
        {"agent": WE, "verb": P("must"), "verb2": P("feed"), "theme": P("dog")},
        "Köpeği beslemeliyiz.",
    ),
    (
        "frequency",
        "present",
        YES,
        {
            "agent": ME,
            "adverb": P("often"),
            "verb": P("read"),
            "theme": P("newspaper", "pl", "indef"),
            "time": P("in_the_morning"),
        },
        "Sabahları sık sık gazete okurum.",
    ),
]


@pytest.mark.parametrize(("pattern", "tense", "polarity", "slots", "expected"), SENTENCES)
def test_sentences(pattern: str, tense: str, polarity: str, slots: Slots, expected: str) -> None:
    assert realize(Meaning(pattern, slots, tense, polarity), "tr").text == expected


@pytest.mark.parametrize(
    ("stem", "soft", "aorist", "present", "habit"),
    [
        ("git", "gid", "", "gidiyor", "gider"),
        ("gel", "", "I", "geliyor", "gelir"),
        ("oyna", "", "", "oynuyor", "oynar"),
        ("söyle", "", "", "söylüyor", "söyler"),
        ("ye", "", "", "yiyor", "yer"),
        ("uyu", "", "", "uyuyor", "uyur"),
        ("kaybet", "kaybed", "A", "kaybediyor", "kaybeder"),
    ],
)
def test_verbs(stem: str, soft: str, aorist: str, present: str, habit: str) -> None:
    verb = VerbStem(Stem(stem, soft), aorist)
    assert forms.progressive(verb, False, "3sg") == present
    assert forms.aorist(verb, False, "3sg") == habit


def test_denied_forms() -> None:
    go = VerbStem(Stem("git", "gid"))
    assert forms.future(go, True, "1sg") == "gitmeyeceğim"
    assert forms.progressive(go, True, "1pl", past=True) == "gitmiyorduk"
    assert [forms.aorist(go, True, p) for p in ("1sg", "3sg", "1pl")] == [
        "gitmem",
        "gitmez",
        "gitmeyiz",
    ]


def all_meanings(seed: int, per_pattern: int) -> list[Meaning]:
    sampler = Sampler(Random(seed))
    return [sampler.sample(pattern) for pattern in sampler.patterns for _ in range(per_pattern)]


def test_text_is_clean() -> None:
    for meaning in all_meanings(11, 12):
        sentence = realize(meaning, "tr")
        assert re.fullmatch(r"[A-Za-zÇĞİÖŞÜçğıöşüâ0-9' ,]+[.!?]", sentence.text), sentence.text
        assert "None" not in sentence.text and " ," not in sentence.text
        assert not re.match(r"[a-zçğıöşü]", sentence.text), sentence.text
        assert all(role and role != "&" for word in sentence.items for role in word.roles)


def _harmonizes(stem: str, suffix: str, front: bool) -> bool:
    """Judge a suffix anew: front after front, round only after round, t after a voiceless sound."""
    before = [letter for letter in forms.lower(stem) if letter in "aâeıioöuü"][-1]
    for letter in suffix:
        if letter not in "aeıioöuü":
            continue
        if (letter in "eiöü") != (front or before in "eiöü"):
            return False
        if letter in "uü" and before not in "oöuü":
            return False
        before, front = letter, False
    hard = forms.lower(stem)[-1] in "fstkçşhpx"
    return not suffix.startswith("d" if hard else "t")


def test_every_suffix_harmonizes() -> None:
    concepts, checked = load_concepts(), 0
    for concept in concepts:
        lexeme = load_lexicon("tr")[concept.id]
        stem = lexeme.words[-1][0]
        if concept.kind in NAME_KINDS:
            for case in forms.CASES:
                name, suffix = forms.inflect_name(stem, case).split("'")
                assert name == stem and _harmonizes(stem, suffix, front=False), (stem, suffix)
                checked += 1
        elif concept.kind in ("animal", "food", "thing", "transport") and not lexeme.get("iz"):
            front, soft = bool(lexeme.get("front")), lexeme.get("soft")
            noun = NounStem(Stem(stem, soft, front))
            for number, owner, case in (("sg", "", "acc"), ("sg", "", "abl"), ("sg", "3sg", "dat")):
                form = forms.inflect_noun(noun, number, owner, case)
                root = soft if soft and form.startswith(soft) else stem
                assert form.startswith(root), form
                assert _harmonizes(root, form[len(root) :], front), form
                checked += 1
    assert checked > 800


def test_letters_with_and_without_dots() -> None:
    morphology = load_morphology("tr")
    assert morphology.capitalize("ışık") == "Işık" and morphology.capitalize("iki") == "İki"
    assert morphology.lower("İstanbul IŞIK") == "istanbul ışık"


def test_unsaid_subjects_belong_to_the_verb() -> None:
    meaning = Meaning(
        "transitive",
        {"agent": ANNA._replace(pronoun=True), "verb": P("drink"), "theme": P("tea")},
        "past",
        NO,
    )
    turkish, english = realize(meaning, "tr"), realize(meaning, "en")
    assert turkish.text == "Çayı içmedi."
    verb = turkish.words.index("içmedi")
    linked = {english.words[link.target] for link in align(turkish, english) if link.source == verb}
    assert linked == {"She", "did", "not", "drink"}
