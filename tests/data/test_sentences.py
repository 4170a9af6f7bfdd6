from __future__ import annotations

import timeit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metaxlm.data.sentences import MAX_CHARACTERS, split_sentences
from metaxlm.languages import LANGUAGES

# Marks of many scripts, quotation marks that open and close, and what makes splitting hard.
PIECES = [
    *"abcXYZäßжЯبकগகกลກកမ가漢あאგԱአ é\u0e31\u0301\u200d😀0159",
    *".!?…。！？।॥۔؟။၊។៕።։;:,،，、-–—'\"«»„“”‘’「」『』《》()（）[]{}<>`*•",
    *["Dr.", "z. B.", "e.g.", "U.S.", "1.", "(2) ", "។ល។", " ", " ", "\t", "\n", "\n\n", "\u2028",
      "\u00a0", "\u3000", "http://a.b/c?d=e", "。」", "と", "word ", "Слово ", "ไทย ", "." * 5],
]  # fmt: skip
HARD_TEXT = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


def squeeze(text: str) -> str:
    return "".join(text.split())


@pytest.mark.parametrize("language", [*LANGUAGES, "tlh", ""])
def test_two_sentences_in_every_language(language: str) -> None:
    first, second = {
        "Thai": ("นี่คือแมว?", "นั่นคือหมา"),
        "Han": ("这是猫。", "那是狗。"),
        "Myanmar": ("ဒါကြောင်။", "ဒါခွေး။"),
        "Khmer": ("នេះជាឆ្មា។", "នោះជាឆ្កែ។"),
        "Devanagari": ("यह बिल्ली है।", "वह कुत्ता है।"),
        "Armenian": ("Սա կատու է։", "Դա շուն է։"),
        "Ethiopic": ("ይህ ድመት ነው።", "ያ ውሻ ነው።"),
        "Arabic": ("هذا قط؟", "هذا كلب."),
        "Georgian": ("ეს კატაა.", "ის ძაღლია."),
        "Cyrillic": ("Это кошка.", "Там собака."),
    }.get(LANGUAGES[language].script if language in LANGUAGES else "", ("A house.", "That tree!"))
    assert split_sentences(f" {first}  {second}", language) == [first, second]


@settings(deadline=None, max_examples=200)
@given(HARD_TEXT | st.text(), st.integers(1, 20), st.sampled_from(sorted(LANGUAGES)))
def test_no_character_is_lost_or_added(text: str, times: int, language: str) -> None:
    found = split_sentences(text * times, language)
    assert squeeze("".join(found)) == squeeze(text * times)
    assert all(sentence and sentence == sentence.strip() for sentence in found)
    assert not any("\n" in sentence or "\u2028" in sentence for sentence in found)
    assert max(map(len, found), default=0) <= MAX_CHARACTERS


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        # What sentencex does by itself, and has to go on doing.
        ("en", ["He paid 3.5 dollars to J. R. Smith.", '"Stop." said Dr. Smith.', "Yes?", "No!"]),
        ("de", ["Am 3. Oktober kam z. B. Dr. Müller.", "Er ging."]),
        ("ur", ["یہ ہے۔", "کیا؟", "ہاں۔"]),
        # A small letter begins no sentence.
        ("fr", ["C'est M. de Nemours.", "Il part."]),
        ("tr", ["Bu 19. yüzyıl sistemidir.", "Eskidir."]),
        ("ka", ["ეს არის.", "რა?", "კი."]),
        # Numbers are not sentences, and a list mark in parentheses does not bind what follows.
        ("en", ["1. One is here.", "Two is there."]),
        ("en", ["(2) One is here.", "Two is there."]),
        ("sa", ["सीता॥१॥", "वनम्।"]),
        # Asian marks.
        ("ja", ["「はい。」と彼は言った。", "『本。』です。", "本当ですか？！"]),
        ("ja", ["「はい。」", "ところが違った。"]),
        ("ko", ['"네." 라고 했다.', "정말?"]),
        ("zh", ["他说：“你好。”", "然后走了。", "真的吗？！"]),
        ("km", ["នេះជាប្រយោគ។", "ឆ្មា ឆ្កែ ។ល។ ទៀត៕", "បាទ។"]),
        ("my", ["သူမ၊ ငါ။", "သွားသည်။"]),
        # German opens with what French closes with.
        ("de", ["»Ja.« sagte er.", "»Nein.«", "Er ging."]),
    ],
)
def test_marks_and_abbreviations(language: str, expected: list[str]) -> None:
    joint = "" if language in ("ja", "zh") else " "
    assert split_sentences(joint.join(expected), language) == expected


def test_thai_and_lao_are_split_at_spaces() -> None:
    found = split_sentences(" ".join(["ภาษาไทยไม่มีจุด"] * 60), "th")
    assert len(found) > 4
    assert all(80 <= len(sentence) <= 200 for sentence in found)
    assert len(split_sentences(" ".join(["ພາສາລາວ"] * 60), "lo")) > 2
    # Short text, spaces around other letters, and marks of repetition do not end sentences.
    assert split_sentences("ราคา 20 บาท ครับ", "th") == ["ราคา 20 บาท ครับ"]
    assert len(split_sentences("ภาษา 2540 " * 30, "th")) == 1
    found = split_sentences("เร็ว ๆ " * 120, "th")
    assert len(found) > 2 and not any(sentence.startswith("ๆ") for sentence in found)


def test_a_long_quotation_is_split_and_a_short_one_is_not() -> None:
    inside = "This is one sentence of the speech. "
    short = f'He said: "{inside * 3}The end." Then he left.'
    assert len(split_sentences(short, "en")) == 2
    long = f'He said: "{inside * 20}The end." Then "the man" left.'
    found = split_sentences(long, "en")
    assert len(found) == 22
    assert found[0] == 'He said: "This is one sentence of the speech.'
    assert found[-1] == 'Then "the man" left.'
    quoted = "「これは一つの文です。" + "それも一つの文です。" * 60 + "」「次の文。」"
    assert len(split_sentences(quoted, "ja")) > 50


def test_long_sentences_are_cut_at_clauses_and_then_at_spaces() -> None:
    clause = "und so ging es immer weiter und weiter fort; "
    found = split_sentences("Wirklich wahr: " + clause * 57, "de")
    assert len(found) == 3
    assert all(part.endswith(";") and 500 <= len(part) <= MAX_CHARACTERS for part in found)
    found = split_sentences("wort " * 500, "de")
    assert all(part.split() == ["wort"] * len(part.split()) for part in found)
    assert [len(part) for part in split_sentences("e\u0301" * 1_000, "de")] == [1_000, 1_000]
    assert max(map(len, split_sentences("中" * 1_000 + "：" + "中" * 300, "zh"))) <= MAX_CHARACTERS


def test_a_paragraph_longer_than_sentencex_gets_to_see_is_split_as_a_short_one() -> None:
    expected = [f"Sentence number {n} is here." for n in range(1_000)]
    assert split_sentences(" ".join(expected), "en") == expected


@pytest.mark.parametrize("pattern", ["「あ。", "“a. ", '"a. ', "(a. ", "a", "1. ", "»a. "])
def test_time_grows_no_faster_than_text(pattern: str) -> None:
    def measure(length: int) -> float:
        text = (pattern * length)[:length]
        return min(timeit.repeat(lambda: split_sentences(text, "en"), number=1, repeat=3))

    # Quadratic would be 36 times; sentencex alone needs 0.4 s for 20,000 characters of the first.
    assert measure(60_000) < 16 * measure(10_000) + 0.05


def test_a_panic_of_the_library_costs_one_paragraph(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        """As pyo3 names it; it cannot be imported."""

    def split_with(error: BaseException) -> list[str]:
        def segment(language: str, text: str) -> list[str]:
            raise error

        monkeypatch.setattr("sentencex.segment", segment)
        return split_sentences("A cat. A dog.", "en")

    assert split_with(PanicException("byte index 1 is not a char boundary")) == ["A cat. A dog."]
    with pytest.raises(KeyboardInterrupt):
        split_with(KeyboardInterrupt())
