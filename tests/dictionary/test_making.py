"""Making a dictionary file, in Python and by command, and looking at it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from transformers import PreTrainedTokenizerBase

import metaxlm as package
from metaxlm.dictionary.coverage import describe_origins, measure_text, measure_vocabulary
from metaxlm.dictionary.entries import Entries, Entry
from metaxlm.dictionary.making import make_dictionary
from metaxlm.errors import MetaXLMError
from metaxlm.init.dictionaries import Dictionary, WordPairs, load_dictionaries
from metaxlm.manifest import read_sealed
from metaxlm.sentences.translations import Lexicon, normalize_english
from tests.commands import Command
from tests.dictionary.test_readers import SWAHILI, write_list

DATA = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def metaxlm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path, capsys)


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name.replace("_", "-").replace("--", ".")).write_text(text, encoding="utf-8")


def dictionary(language: str, *words: str) -> Dictionary:
    pairs = WordPairs("test", "\n".join(words), "\n".join("x" for _ in words))
    return Dictionary(language, (pairs,))


def test_files_are_readable_by_all_that_use_dictionaries(tmp_path: Path) -> None:
    write(tmp_path, en_sw__txt="dog jibwa\ndog mbwa\nhot dog\tsoseji\n", sw__txt="mbwa na mbwa\n")
    output = tmp_path / "out" / "en-sw.txt"
    induced = Entries("induced", "en", "sw", [Entry("cat", "paka", 0.7)])
    merged = package.make_dictionary(
        [tmp_path / "en-sw.txt", induced], "sw", output, text=tmp_path / "sw.txt"
    )
    loaded = load_dictionaries(output.parent, ["sw"]).by_language["sw"]
    assert [pair[::-1] for pair in loaded] == [
        (one.source, one.target.lower()) for one in merged.entries
    ]
    assert next(word for word, english in loaded if english == "dog") == "mbwa"
    lexicon = Lexicon(loaded, normalize_english)
    assert lexicon.find("dog")[0][0] == "mbwa"
    assert lexicon.find("hot dog") == [("soseji", 1.0)]
    assert lexicon.find("cat") == [("paka", 1.0)]


def test_the_origin_of_every_entry_is_kept(tmp_path: Path) -> None:
    write(tmp_path, en_sw__txt="dog mbwa\nhouse nyumba\n", b__txt="dog mbwa\nbroken\n")
    output = tmp_path / "out" / "en-sw.txt"
    make_dictionary([tmp_path / "en-sw.txt", tmp_path / "b.txt"], "sw", output)
    rows = pq.read_table(output.with_suffix(".parquet")).to_pylist()
    lines = output.read_text("utf-8").splitlines()
    assert [f"{row['source']}\t{row['target']}" for row in rows] == lines
    origins = {(row["source"], row["target"]): row["origins"] for row in rows}
    assert origins["dog", "mbwa"] == [0, 1] and origins["house", "nyumba"] == [0]
    facts = read_sealed(output.with_suffix(".json"))
    names = [Path(one["name"]).name for one in facts["sources"]]
    assert names == ["en-sw.txt", "b.txt", "function words of metaxlm"]
    assert facts["sources"][1]["dropped"] == {"not two columns": 1}
    assert [one["bytes"] for one in facts["inputs"].values()] == [22, 16]
    assert facts["entries"] == len(lines) and set(facts["files"]) == {"en-sw.txt", "en-sw.parquet"}


def test_function_words_are_added_to_entries_only(tmp_path: Path) -> None:
    write(tmp_path, a__txt="dog mbwa\n", b__txt="собака mbwa\n")
    output = tmp_path / "out" / "en-sw.txt"
    make_dictionary(tmp_path / "a.txt", "sw", output)
    assert "and\tna\n" in output.read_text("utf-8")
    with pytest.raises(MetaXLMError, match="no entry for Swahili"):
        make_dictionary(tmp_path / "b.txt", "sw", tmp_path / "other" / "en-sw.txt")
    assert not (tmp_path / "other").exists()


def test_command(metaxlm: Command, tmp_path: Path) -> None:
    write_list(tmp_path / "en-sw.txt", reverse=False)
    for name in ("make", None):
        output = tmp_path / f"out-{name}" / "en-sw.txt"
        words = [word for word in ("dictionary", name) if word]
        code, printed, errors = metaxlm(*words, "en-sw.txt", "--language", "sw", "--output", output)
        assert (code, errors) == (0, "")
        assert "only here" in printed and f"{output}: " in printed.replace("\n", "")
        assert set(output.read_text("utf-8").splitlines()) >= {
            f"{a}\t{b}" for a, b in SWAHILI.items()
        }


def test_show(
    metaxlm: Command, tmp_path: Path, multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    write_list(tmp_path / "words.txt", reverse=False)
    (tmp_path / "text.txt").write_text("Mbwa, maji (nyumba) kompyuta! Kompyuta\n", encoding="utf-8")
    multilingual_tokenizer.save_pretrained(tmp_path / "vocabulary")
    metaxlm("dictionary", "words.txt", "--language", "sw", "--output", "en-sw.txt")
    code, printed, errors = metaxlm(
        "dictionary", "show", "en-sw.txt", "--text", "text.txt", "--vocabulary", "vocabulary"
    )
    assert (code, errors) == (0, "")
    rows = {" ".join(line.split()) for line in printed.splitlines()}
    assert "words of text.txt 3 of 5 60.0%" in rows
    assert "kompyuta 2" in rows
    assert any(row.startswith("words.txt 42 42 ") for row in rows)
    assert any(row.startswith("words here that are one token ") for row in rows)


def test_sources_of_a_folder(metaxlm: Command, tmp_path: Path) -> None:
    write(tmp_path, en_sw__txt="dog mbwa\nbroken\n", en_tr__txt="dog köpek\n")
    for language in ("sw", "tr"):
        output = f"out/en-{language}.txt"
        metaxlm("dictionary", f"en-{language}.txt", "--language", language, "--output", output)
    code, printed, errors = metaxlm("dictionary", "show", "out")
    rows = [line.split() for line in printed.splitlines()]
    assert (code, errors) == (0, "")
    assert ["sw:", "en-sw.txt", "1", "1", "1", "1"] in rows
    assert ["tr:", "en-tr.txt", "1", "1", "1", "0"] in rows
    assert "not two columns: 1" in " ".join(
        metaxlm("dictionary", "show", "out/en-sw.txt")[1].split()
    )
    assert "name a file" in metaxlm.complaint("dictionary", "show", ".")


def test_coverage_of_a_folder(metaxlm: Command, tmp_path: Path) -> None:
    for name in ("words", "texts"):
        (tmp_path / name).mkdir()
    write(tmp_path, a__txt="Mbwa\n")
    write(
        tmp_path / "words", en_sw__txt="dog mbwa\n", en_tr__txt="dog köpek\n", en_ko__txt="a 개\n"
    )
    write(tmp_path / "texts", sw__txt="Mbwa na Linux\n", tr__txt="Köpek\n", en__txt="Linux 2\n" * 5)
    show = ("dictionary", "show", "words", "--text")
    code, printed, errors = metaxlm(*show, "texts")
    rows = [line.split() for line in printed.splitlines()]
    assert (code, errors) == (0, "")
    assert ["sw", "1", "1", "words", "33.3%", "33.3%"] in rows
    assert ["tr", "1", "1", "words", "100.0%", "0.0%"] in rows
    assert ["ko", "1", "1"] in rows
    assert ["mean", "66.7%", "16.7%"] in rows
    assert "a folder for a folder" in metaxlm.complaint(*show, "a.txt")
    assert "no text of ko, sw, tr" in metaxlm.complaint(*show, "words")
    assert "a folder" in metaxlm.complaint("dictionary", "show", "words", "--vocabulary", "v")


def test_third_language_by_command(metaxlm: Command, tmp_path: Path) -> None:
    write(tmp_path, en_fr__txt="dog chien\ncat chat\n", fr_ln__txt="chien mbwa\neau mai\n")
    code, printed, errors = metaxlm(
        "dictionary", "en-fr.txt", "fr-ln.txt", "--language", "ln", "--pivot", "fr",
        "--output", "en-ln.txt",
    )  # fmt: skip
    assert (code, errors) == (0, "")
    assert "1 of 2 words of ln (50%) have no translation into English; 1 entries" in printed
    assert (tmp_path / "en-ln.txt").read_text("utf-8") == "dog\tmbwa\n"
    assert json.loads((tmp_path / "en-ln.json").read_text("utf-8"))["pivot"]["joined"] == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["b.txt", "--output", "en-sw.txt"], "no entry for Swahili"),
        (["empty.txt", "--output", "en-sw.txt"], "empty.txt: no entry"),
        (["missing.txt", "--output", "en-sw.txt"], "missing.txt: no such file"),
        (["a.txt", "--output", "words.txt"], "name it en-sw.txt"),
        (["en-sw.txt", "--output", "en-sw.txt"], "is also an input"),
        ([".", "--output", "en-sw.txt"], "is also an input"),
        (["backward.txt", "--output", "en-sw.txt"], "wrong direction"),
        (["a.txt", "--output", "out/en-sw.txt", "--language", "te"], "name it en-te.txt"),
        ([".", "--output", "out/en-te.txt", "--language", "te"], "no file named like en-te.txt"),
        (["a.txt", "--output", "en-sw.txt", "--pivot", "fr"], "name files after their languages"),
        (["en-fr.txt", "--output", "en-sw.txt", "--pivot", "fr"], "no dictionary of French and"),
        (["a.txt", "--output", "en-sw.txt", "--text", "missing.txt"], "missing.txt"),
    ],
)
def test_bad_input_is_one_line(
    metaxlm: Command, tmp_path: Path, arguments: list[str], complaint: str
) -> None:
    write(tmp_path, a__txt="dog mbwa\n", b__txt="dog собака\n", en_fr__txt="dog chien\n")
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    write_list(tmp_path / "backward.txt", reverse=True)
    before = sorted(tmp_path.rglob("*"))
    if complaint == "is also an input":
        write(tmp_path, en_sw__txt="dog mbwa\n")
        before = sorted(tmp_path.rglob("*"))
    assert complaint in metaxlm.complaint("dictionary", "--language", "sw", *arguments)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("language", "words", "line", "share", "missing"),
    [
        ("sw", ("mbwa", "ng'ombe"), "Mbwa na ng’ombe, 12 mbwa.", 3 / 4, {"na": 1}),
        ("fr", ("eau",), "L'eau !", 1 / 2, {"l": 1}),
        ("fr", ("l'",), "L’eau !", 1 / 2, {"eau": 1}),
        ("vi", ("ngôn ngữ", "tôi"), "Tôi ngôn ngữ ngữ", 3 / 4, {"ngữ": 1}),
        ("ru", ("дом",), "Дом Windows API и", 1 / 2, {"и": 1}),
        ("ja", ("犬", "猫です"), "犬は猫です。12 API", 4 / 5, {"は": 1}),
    ],
)
def test_coverage_of_text(
    language: str, words: tuple[str, ...], line: str, share: float, missing: dict[str, int]
) -> None:
    found = measure_text(dictionary(language, *words), [line])
    assert found.share == pytest.approx(share)
    assert found.missing == missing


def test_entries_by_source(tmp_path: Path) -> None:
    for name in ("muse", "made", "list"):
        (tmp_path / name).mkdir()
    (tmp_path / "muse" / "en-sq.txt").write_text("dog qen\ncat mace\nhouse shtepi\n")
    (tmp_path / "muse" / "en-sq.json").write_text("{}")  # of another program
    (tmp_path / "list" / "words.tsv").write_text("dog\tqen\nbread\tbuke\n")
    pivoted = Entries("through fr: en-fr.txt, fr-sq.txt", "en", "sq", [Entry("sun", "diell")])
    made = tmp_path / "made" / "en-sq.txt"
    make_dictionary([tmp_path / "list" / "words.tsv", pivoted], "sq", made)
    folders = [tmp_path / "muse", tmp_path / "made"]
    [found] = map(describe_origins, load_dictionaries(folders).by_language.values())
    function_words = found["sources"].pop("function words of metaxlm", 0)
    assert found["sources"] == {"words.tsv": 2, "through fr": 1, "muse": 3}
    assert found["entries"] == 6 + function_words


def test_coverage_of_a_vocabulary(
    tmp_path: Path, multilingual_tokenizer: PreTrainedTokenizerBase
) -> None:
    multilingual_tokenizer.save_pretrained(tmp_path)
    token = max(multilingual_tokenizer.get_vocab(), key=lambda token: len(token) * token.isascii())
    starts = [t[1:] for t in multilingual_tokenizer.get_vocab() if t[0] in "▁Ġ" and t[1:].isalpha()]
    word = next(one for one in starts if one.isascii() and one.islower())
    found = measure_vocabulary(
        dictionary("sw", word, "hakuna-neno", f"{word} {token}"), str(tmp_path)
    )
    assert (found.translated, found.words, found.single_tokens) == (1, 2, 1)
    assert 0 < found.tokens <= len(starts)


@pytest.mark.slow
def test_benchmark_stays_within_its_memory() -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "dictionary.py"
    command = [sys.executable, str(script), "--megabytes", "3", "--language", "fr"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+) MiB at most, ([\d,]+) entries", printed)
    assert found is not None and int(found[1]) < 400 and int(found[2].replace(",", "")) > 500


@pytest.mark.skipif(not DATA.is_dir(), reason="no shared data")
def test_real_lists_of_wiktionary_and_gatitos(tmp_path: Path) -> None:
    for name, member in (("wiktionary", "en-te.txt"), ("gatitos", "en_ln.tsv")):
        with tarfile.open(DATA / "dictionaries" / f"{name}.tar.xz") as archive:
            found = next(one for one in archive.getnames() if one.endswith(f"/{member}"))
            archive.extract(found, tmp_path, filter="data")
    telugu = make_dictionary(tmp_path / "wiktionary", "te", tmp_path / "out" / "en-te.txt")
    assert telugu.sources[0].kept > 0.9 * telugu.sources[0].entries > 10_000
    lingala = make_dictionary(tmp_path / "gatitos", "ln", tmp_path / "out" / "en-ln.txt")
    assert lingala.sources[0].kept > 3_000
