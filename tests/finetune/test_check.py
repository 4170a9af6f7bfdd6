"""`metaxlm data check` on small folders of each layout, with everything that may be wrong."""

from __future__ import annotations

import bz2
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.check import Finding, _make_table, check_data, render
from metaxlm.finetune.data_sets import DATA_SETS
from metaxlm.languages import task_languages
from tests.finetune.conftest import write

POS = "I\tPRON\nsee\tVERB\n\nNo\tINTJ\n"
ENTITIES = "Old\tB-LOC\nTown\tI-LOC\n\nis\tO\n"
PAIRS = "a b\tc d\tneutral\ne f\tg h\tentailment\n"
PARAPHRASES = "a b\tc d\t1\ne f\tg h\t0\n"
REVIEW = "<item><text>x</text><rating>{}</rating></item>\n"
REVIEWS = f"<items>{REVIEW.format(5.0)}{REVIEW.format(1.0)}</items>\n"


def put(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, text in files.items():
        write(folder / name, text)
    return folder


def squad(answers: Sequence[str], prefix: str = "1") -> str:
    questions = [
        {"id": f"{prefix}-{k}", "question": "?", "answers": [{"text": text, "answer_start": 0}]}
        for k, text in enumerate(answers)
    ]
    paragraphs = [{"context": "abc", "qas": questions}]
    return json.dumps({"version": "1.1", "data": [{"paragraphs": paragraphs}]}, indent=1)


def find(folder: Path, name: str) -> Finding:
    return next(f for f in check_data(folder).findings if f.data_set.name == name)


def counts(finding: Finding, place: int = 0) -> dict[str, dict[str, int]]:
    return {name: split.examples for name, split in finding.places[place].splits.items()}


def show(folder: Path, width: int = 100) -> str:
    console = Console(width=width, highlight=False, color_system=None)
    with console.capture() as capture:
        console.print(render(check_data(folder)))
    return capture.get()


def complete_udpos() -> dict[str, str]:
    tests = {f"udpos/test-{code}.tsv": POS for code in task_languages("udpos")}
    return {"udpos/train-en.tsv": POS, "udpos/dev-en.tsv": POS, **tests}


def test_empty_folder_names_every_home(tmp_path: Path) -> None:
    report = check_data(tmp_path)
    assert [finding.status for finding in report.findings] == ["missing"] * len(DATA_SETS)
    text = show(tmp_path, 200)
    for known in DATA_SETS:
        assert known.home in text
        assert all(layout.shape in text for layout in known.layouts)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(MetaXLMError, match=r"data: no such folder; name the folder"):
        check_data(tmp_path / "data")
    with pytest.raises(MetaXLMError, match=r"data: not a folder; name the folder"):
        check_data(write(tmp_path / "data", "x"))


class TestPlaces:
    def test_at_any_depth(self, tmp_path: Path) -> None:
        put(tmp_path / "a/b/c/d", complete_udpos())
        finding = find(tmp_path, "UD POS")
        assert (finding.status, finding.reading) == ("complete", "yes")
        assert finding.places[0].usage == f"evaluation.data: {tmp_path}"
        assert counts(finding)["test"]["de"] == 2
        assert find(tmp_path / "a/b/c/d/udpos", "UD POS").status == "complete"

    def test_two_copies_are_not_added_up(self, tmp_path: Path) -> None:
        put(tmp_path / "one", {"udpos/test-de.tsv": POS})
        finding = find(put(tmp_path, {"two/udpos/test-de.tsv": POS}), "UD POS")
        assert [counts(finding, k) for k in (0, 1)] == [{"test": {"de": 2}}] * 2
        put(tmp_path, {"xquad.de.json": squad("a"), "copy/xquad.de.json": squad("a")})
        assert find(tmp_path, "XQuAD").short == {"test": {"de": (1, 1190)}}

    def test_a_circular_link(self, tmp_path: Path) -> None:
        put(tmp_path, {"udpos/test-de.tsv": POS})
        (tmp_path / "udpos" / "again").symlink_to(tmp_path)
        assert len(find(tmp_path, "UD POS").places) == 1

    def test_what_is_missing(self, tmp_path: Path) -> None:
        files = complete_udpos()
        del files["udpos/test-yo.tsv"], files["udpos/train-en.tsv"]
        finding = find(put(tmp_path, files), "UD POS")
        assert finding.status == "partial"
        assert finding.missing == {"train": ("en",), "test": ("yo",)}

    def test_other_languages_are_not_opened(self, tmp_path: Path) -> None:
        finding = find(put(tmp_path, {"panx/dev-de.tsv": ENTITIES, "panx/dev-qu.tsv": ""}), "PAN-X")
        assert counts(finding) == {"dev": {"de": 2}}
        assert finding.damages == []
        assert "languages that the paper does not use, not checked: qu" in finding.notes[-1]
        assert finding.others == ["qu"]
        table = _make_table([finding])
        assert list(table.columns[2].cells) == ["1 of 40 + 1"]


class TestLayouts:
    """One small tree for each; the data set, its counts, and whether metaxlm reads it."""

    @pytest.mark.parametrize(
        ("files", "name", "expected", "reading"),
        [
            ({"panx_datasets/de/dev": ENTITIES}, "PAN-X", {"dev": {"de": 2}}, "yes"),
            (
                {"ud/UD_German-GSD/de_gsd-ud-test.conllu": "# text = a\n1\ta" + "\t_" * 8 + "\n\n"},
                "UD POS", {"test": {"de": 1}}, "no",
            ),
            (
                {
                    "mlqa/MLQA_V1/dev/dev-context-de-question-de.json": squad("ab"),
                    "mlqa/MLQA_V1/test/test-context-de-question-de.json": squad("abc"),
                    "mlqa/MLQA_V1/test/test-context-de-question-en.json": squad("abc"),
                },
                "MLQA", {"dev": {"de": 2}, "test": {"de": 3}}, "yes",
            ),
            (
                {
                    "tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.te.dev.json": squad("a", "telugu"),
                    "tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.en.train.json": squad("ab"),
                },
                "TyDiQA-GoldP", {"dev": {"te": 1}, "train": {"en": 2}}, "yes",
            ),
            (
                {
                    "XNLI-1.0/xnli.dev.tsv": "language\tgold_label\tsentence1\tsentence2\n"
                    "de\tneutral\ta\tb\nde\tneutral\ta\tb\nzh\tentailment\ta\tb\nro\tneutral\ta\tb\n",
                    "multinli_1.0/multinli_1.0_train.txt": "gold_label\tsentence1\tsentence2\t"
                    "label1\tlabel2\nneutral\ta\tb\tneutral\n-\ta\tb\tneutral\t\n",
                },
                "XNLI", {"dev": {"de": 2, "zh": 1}, "train": {"en": 1}}, "yes",
            ),
            (
                {
                    "x-final/fr/dev_2k.tsv": "id\tsentence1\tsentence2\tlabel\n1\ta\tb\t0\n",
                    "x-final/fr/translated_train.tsv": "id\tsentence1\tsentence2\tlabel\n",
                    "pawsx/test-derived-en.tsv": PARAPHRASES,
                },
                "PAWS-X", {"dev": {"fr": 1}, "test (derived)": {"en": 2}}, "yes",
            ),
            (
                {
                    "cls-acl10-unprocessed/jp/dvd/train.review": REVIEWS,
                    "cls-acl10-unprocessed/de/dvd/train.review": REVIEWS,
                    "cls-acl10-unprocessed/de/dvd/unlabeled.review": "",
                },
                "Amazon reviews", {"dvd train": {"de": 2, "ja": 2}}, "yes",
            ),
            (
                {"tatoeba/v1/tatoeba.deu-eng.deu": "x\n", "tatoeba/v1/tatoeba.deu-eng.eng": "1\n"},
                "Tatoeba", {"test": {"de": 1}}, "no",
            ),
            (
                {
                    "wordalign/en-hi/test.en": "a\nb\n",
                    "wordalign/en-hi/test.hi": "x\ny\n",
                    "wordalign/en-hi/alignv2.txt": "26 1 1\r\n30 1 1\r\n",
                },
                "Word alignment", {"test": {"hi": 2}}, "yes",
            ),
            (
                {
                    "data/crosslingual/dictionaries/en-de.txt": "the die\nthe der\na ein",
                    "data/crosslingual/dictionaries/fr-en.txt": "le\tthe\n",
                    "data/crosslingual/dictionaries/en-de.0-5000.txt": "the die\n",
                },
                "MUSE", {"en-XX": {"de": 3}, "XX-en": {"fr": 1}}, "yes",
            ),
        ],
    )  # fmt: skip
    def test_layout(
        self,
        tmp_path: Path,
        files: dict[str, str],
        name: str,
        expected: dict[str, dict[str, int]],
        reading: str,
    ) -> None:
        finding = find(put(tmp_path, files), name)
        found: dict[str, dict[str, int]] = {}
        for place in range(len(finding.places)):
            found |= counts(finding, place)
        assert found == expected
        assert (finding.damages, finding.reading, finding.status) == ([], reading, "partial")

    def test_dumps_are_measured(self, tmp_path: Path) -> None:
        dump = bz2.compress(b"<mediawiki/>")
        files = {
            "dewiki/dewiki-20240101-pages-articles-multistream.xml.bz2": dump,
            "dewiki/dewiki-20240101-pages-articles-multistream-index.txt.bz2": dump,
            "dewiki/dewiki-20240101-pages-articles1.xml-p1p297.bz2": dump * 2,
            "dewiki/simplewiki-20240101-pages-articles.xml.bz2": dump,
        }
        finding, size = find(put(tmp_path, files), "Wikipedia"), len(dump)
        assert counts(finding) == {"dump (multistream)": {"de": size}, "dump": {"de": 2 * size}}
        assert "de" not in finding.missing["dump|dump (multistream)|parquet"]

    def test_parquet_rows(self, tmp_path: Path) -> None:
        folder = tmp_path / "20231101.sw"
        folder.mkdir()
        pq.write_table(pa.table({"text": ["a", "b", "c"]}), folder / "train-00000-of-00001.parquet")
        finding = find(tmp_path, "Wikipedia")
        assert counts(finding) == {"parquet": {"sw": 3}}
        assert finding.places[0].usage == f"corpus: {{source: parquet, path: {tmp_path}}}"
        pq.write_table(pa.table({"title": ["a"]}), folder / "train-00000-of-00001.parquet")
        assert "no column `text`; it has title" in find(tmp_path, "Wikipedia").damages[0]


class TestTraps:
    """What the published releases are known for."""

    @pytest.mark.parametrize(
        ("files", "name"),
        [
            ({"udpos/test-de.tsv": "I\nsee\n\nNo\n"}, "UD POS"),
            ({"xquad/xquad.de.json": squad(["", ""])}, "XQuAD"),
        ],
    )
    def test_blanked_labels(self, tmp_path: Path, files: dict[str, str], name: str) -> None:
        finding = find(put(tmp_path, files), name)
        assert (finding.status, finding.blanked) == ("partial", {"test": ("de",)})
        assert counts(finding) == {"test": {"de": 2}}
        assert "blanks" in finding.notes[0]
        assert "labels blanked: de" in show(tmp_path)

    def test_sorted_english_side(self, tmp_path: Path) -> None:
        lines = [f"{k:02d}\n" for k in range(30)]
        files = {"tatoeba/de-en.de": "x\n" * 30}
        finding = find(put(tmp_path, {**files, "tatoeba/de-en.en": "".join(lines)}), "Tatoeba")
        assert finding.blanked == {"test": ("de",)}
        assert any("line k does not translate line k" in note for note in finding.notes)
        shuffled = "".join(lines[::-1])
        finding = find(put(tmp_path, {"tatoeba/de-en.en": shuffled}), "Tatoeba")
        assert finding.blanked == {}

    def test_subset_and_whole(self, tmp_path: Path) -> None:
        put(tmp_path, {"squad/train-v1.1-subset.json": squad("ab")})
        assert "train: en 2 of 87,599" in show(tmp_path)
        put(tmp_path, {"squad/train-v1.1.json": squad("abc")})
        assert counts(find(tmp_path, "SQuAD 1.1")) == {"train": {"en": 3}}

    @pytest.mark.parametrize(
        ("file", "name", "note"),
        [
            ("squad/train-v2.0.json", "SQuAD 1.1", "trains on 1.1"),
            ("cls-acl10-processed/de/books/train.processed", "Amazon reviews", "not the texts"),
            ("dictionaries/en-de.0-5000.txt", "MUSE", "parts of en-XX.txt"),
            ("XNLI-1.0.zip", "XNLI", "is packed; unpack it"),
        ],
    )
    def test_look_alikes(self, tmp_path: Path, file: str, name: str, note: str) -> None:
        finding = find(put(tmp_path, {file: "x"}), name)
        assert finding.status == "missing"
        assert note in finding.notes[0]


class TestDamages:
    @pytest.mark.parametrize(
        ("file", "text", "complaint"),
        [
            ("udpos/dev-en.tsv", "", ":1: the file is empty"),
            ("udpos/dev-en.tsv", "a\tX\nb\tWORD\n", ":2: unknown label 'WORD'"),
            ("xquad/xquad.de.json", squad("ab")[:-20], ": not valid JSON"),
            ("cls/de/dvd/test.review", "<items>\n</items>\n", ":1: no <item>"),
            ("tatoeba/tatoeba.deu-eng.deu", "x\n", "tatoeba.deu-eng.eng: no such file"),
            ("muse/en-de.txt", "the\n", ": 1 line is not a word pair"),
            ("20231101.de/a.parquet", "PAR1", ": cannot be read"),
            ("dewiki-latest-pages-articles.xml.bz2", "<html>", ": does not start as a .bz2"),
        ],
    )
    def test_named_with_file_and_line(
        self, tmp_path: Path, file: str, text: str, complaint: str
    ) -> None:
        put(tmp_path, {file: text})
        damaged = [f for f in check_data(tmp_path).findings if f.damages]
        assert [finding.status for finding in damaged] == ["damaged"]
        assert str((tmp_path / file).parent) in damaged[0].damages[0]
        assert complaint in damaged[0].damages[0]

    def test_a_broken_link(self, tmp_path: Path) -> None:
        (tmp_path / "xnli").mkdir()
        (tmp_path / "xnli" / "dev-de.tsv").symlink_to(tmp_path / "gone")
        assert "no such file" in find(tmp_path, "XNLI").damages[0]

    def test_json(self, tmp_path: Path) -> None:
        put(tmp_path, {"xnli/dev-de.tsv": PAIRS, "xnli/test-de.tsv": "a\tb\n"})
        values = json.loads(json.dumps(check_data(tmp_path).describe()))
        entry = next(row for row in values["data_sets"] if row["name"] == "XNLI")
        assert entry["status"] == "partial"
        assert entry["places"][0]["splits"]["dev"] == {"examples": {"de": 2}, "unlabeled": {}}
        assert entry["blanked"] == {"test": ["de"]}
        assert entry["short"]["dev"]["de"] == {"found": 2, "expected": 2490}
