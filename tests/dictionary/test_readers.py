"""Readers of dictionaries: each format from files as its projects write them."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from metaxlm.dictionary.readers import find_direction, list_files, read_entries
from metaxlm.dictionary.wiktextract import split_gloss
from metaxlm.errors import MetaXLMError

Pairs = list[tuple[str, str]]
PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress,
}  # fmt: skip
SWAHILI = {
    "dog": "mbwa", "house": "nyumba", "water": "maji", "book": "kitabu", "child": "mtoto",
    "tree": "mti", "road": "barabara", "school": "shule", "teacher": "mwalimu", "food": "chakula",
    "friend": "rafiki", "mother": "mama", "night": "usiku", "river": "mto", "country": "nchi",
    "language": "lugha", "market": "soko", "doctor": "daktari", "question": "swali",
    "answer": "jibu", "morning": "asubuhi", "window": "dirisha", "chair": "kiti",
    "kitchen": "jikoni", "bread": "mkate", "elephant": "tembo", "lion": "simba", "king": "mfalme",
    "beautiful": "nzuri", "strong": "imara", "write": "andika", "speak": "zungumza",
    "walk": "tembea", "sleep": "lala", "laugh": "cheka", "year": "mwaka", "month": "mwezi",
    "week": "wiki", "money": "pesa", "work": "kazi", "journey": "safari", "freedom": "uhuru",
}  # fmt: skip

LINGALA = (
    "mbwa ndako mai buku mwana nzete nzela kelasi molakisi bilei moninga mama butu ebale mboka "
    "monoko zando monganga motuna eyano ntongo lininisa kiti kuku mampa nzoku nkosi mokonzi kitoko "
    "makasi koma loba tambola lala seka mobu sanza poso mbongo mosala mobembo bonsomi"
)


def read(path: Path, language: str = "sw", source: str = "en") -> tuple[Pairs, dict[str, int]]:
    found = read_entries(path, language, source)
    pairs = [(one.source, one.target) for one in found.entries]
    return pairs, {reason: count for reason, count in found.dropped.items() if count}


def write_lines(path: Path, *records: Any) -> Path:
    lines = (
        one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in records
    )
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def translation(code: str, word: str | None, **more: str) -> dict[str, Any]:
    found = {"lang": "", "code": code, "sense": "domestic animal", **more}
    return found if word is None else {**found, "word": word}


DOG = {
    "word": "dog", "lang": "English", "lang_code": "en", "pos": "noun",
    "translations": [
        translation("sw", "mbwa"), translation("fr", "chien"), translation("sw", None),
        translation("cmn", "狗", roman="gǒu"),
    ],
    "senses": [
        {"glosses": ["A mammal"], "translations": [translation("sw", "jibwa")]},
        {"glosses": ["A dull person"]},
    ],
}  # fmt: skip
MBWA = {
    "word": "mbwa", "lang": "Swahili", "lang_code": "sw", "pos": "noun",
    "senses": [
        {"glosses": ["dog (animal), hound"]},
        {"glosses": ["animals:", "to bark; a long explanation of what dogs do at night"]},
        {"glosses": ["plural of x"], "form_of": [{"word": "x"}]},
        {"tags": ["no-gloss"]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("ending", PACKERS)
def test_english_edition_of_wiktionary(tmp_path: Path, ending: str) -> None:
    lines = [DOG, MBWA, {"word": "Hund", "lang_code": "de", "senses": []}]
    path = write_lines(tmp_path / "kaikki.jsonl", *lines)
    packed = tmp_path / f"packed.jsonl{ending}"
    packed.write_bytes(PACKERS[ending](path.read_bytes()))
    pairs, dropped = read(packed)
    assert pairs == [
        ("dog", "mbwa"), ("dog", "jibwa"), ("dog", "mbwa"), ("hound", "mbwa"), ("bark", "mbwa")
    ]  # fmt: skip
    assert dropped == {
        "translation without a word": 1, "definition, not a translation": 1, "inflected form": 2,
    }  # fmt: skip
    assert read(packed, "zh")[0] == [("dog", "狗")]


def test_other_editions_of_wiktionary(tmp_path: Path) -> None:
    chien = {
        "word": "chien", "lang": "Français", "lang_code": "fr",
        "translations": [{"lang_code": "en", "word": "dog"}, {"lang_code": "sw", "word": "mbwa"}],
    }  # fmt: skip
    dog = {"word": "dog", "lang": "Anglais", "lang_code": "en", "senses": [{"glosses": ["Chien."]}]}
    path = write_lines(tmp_path / "fr-extract.jsonl", chien, dog)
    assert read(path, "fr")[0] == [("dog", "chien"), ("dog", "Chien")]
    assert read(path, "sw")[0] == []  # a French gloss is not Swahili
    # As the source language, French words have translations, and others have French glosses.
    assert read(path, "sw", "fr")[0] == [("chien", "mbwa")]
    assert read(path, "en", "fr")[0] == [("chien", "dog"), ("Chien", "dog")]


def test_wiktionary_of_one_language_has_no_translations(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "kaikki-Swahili.jsonl", MBWA)
    assert ("hound", "mbwa") in read(path)[0]
    path = write_lines(tmp_path / "kaikki-Lingala.jsonl", {**MBWA, "lang_code": "ln"})
    assert ("hound", "mbwa") in read(path, "ln")[0]
    # In the Swahili edition, a Swahili word has a Swahili definition, which is not a translation.
    path = write_lines(tmp_path / "sw-extract.jsonl", {**MBWA, "lang": "Kiswahili"})
    assert read(path)[0] == []


def test_broken_lines_of_wiktionary_are_counted(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "kaikki.jsonl", DOG, '{"lang_code": "sw", "word":', '["sw"]', "",
        {"lang_code": "sw"}, {"word": 3, "lang_code": "sw"},
        {"word": "a", "lang_code": "sw", "senses": 1, "translations": {"code": "sw"}},
        {"word": "a", "lang_code": "sw", "senses": [{"glosses": "text"}, 1]},
        '{"lang_code": "sw", "x": ' + "[" * 100_000 + "}",
    )  # fmt: skip
    with path.open("ab") as file:
        file.write(b'{"lang_code": "sw", "word": "\xff"}\n')
    pairs, dropped = read(path)
    assert pairs == [("dog", "mbwa"), ("dog", "jibwa")]
    assert dropped == {
        "translation without a word": 1, "not a JSON object": 3, "no word or language": 2,
        "sense without a gloss": 1, "not UTF-8": 1,
    }  # fmt: skip


def test_wiktionary_is_streamed(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "kaikki.jsonl", DOG, *[{"word": "x" * 1000}] * 5000, MBWA)
    entries = iter(read_entries(path, "sw").entries)
    assert next(entries).target == "mbwa"
    with path.open("r+b") as file:
        file.truncate(2 << 20)  # what was not read yet is not in memory
    assert [one.target for one in entries] == ["jibwa"]


@pytest.mark.parametrize(
    ("gloss", "language", "texts", "num_long"),
    [
        ("to run", "en", ["run"], 0),
        ("a dog (an animal (pet)), the hound", "en", ["dog", "hound"], 0),
        ("Chien, toutou ; cabot.", "fr", ["Chien", "toutou", "cabot"], 0),
        ("a veces", "es", ["a veces"], 0),
        ("one of those who walk at night", "en", [], 1),
        ("犬、狗", "ja", ["犬", "狗"], 0),
        ("人間の生活を助けるために飼われている動物", "ja", [], 1),
        ("", "en", [], 0),
    ],
)
def test_glosses_are_split(gloss: str, language: str, texts: list[str], num_long: int) -> None:
    assert split_gloss(gloss, language) == (texts, num_long)


def encode_number(number: int) -> str:
    letters = string.ascii_uppercase + string.ascii_lowercase + string.digits + "+/"
    text = letters[number % 64]
    while number := number // 64:
        text = letters[number % 64] + text
    return text


def write_dict(folder: Path, name: str, articles: list[str], ending: str = ".dict.dz") -> Path:
    """Write articles as dictfmt and dictzip do."""
    index, text = [], b""
    for number, article in enumerate(articles):
        data = article.encode()
        place = f"{encode_number(len(text))}\t{encode_number(len(data))}"
        index += [f"{'00databaseinfo' if number == 0 else 'word'}\t{place}"] * 2
        text += data
    (folder / f"{name}.index").write_text("\n".join(index) + "\n", encoding="utf-8")
    path = folder / f"{name}{ending}"
    path.write_bytes(gzip.compress(text) if ending.endswith("dz") else text)
    return path


ARTICLES = [
    "00-database-info\nEnglish-Swahili, a sample\n",
    "dog /dɒɡ/ <n>\n\nmbwa\n",
    "absolve /x/ <VT>\n1. samehe, achilia~huru\n      \"The priest absolved him.\"\n2. ondolea\n",
    "vulture /vˈʌltʃə/\ntai <masc> [zool.]\n   Synonym: {buzzard}\n see: {vultures}\n",
    " [ichi1] color /x/,  (rare (US)) colour /y/\n(noun)\nrangi\nwhat light looks like\n",
    "democracy /x/\nserikali ya watu kwa ajili ya watu\n",
    "/x/\nmoja\n",
]  # fmt: skip


@pytest.mark.parametrize("ending", [".dict.dz", ".dict"])
def test_freedict_for_dict_servers(tmp_path: Path, ending: str) -> None:
    path = write_dict(tmp_path, "freedict-eng-swh", ARTICLES, ending)
    expected = [
        ("dog", "mbwa"), ("absolve", "samehe"), ("absolve", "achilia huru"), ("absolve", "ondolea"),
        ("vulture", "tai"), ("color", "rangi"), ("colour", "rangi"),
    ]  # fmt: skip
    reasons = {"definition, not a translation": 1, "no translation": 1, "no headword": 1}
    assert read(path) == (expected, reasons)
    assert read(tmp_path / "freedict-eng-swh.index") == (expected, reasons)


def test_freedict_from_the_language_is_reversed(tmp_path: Path) -> None:
    path = write_dict(tmp_path, "freedict-swh-eng", [ARTICLES[0], "kimbia /x/ <v>\nto run, flee\n"])
    assert read(path)[0] == [("run", "kimbia"), ("flee", "kimbia")]


@pytest.mark.parametrize("damage", ["no index", "cut", "not gzip"])
def test_damaged_freedict_is_an_error(tmp_path: Path, damage: str) -> None:
    path = write_dict(tmp_path, "eng-swh", ARTICLES)
    if damage == "no index":
        path.with_name("eng-swh.index").unlink()
    elif damage == "cut":
        path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-20]))
    else:
        path.write_bytes(b"text")
    with pytest.raises(MetaXLMError, match="eng-swh"):
        read(path)


TEI = """<?xml version="1.0" encoding="UTF-8"?>
<TEI xmlns="http://www.tei-c.org/ns/1.0"><teiHeader/><text><body>
<entry><form><orth>dog</orth><pron>dɒɡ</pron></form>
 <sense><cit type="trans"><quote>mbwa</quote></cit>
  <cit type="example"><quote>a good dog</quote>
   <cit type="trans"><quote>mbwa mzuri</quote></cit></cit>
  <sense><cit type="translation" xml:lang="sw"><quote>ji<hi>bwa</hi></quote></cit></sense>
 </sense></entry>
<entry><form><orth>colour</orth><orth>color</orth></form>
 <sense><cit type="trans"><quote>rangi</quote></cit></sense></entry>
<entry><form><orth>nothing</orth></form><sense><def>absence</def></sense></entry>
</body></text></TEI>
"""


@pytest.mark.parametrize("ending", PACKERS)
def test_freedict_tei(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"eng-swh.tei{ending}"
    path.write_bytes(PACKERS[ending](TEI.encode()))
    pairs, dropped = read(path)
    assert pairs == [("dog", "mbwa"), ("dog", "jibwa"), ("colour", "rangi"), ("color", "rangi")]
    assert dropped == {"no translation": 1}


def test_damaged_tei_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "eng-swh.tei"
    path.write_text(TEI[:-40], encoding="utf-8")
    with pytest.raises(MetaXLMError, match="cannot be read"):
        read(path)


def test_panlex_joins_two_tables_by_meaning(tmp_path: Path) -> None:
    head = "id\tlangvar\ttxt\ttxt_degr\tmeaning\tlangvar_uid\n"
    english = "1\t1\tdog\tdog\t7\teng-000\n1\t1\tdog\tdog\t8\teng-000\n2\t1\tcur\tcur\t8\teng-000\n"
    (tmp_path / "eng.tsv").write_text(head + english, encoding="utf-8")
    swahili = "5\t9\tmbwa\tmbwa\t7\tswh-000\n5\t9\tmbwa\tmbwa\t8\tswh-000\nbroken\n"
    path = tmp_path / "swh.tsv"
    path.write_text(head + swahili, encoding="utf-8")
    found = read_entries(path, "sw")
    weights = {(one.source, one.target): one.weight for one in found.entries}
    assert weights == {("dog", "mbwa"): 2.0, ("cur", "mbwa"): 1.0}
    assert found.dropped["not a row of the table"] == 1
    # One file may have both tables.
    path.write_text(head + swahili + head + english, encoding="utf-8")
    (tmp_path / "eng.tsv").unlink()
    assert sorted(read(path)[0]) == [("cur", "mbwa"), ("dog", "mbwa")]


@pytest.mark.parametrize(
    ("content", "pairs", "dropped"),
    [
        ("dog mbwa\nhouse nyumba\n", [("dog", "mbwa"), ("house", "nyumba")], {}),
        ("\ufeffhot dog\thot dogi\r\n", [("hot dog", "hot dogi")], {}),
        ("dog\tmbwa\t0.5\nhouse\tnyumba\tnoun\n", [("dog", "mbwa"), ("house", "nyumba")], {}),
        ("dog,mbwa\n\"hot, dry\",kavu\n", [("dog", "mbwa"), ("hot, dry", "kavu")], {}),
        (f"a,b\n{'a,b' * 5}\nx,{'y' * 200_000}\n", [("a", "b")], {"not two columns": 2}),
        ("dog\tmbwa; jibwa\n", [("dog", "mbwa"), ("dog", " jibwa")], {}),
        ("dog mbwa\nno\na b c\n\tx\ny\t\n", [("dog", "mbwa")], {"not two columns": 4}),
    ],
)  # fmt: skip
def test_lists(tmp_path: Path, content: str, pairs: Pairs, dropped: dict[str, int]) -> None:
    path = tmp_path / "words.txt"
    path.write_text(content, encoding="utf-8")
    assert read(path) == (pairs, dropped)


def test_third_column_is_a_weight(tmp_path: Path) -> None:
    path = tmp_path / "words.tsv"
    path.write_text("dog\tmbwa\t0.5\nhouse\tnyumba\tinf\n", encoding="utf-8")
    assert [one.weight for one in read_entries(path, "sw").entries] == [0.5, 1.0]


def write_list(path: Path, *, reverse: bool, words: str | None = None) -> Path:
    pairs = zip(SWAHILI, words.split() if words else SWAHILI.values(), strict=True)
    lines = (f"{b}\t{a}\n" if reverse else f"{a}\t{b}\n" for a, b in pairs)
    path.write_text("".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", ["en-sw.txt", "words.txt", "eng_swh.tsv"])
def test_exchanged_columns_are_an_error(tmp_path: Path, name: str) -> None:
    forward = write_list(tmp_path / name, reverse=False)
    assert read(forward)[0] == list(SWAHILI.items())
    backward = write_list(tmp_path / name, reverse=True)
    with pytest.raises(MetaXLMError, match=r"in 3 of 3 groups.*`mbwa` = `dog`.*rename"):
        read(backward)


def test_the_name_of_a_file_gives_its_direction(tmp_path: Path) -> None:
    path = write_list(tmp_path / "sw-en.txt", reverse=True)
    assert read(path)[0] == list(SWAHILI.items())
    with pytest.raises(MetaXLMError, match="wrong direction"):
        read(write_list(path, reverse=False))
    with pytest.raises(MetaXLMError, match="named as a dictionary of en and de, not of en and sw"):
        read(write_list(tmp_path / "en-de.txt", reverse=False))


def test_exchanged_columns_of_a_language_that_the_identifier_lacks(tmp_path: Path) -> None:
    path = write_list(tmp_path / "en-ln.txt", reverse=False, words=LINGALA)
    assert len(read(path, "ln")[0]) == len(SWAHILI)
    with pytest.raises(MetaXLMError, match="wrong direction"):
        read(write_list(path, reverse=True, words=LINGALA), "ln")


def test_words_in_a_third_script_do_not_decide_the_direction(tmp_path: Path) -> None:
    path = tmp_path / "en-vi.txt"
    path.write_text("".join(f"{word}\t国{word[0]}西\n" for word in SWAHILI), encoding="utf-8")
    assert len(read(path, "vi")[0]) == len(SWAHILI)


def test_exchanged_columns_by_script(tmp_path: Path) -> None:
    words = ["собака", "дом", "вода", "книга", "дерево", "дорога", "школа", "учитель"]
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{word} x{n}\n" for n, word in enumerate(words * 6)), "utf-8")
    with pytest.raises(MetaXLMError, match="wrong direction"):
        read(path, "ru")


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("en-sw.txt", ("en", "sw")), ("en_sw.tsv.gz", ("en", "sw")), ("swh-eng.tei", ("sw", "en")),
        ("freedict-eng-swh.dict.dz", ("en", "sw")), ("en-sw.0-5000.txt", ("en", "sw")),
        ("words.txt", None), ("my-list.txt", None), ("en_sw-arab.tsv", None),
    ],
)  # fmt: skip
def test_direction_of_names(name: str, direction: tuple[str, str] | None) -> None:
    assert find_direction(Path(name), ("en", "sw")) == direction


def test_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("en-sw.txt", "en-sw.0-5000.txt", "en-sw.json", "en-de.txt", "deep/en_sw.tsv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    write_dict(tmp_path, "freedict-swh-eng", ARTICLES)
    names = [path.name for path in list_files(tmp_path, "sw", "en")]
    assert sorted(names) == ["en-sw.txt", "en_sw.tsv", "freedict-swh-eng.dict.dz"]
    with pytest.raises(MetaXLMError, match=r"no file named like en-te\.txt"):
        list_files(tmp_path, "te", "en")
