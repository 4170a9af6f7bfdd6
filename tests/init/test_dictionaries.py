from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionaries, load_dictionaries
from tests.init.conftest import WriteDictionaries


def _list(loaded: Dictionaries) -> dict[str, list[tuple[str, str]]]:
    return {name: list(one) for name, one in loaded.by_language.items()}


def test_the_file_name_gives_the_direction(write: WriteDictionaries) -> None:
    folder = write({"en-de.txt": "cat katze\n", "fr-en.txt": "chat cat\n", "de-fr.txt": "a b\n"})
    loaded = load_dictionaries(folder)
    assert _list(loaded) == {"de": [("katze", "cat")], "fr": [("chat", "cat")]}
    assert list(load_dictionaries(folder / "fr-en.txt").by_language) == ["fr"]
    german = load_dictionaries(write({"de-fr.txt": "katze chat\n"}), source_language="de")
    assert _list(german) == {"en": [("cat", "katze")], "fr": [("chat", "katze")]}


@pytest.mark.parametrize(
    ("content", "pairs"),
    [
        ("cat katze\ndog hund", [("katze", "cat"), ("hund", "dog")]),
        ("cat\tkatze\n", [("katze", "cat")]),
        ("good morning\tguten Tag\n", [("guten tag", "good morning")]),
        ("cat katze\ngood day\tguten  Tag\n", [("katze", "cat"), ("guten tag", "good day")]),
        ("cat   katze \n\n dog\thund\n", [("katze", "cat"), ("hund", "dog")]),
        ("\ufeffcat katze\r\ndog hund\r\n", [("katze", "cat"), ("hund", "dog")]),
        ("Cat KATZE\n", [("katze", "Cat")]),
        ("cat katze\ncat kater\n", [("katze", "cat"), ("kater", "cat")]),
        ("cat κατΣ\n", [("κατς", "cat")]),
    ],
)
def test_lines_separated_by_tabs_or_spaces(
    write: WriteDictionaries,
    capsys: pytest.CaptureFixture[str],
    content: str,
    pairs: list[tuple[str, str]],
) -> None:
    assert _list(load_dictionaries(write({"en-de.txt": content}))) == {"de": pairs}
    assert capsys.readouterr().out == ""


def test_broken_lines_are_counted_and_reported(
    write: WriteDictionaries, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["cat katze", "broken", "", "three words here", "dog\t", "dog hund", "a\tb\tc"]
    folder = write({"en-de.txt": "\n".join(lines), "en-fr.txt": "cat chat\nbroken\n"})
    loaded = load_dictionaries(folder)
    assert list(loaded.by_language["de"]) == [("katze", "cat"), ("hund", "dog")]
    printed = capsys.readouterr().out
    assert f"{folder / 'en-de.txt'}:2: 4 lines are not a word pair (left out)" in printed
    assert f"{folder / 'en-fr.txt'}:2: 1 line is not a word pair (left out)" in printed


@pytest.mark.parametrize(
    ("files", "languages", "message"),
    [
        ({"en-de.txt": ""}, None, r"en-de\.txt: an empty dictionary; a line is"),
        ({"en-de.txt": "\nkatze\nhund\n"}, None, r"en-de\.txt:2: 2 lines are not a word pair"),
        ({"en-de.txt": "mädchen\n".encode("latin-1")}, None, r"1: not UTF-8 \(byte 0xE4\)"),
        (
            {"en-fr.txt": "cat chat\n", "notes.txt": "x y\n"},
            ["ru", "de"],
            r"looked for en-de\.txt or de-en\.txt; en-ru\.txt or ru-en\.txt; .* for fr$",
        ),
        ({"notes.txt": "x y"}, None, r"looked for en-XX\.txt or XX-en\.txt; it has no dict"),
        ({"en-fr.txt": "cat chat"}, [*"abcdef"], "^[^\n]*and so on for 2 more[^\n]*$"),
        ({"en-de.txt.gz": gzip.compress(b"cat katze\n" * 100)[:-9]}, None, r"en-de\.txt\.gz: "),
    ],
)
def test_files_that_cannot_be_used(
    write: WriteDictionaries,
    files: dict[str, str | bytes],
    languages: list[str] | None,
    message: str,
) -> None:
    with pytest.raises(MetaXLMError, match=message):
        load_dictionaries(write(files), languages)


def test_a_language_goes_through_a_third_one(
    write: WriteDictionaries, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"en-de.txt": "cat katze\ncat kater\ncat mieze\ndog hund\n"}
    files |= {"en-fr.txt": "cat chat\nCAT minou\nhouse maison\n"}
    loaded = load_dictionaries(write(files), source_language="de")
    # Of several translations the first two; a word of the third language alone leads nowhere.
    pairs = [(word, german) for word in ("chat", "minou") for german in ("katze", "kater")]
    assert list(loaded.by_language["fr"]) == pairs
    assert list(loaded.by_language) == ["en", "fr"]
    assert "fr: no dictionary into de, goes through en (4 pairs)" in capsys.readouterr().out


def test_a_direct_dictionary_and_english_go_before_a_third_language(
    write: WriteDictionaries,
) -> None:
    expected = {"nl": ("chien", "hund"), "en": ("chat", "katze"), "fr-de": ("chiot", "welpe")}
    files: dict[str, str] = {}
    for step, more in {
        "nl": {"nl-de.txt": "hond hund\n", "nl-fr.txt": "hond chien\n"},
        "en": {"en-de.txt": "cat katze\n", "en-fr.txt": "cat chat\n"},
        "fr-de": {"fr-de.txt": "chiot welpe\n"},
    }.items():
        files |= more
        loaded = load_dictionaries(write(files), ["fr"], source_language="de")
        assert list(loaded.by_language["fr"]) == [expected[step]]


def test_no_way_through_a_third_language(write: WriteDictionaries) -> None:
    files = {"en-de.txt": "cat katze\n", "en-fr.txt": "dog chien\n"}
    with pytest.raises(MetaXLMError, match="fr-en and en-de have no word of en in common"):
        load_dictionaries(write(files), source_language="de")


def test_other_endings_parts_and_folders_in_the_folder(
    write: WriteDictionaries, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(
        {
            "en-de.0-5000.txt": "cat katze\n",
            "en-fr.tsv.gz": gzip.compress(b"cat\tchat\n"),
            "sw-en.dict.xz": lzma.compress(b"paka cat\n"),
            "notes.txt": "not a dictionary\n",
        }
    )
    (folder / "more").mkdir()
    (folder / "more" / "en-de.5000-6500.txt").write_text("dog hund\n")
    loaded = load_dictionaries(folder)
    assert _list(loaded) == {
        "de": [("katze", "cat"), ("hund", "dog")],
        "fr": [("chat", "cat")],
        "sw": [("paka", "cat")],
    }
    printed = capsys.readouterr().out
    assert f"{folder / 'notes.txt'}: not named like en-de.txt, not read (1 such files)" in printed


def test_the_order_of_folders_does_not_matter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in (("a", "cat katze\n"), ("b", "tomcat katze\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "en-de.txt").write_text(text)
        (tmp_path / name / "en-fr.txt").write_text(text)
    folders, wanted = [tmp_path / "a", tmp_path / "b"], ["ka", "de", "en"]
    forth = load_dictionaries(folders, wanted)
    assert forth == load_dictionaries([*reversed(folders), tmp_path], wanted)
    assert _list(forth) == {"de": [("katze", "cat"), ("katze", "tomcat")]}
    assert "no dictionary for ka" in capsys.readouterr().out
