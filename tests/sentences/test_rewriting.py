from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionaries, Dictionary, WordPairs, load_dictionaries
from metaxlm.languages import LANGUAGES
from metaxlm.sentences.english import expand, list_bases
from metaxlm.sentences.pairs import Pairs
from metaxlm.sentences.rewriting import DictionaryPairs, Rewriting, check_coverage
from metaxlm.sentences.spelling import capitalize, contract
from metaxlm.sentences.translations import count_words, load_short_words

ALL = Rewriting(replaced=1.0, unchanged=0.0, shuffled=0.0)
NUMBERS = np.arange(400)
DATA = Path(__file__).parents[2] / ".." / "shared" / "data"


def make_dictionaries(**entries: str) -> Dictionaries:
    """Make dictionaries of lines `english=translation`, by language."""
    made = {}
    for language, lines in sorted(entries.items()):
        english, words = zip(*(line.split("=") for line in lines.split(";")), strict=True)
        written = "\n".join(words)
        file = WordPairs(f"en-{language}.txt", written.lower(), "\n".join(english), written)
        made[language] = Dictionary(language, (file,))
    return Dictionaries("en", made)


def draw(
    sentence: str | list[str],
    settings: Rewriting = ALL,
    counts: Mapping[str, Mapping[str, int]] | None = None,
    **entries: str,
) -> Pairs:
    sentences = [sentence] if isinstance(sentence, str) else sentence
    source = DictionaryPairs(sentences, make_dictionaries(**entries), 1, settings, counts)
    return source.draw(NUMBERS)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("dog", "hund"),
        ("dogs", "hund"),  # base form
        ("A dog's house.", "Ein hund haus."),
        ('"House," said: dog - (house)!', '"Haus," said: hund - (haus)!'),  # punctuation
        ("DOG Dog dog", "HUND Hund hund"),
        ("my well-known dog", "mein bekannt hund"),  # phrase with a hyphen
        ("house well known", "haus bekannt"),
        ("well, known", "gut, klar"),  # a phrase does not cross punctuation
        ("of course dog", "natürlich hund"),
        ("", ""),
        ("123 ...", "123 ..."),
    ],
)
def test_words_and_phrases_are_replaced(sentence: str, expected: str) -> None:
    german = "dog=hund;house=haus;well known=bekannt;known=klar;well=gut;of course=natürlich;of=von"
    texts = set(draw(sentence, de=german).texts)
    assert expected in texts
    if not re.search("A |my ", sentence):  # which the table translates in several ways
        assert texts == {expected}


def test_only_a_share_of_words_and_sentences_changes() -> None:
    pairs = draw(["cat cat cat cat"], Rewriting(0.5, 0.25, 0.0), de="cat=katze", fr="cat=chat")
    shares = Counter(pairs.languages)
    assert abs(shares["en"] - 100) < 45 and abs(shares["de"] - 150) < 50
    for text, language in zip(pairs.texts, pairs.languages, strict=True):
        words = {"en": "cat", "de": "katze", "fr": "chat"}
        assert set(text.split()) <= {"cat", words[language]}
    changed = [
        text for text, code in zip(pairs.texts, pairs.languages, strict=True) if code != "en"
    ]
    share = sum(text.split().count("cat") for text in changed) / (4 * len(changed))
    assert abs(share - 0.5) < 0.08


def test_language_weights() -> None:
    dictionaries = make_dictionaries(de="cat=katze", fr="cat=chat", es="cat=gato")
    source = DictionaryPairs(["cat"], dictionaries, 1, ALL, language_weights={"de": 3, "fr": 1})
    assert source.languages == ("de", "fr")
    counts = Counter(source.draw(NUMBERS).texts)
    assert counts.keys() == {"katze", "chat"} and abs(counts["katze"] - 300) < 50


def test_words_move_by_a_few_places_and_punctuation_does_not() -> None:
    letters = [f"w{number}" for number in range(12)]
    sentence = " ".join(letters[:6]) + ", " + " ".join(letters[6:]) + "."
    settings = Rewriting(1.0, 0.0, shuffled=0.5, reach=3)
    texts = draw(sentence, settings, de="cat=katze").texts
    assert abs(sum(text == sentence for text in texts) - 200) < 60
    for text in texts:
        words = re.findall(r"\w+", text)
        assert sorted(words) == sorted(letters)
        assert re.sub(r"\w+", "w", text) == re.sub(r"\w+", "w", sentence)
        assert max(abs(words.index(word) - place) for place, word in enumerate(letters)) <= 3


def test_a_pair_is_a_function_of_seed_and_number() -> None:
    dictionaries = make_dictionaries(de="cat=katze;cat=kater;dog=hund", fr="cat=chat;dog=chien")
    sentences = ["The cat saw a dog.", "I'm a dog, not a cat."] * 20
    source, again, other = (DictionaryPairs(sentences, dictionaries, seed) for seed in (1, 1, 2))
    whole = source.draw(NUMBERS)
    for start in range(0, 400, 100):
        part = again.draw(NUMBERS[start : start + 100])
        assert part.texts == whole.texts[start : start + 100]
        assert part.languages == whole.languages[start : start + 100]
        assert part.anchors.tolist() == whole.anchors[start : start + 100].tolist()
    assert again.draw(NUMBERS[::-7]).texts == whole.texts[::-7]
    assert other.draw(NUMBERS).texts != whole.texts


def test_translations_follow_rank_without_counts_and_frequency_with_them() -> None:
    entries = "cat=katze;cat=kater;cat=mieze"
    by_rank = Counter(draw("cat", de=entries).texts)
    assert by_rank["katze"] > by_rank["kater"] > by_rank["mieze"] > 20
    counted = Counter(draw("cat", counts={"de": {"mieze": 900, "katze": 10}}, de=entries).texts)
    assert counted["mieze"] > counted["katze"] > counted["kater"]
    assert counted["kater"] < 10


def test_english_left_in_a_dictionary_is_not_a_translation() -> None:
    assert set(draw("that cat", ja="cat=cat;cat=猫;that=that").texts) <= {
        "あの猫",
        "それ猫",
        "その猫",
        "と猫",
    }
    assert set(draw("cat", fr="cat=cat;cat=chat").texts) == {"chat"}
    # A borrowed word is about as frequent in the text as in English.
    words = {"fr": {"taxi": 30, "auto": 30, "the": 1, "thé": 9}}
    assert set(draw("taxi thing", counts=words, fr="taxi=taxi;taxi=auto").texts) == {
        "taxi thing", "auto thing",
    }  # fmt: skip
    names = ["We saw Tom.", "We speak German."]
    entries = "tom=tom;tom=matou;german=german;german=allemand;saw=vit;speak=parle"
    words = {"fr": {"Tom": 20, "allemand": 20, "nous": 20}}
    endings = {text.split(maxsplit=1)[1] for text in draw(names, counts=words, fr=entries).texts}
    assert endings == {"vit Tom.", "parle Allemand."}


def test_capitals_of_german_nouns() -> None:
    # From the dictionary, or from the text where the dictionary is in lower case.
    assert set(draw("a dog", de="dog=Hund").texts) >= {"ein Hund"}
    counts = {"de": count_words(["Der Hund bellt. Ein Hund kam.", "Heute kam heute"], "de")}
    assert set(draw("dog today", counts=counts, de="dog=hund;today=heute").texts) == {"Hund heute"}


@pytest.mark.parametrize(
    ("language", "entries", "sentence", "expected"),
    [
        ("zh", "cat=猫;fish=鱼", "Cat, fish?", "猫，鱼？"),
        ("zh", "cat=猫;fish=鱼", "cat Bob Jim fish.", "猫Bob Jim鱼。"),
        ("ja", "cat=猫;dog=犬", "cat dog cat!", "猫犬猫！"),
        ("th", "cat=แมว;dog=หมา", "cat dog.", "แมวหมา"),
        ("ko", "cat=고양이;dog=개", "cat dog.", "고양이 개."),
        ("hi", "cat=बिल्ली", "cat.", "बिल्ली।"),
        ("ur", "cat=بلی", "cat, cat?", "بلی، بلی؟"),
        ("ru", "cat=кошка", "The cat, a cat.", "Кошка, кошка."),  # articles are dropped
        ("ru", "cat=кошка", "cat the, cat", "кошка, кошка"),
        ("tr", "dog=it;good=iyi", "Good dog", "İyi it"),
        ("fr", "water=eau", "Of water", "D'eau"),
    ],
)
def test_spelling_of_languages(language: str, entries: str, sentence: str, expected: str) -> None:
    assert expected in draw(sentence, **{language: entries}).texts


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("fr", "la eau de le homme que il ne a", "l'eau de l'homme qu'il n'a"),
        ("fr", "de le chat à les chats", "du chat aux chats"),
        ("fr", "le chat me regarde", "le chat me regarde"),
        ("it", "la acqua di il gatto", "l'acqua del gatto"),
        ("es", "de el gato a el mar", "del gato al mar"),
        ("pt", "de a casa em o mar", "da casa no mar"),
        ("de", "in dem Haus zu der Stadt", "im Haus zur Stadt"),
        ("el", "σε το σπίτι", "στο σπίτι"),
        ("ar", "ال كلب و ال الرجل", "الكلب والرجل"),
        ("ru", "la eau", "la eau"),
    ],
)
def test_contractions(language: str, text: str, expected: str) -> None:
    assert contract(text, language) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("katze", "Katze"), ('"katze"', '"Katze"'), ("8 cats", "8 cats"), ("猫", "猫"), ("", "")],
)
def test_capitals(text: str, expected: str) -> None:
    assert capitalize(text, "de") == expected


@pytest.mark.parametrize(
    ("word", "words"),
    [
        ("don't", "not"), ("isn't", "is not"), ("can't", "can not"), ("i'm", "i am"),
        ("he's", "he is"), ("dog's", "dog"), ("they've", "they have"), ("o'clock", "o'clock"),
    ],
)  # fmt: skip
def test_contracted_english(word: str, words: str) -> None:
    assert expand(word) == tuple(words.split())


@pytest.mark.parametrize(
    ("form", "base"),
    [
        ("cats", "cat"), ("cities", "city"), ("boxes", "box"), ("loved", "love"),
        ("walked", "walk"), ("stopped", "stop"), ("making", "make"), ("running", "run"),
        ("bigger", "big"), ("went", "go"), ("children", "child"), ("happily", "happy"),
    ],
)  # fmt: skip
def test_base_forms(form: str, base: str) -> None:
    assert base in list(list_bases(form))


def test_words_that_only_look_inflected() -> None:
    for word in ("glass", "thing", "using", "bring", "is"):
        assert not {"glas", "the", "us", "br", "i"} & {*list_bases(word)}


def test_the_table_of_short_words() -> None:
    table = load_short_words()
    assert {"ar", "fr", "ja", "sw", "te", "ur", "zh"} < table.keys() <= LANGUAGES.keys()
    assert len(table) >= 21
    for language, words in table.items():
        assert {"a", "an", "the", "i", "is", "of", "to", "not", "i am"} <= words.keys()
        for english, forms in words.items():
            assert forms and len(forms) == len(set(forms)), (language, english)
            assert english == english.lower()
            if LANGUAGES[language].script != "Latin":
                assert not re.search("[a-z]", "".join(forms)), (language, english)


def test_words_of_a_text_are_counted(tmp_path: Path) -> None:
    (tmp_path / "fr.txt").write_text("L'eau, l'homme. Le chat\n« Oui », dit le chat.\n", "utf-8")
    counts = count_words(tmp_path / "fr.txt", "fr")
    assert counts["l"] == 2 and counts["le"] == 2 and counts["chat"] == 2 and counts["oui"] == 1
    dictionary = make_dictionaries(ja="cat=猫;kitten=子猫;is=です").by_language["ja"]
    assert count_words(["子猫です。猫"], "ja", dictionary) == {"子猫": 1, "です": 1, "猫": 1}


def test_coverage_by_language() -> None:
    dictionaries = make_dictionaries(de="cat=katze;dog=hund", fr="bird=oiseau")
    assert check_coverage(["cat dogs bird fish"], dictionaries) == {"de": 0.5, "fr": 0.25}


@pytest.mark.parametrize(
    ("sentences", "message"),
    [
        (["bird fish " * 10], "en-de.txt: translates 0.0% of the words"),
        (["...", ""], "has no words"),
    ],
)
def test_dictionaries_that_do_not_fit_the_text_are_an_error(
    sentences: list[str], message: str
) -> None:
    with pytest.raises(MetaXLMError) as caught:
        check_coverage(sentences, make_dictionaries(de="cat=katze", fr="bird=oiseau"))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.skipif(not (DATA / "eval").is_dir(), reason="needs the real dictionaries")
def test_real_dictionaries_make_most_words_of_real_translations(tmp_path: Path) -> None:
    import tarfile

    for name in ("muse", "tatoeba"):
        with tarfile.open(DATA / "eval" / f"{name}.tar.xz") as archive:
            wanted = [one for one in archive if re.search("en-fr|fra-eng", one.name)]
            archive.extractall(tmp_path, wanted, filter="data")
    english, french = (
        (tmp_path / "tatoeba" / f"tatoeba.fra-eng.{code}").read_text("utf-8").splitlines()[::2]
        for code in ("eng", "fra")
    )
    dictionaries = load_dictionaries(tmp_path / "muse", ["fr"])
    assert check_coverage(english, dictionaries)["fr"] > 0.6
    source = DictionaryPairs(english, dictionaries, 1, ALL)
    made = Counter(word for text in source.draw(np.arange(5_000)).texts for word in _split(text))
    real = [word for text in french for word in _split(text)]
    share = sum(word in made for word in real) / len(real)
    assert share > 0.8  # 0.6 with MUSE's words alone
    # Function words have about the share that they have in real text.
    for word in ("le", "la", "je", "est", "de", "à"):
        real_share, made_share = real.count(word) / len(real), made[word] / made.total()
        assert 0.3 < made_share / real_share < 3, word


def _split(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
