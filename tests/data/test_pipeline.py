"""The whole path from files to shards: every source, any number of workers, every drop counted."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from metaxlm.data import pipeline
from metaxlm.data.pipeline import prepare_text, tokenize_text
from metaxlm.data.shards import open_shard
from metaxlm.data.text import (
    TextCounts,
    read_counts,
    read_lines,
    read_sentences,
    seal_text,
    write_lines,
)
from metaxlm.errors import MetaXLMError
from metaxlm.manifest import find_damage
from metaxlm.recipe import CleaningRecipe, CorpusRecipe, EngineRecipe

if TYPE_CHECKING:  # a process of a test imports this module
    from transformers import PreTrainedTokenizerBase as Tokenizer

ENGLISH = [
    "The cat sees a house. It is small.\nThe dog likes the river at night.",
    "My sister finds some bread.\nThe dog likes the river at night.\nThe end.",
]
GERMAN = ["Der alte Mann sieht das Haus. Er mag es.", "Meine Schwester kennt den Fluss."]
EXPECTED = {
    "en": [
        "The cat sees a house.", "It is small.", "The dog likes the river at night.",
        "My sister finds some bread.", "The end.",
    ],
    "de": ["Der alte Mann sieht das Haus.", "Er mag es.", "Meine Schwester kennt den Fluss."],
}  # fmt: skip
DOCUMENTS = {"en": ENGLISH, "de": GERMAN}


def write_source(folder: Path, source: str) -> None:
    """Write the two languages in the layout that people have."""
    for language, documents in DOCUMENTS.items():
        if source == "text":
            folder.mkdir(exist_ok=True)
            (folder / f"{language}.txt").write_text("\n\n".join(documents) + "\n")
        elif source == "jsonl":
            (folder / language).mkdir(parents=True, exist_ok=True)
            lines = [json.dumps({"text": text, "id": n}) for n, text in enumerate(documents)]
            (folder / language / "a.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
        elif source == "parquet":
            (folder / f"20231101.{language}").mkdir(parents=True, exist_ok=True)
            table = pa.table({"title": ["x"] * len(documents), "text": documents})
            pq.write_table(table, folder / f"20231101.{language}" / "train-00000-of-00001.parquet")
        else:
            folder.mkdir(exist_ok=True)
            name = f"{language}wiki-20240101-pages-articles.xml.bz2"
            pages = make_dump([*documents, "#REDIRECT [[Haus]]"])
            (folder / name).write_bytes(bz2.compress(pages.encode()))


def make_dump(documents: list[str]) -> str:
    pages = "".join(
        f"<page><title>P{n}</title><ns>0</ns><id>{n}</id><revision><model>wikitext</model>"
        f"<format>text/x-wiki</format><text>{text.replace(chr(10), chr(10) * 2)}</text>"
        "</revision></page>"
        for n, text in enumerate(documents)
    )
    return f'<mediawiki version="0.11" xml:lang="en"><siteinfo/>{pages}</mediawiki>'


def prepare(
    folder: Path,
    output: Path,
    source: str = "text",
    workers: int = 1,
    languages: Sequence[str] = ("en", "de"),
    **keys: Any,
) -> dict[str, list[str]]:
    recipe = CorpusRecipe.model_validate({"source": source, "path": folder, **keys})
    engine = EngineRecipe(workers=workers)
    prepare_text(recipe, languages, engine, output / "text", output / "work")
    return {name: list(read_sentences(output / "text" / name)) for name in languages}


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the tasks in this process: starting workers takes most of the time of a small corpus."""

    def run_tasks(function: Callable[[Any], None], items: Sequence[Any], *_: object) -> None:
        for item in items:
            function(item)

    monkeypatch.setattr(pipeline, "run_tasks", run_tasks)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("source", ["text", "jsonl", "parquet", "dump"])
def test_every_source_gives_the_same_sentences(tmp_path: Path, source: str) -> None:
    write_source(tmp_path / "raw", source)
    assert prepare(tmp_path / "raw", tmp_path, source) == EXPECTED
    counts = read_counts(tmp_path / "text" / "en")
    assert counts.dropped == {"duplicate": 1}
    assert counts.text.documents == 2
    # Records that are left out on purpose are not damage.
    assert counts.rejected == ({"redirect": 1} if source == "dump" else {})
    assert counts.records == {"text": 5, "dump": 3}.get(source, 2)
    assert find_damage(tmp_path / "text" / "en") == []


@pytest.mark.usefixtures("in_process")
def test_drops_and_rejections_are_counted_by_reason(tmp_path: Path) -> None:
    write_source(tmp_path / "raw", "text")
    path = tmp_path / "raw" / "en.txt"
    path.write_text(
        path.read_text() + f"Это русский абзац, которому здесь не место.\nOk.\n{'word ' * 20}\n"
    )
    place = f"en.txt, byte {path.stat().st_size}: invalid_utf8, the first of 1 among 9 records"
    path.write_bytes(path.read_bytes() + "Grüße aus München.\n".encode("latin-1"))
    with pytest.raises(MetaXLMError, match=place):
        prepare(tmp_path / "raw", tmp_path)
    assert not (tmp_path / "text").exists()
    cleaning = CleaningRecipe(script=True, min_characters=4, max_characters=60)
    options = {"cleaning": cleaning, "split_sentences": False, "max_rejected": 0.2}
    sentences = prepare(tmp_path / "raw", tmp_path, **options)
    assert sentences["en"] == [" ".join(EXPECTED["en"][:2]), *EXPECTED["en"][2:]]
    counts = read_counts(tmp_path / "text" / "en")
    assert counts.dropped == {"wrong_script": 1, "too_short": 1, "too_long": 1, "duplicate": 1}
    assert (counts.records, counts.rejected) == (9, {"invalid_utf8": 1})
    assert counts.examples is not None
    assert "Это русский" in counts.examples["wrong_script"]


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    """A corpus of several tasks: `raw`, `tokenizer`, and the result in `whole`."""
    root = tmp_path_factory.mktemp("big")
    (root / "raw").mkdir()
    chooser = random.Random(5)
    words = [f"{chooser.choice('bcdfgklm')}{chooser.choice('aeiou')}n{n}" for n in range(300)]
    paragraphs = [" ".join(chooser.choices(words, k=60)) + "." for _ in range(4_000)]
    documents = ["\n".join(chooser.choices(paragraphs, k=8)) for _ in range(500)]
    (root / "raw/en.txt").write_text("\n\n".join(documents))
    tokenizer.save_pretrained(root / "tokenizer")
    make_shards(root, root / "whole", 2, 1)
    return root


def make_shards(big: Path, output: Path, workers: int, task_mb: int) -> None:
    if not (output / "tokens").exists():  # else the text is complete
        prepare(big / "raw", output, "text", workers, ["en"], task_mb=task_mb)
    shards = {"en": (big / "tokenizer/tokenizer.json", output / "text/en")}
    engine = EngineRecipe(workers=workers)
    tokenize_text(shards, engine, output / "shards", output / "tokens")


def contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def test_workers_and_task_sizes_do_not_change_a_byte(big: Path, tmp_path: Path) -> None:
    make_shards(big, tmp_path, 1, 64)
    sentences = list(read_sentences(tmp_path / "text/en"))
    assert len(sentences) == len(set(sentences)) > 2000
    assert list(read_sentences(big / "whole/text/en")) == sentences
    assert len(list((big / "whole/text/en").glob("*.txt"))) > 1
    found = contents(tmp_path / "shards")
    assert list(found) == [f"en/{name}" for name in ("manifest.json", "offsets.bin", "tokens.bin")]
    assert found == contents(big / "whole/shards")
    assert open_shard(tmp_path / "shards/en").counts.sentences == len(sentences)


KILLED = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from tests.data.test_pipeline import make_shards
make_shards(Path(sys.argv[1]), Path(sys.argv[2]), 2, 1)
"""


@pytest.mark.slow
def test_the_next_run_finishes_a_killed_one(big: Path, tmp_path: Path) -> None:
    root, output = str(Path(__file__).parents[2]), tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, str(big), str(output), root]
    for reached in ("work/paragraphs/0*", "tokens/*/*"):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        while not list(output.glob(reached)):
            assert process.poll() is None
            time.sleep(0.001)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert (output / "text" / "en").exists() == (reached == "tokens/*/*")
        assert not (output / "shards").exists()
    remaining = subprocess.run(command, check=False, capture_output=True, text=True)
    assert remaining.returncode == 0, remaining.stderr
    for part in ("text", "shards"):
        assert contents(output / part) == contents(big / "whole" / part)


@pytest.mark.usefixtures("in_process")
def test_an_empty_language_is_named(tmp_path: Path) -> None:
    write_source(tmp_path / "raw", "text")
    (tmp_path / "raw" / "de.txt").write_text("\n\n \n")
    with pytest.raises(MetaXLMError, match="language 'de': no text is left of 0 records"):
        prepare(tmp_path / "raw", tmp_path)


def test_one_dump_for_two_languages_is_rejected(tmp_path: Path) -> None:
    name = "zhwiki-20240101-pages-articles.xml.bz2"
    (tmp_path / name).write_bytes(bz2.compress(make_dump(["你好，世界。"]).encode()))
    recipe = CorpusRecipe(source="dump", path=tmp_path)
    with pytest.raises(MetaXLMError, match=r"zhwiki.*: read for both 'zh' and 'zh-Hant'"):
        prepare_text(recipe, ["zh", "zh-Hant"], EngineRecipe(), tmp_path / "a", tmp_path / "b")


def test_prepared_text_has_one_sentence_per_line(tmp_path: Path) -> None:
    documents = [["One. Two three.", "Four."], ["Fünf, привет, 你好。"]]
    counts = write_lines(tmp_path / "00000.txt", documents)
    assert (tmp_path / "00000.txt").read_text() == (
        "One. Two three.\nFour.\n\nFünf, привет, 你好。\n"
    )
    assert list(read_lines(tmp_path / "00000.txt")) == documents
    assert counts == TextCounts(documents=2, sentences=3, words=7, characters=37, bytes=50)
    documents = [[f"a{mark}b", "c"] for mark in "\u2028\x85\x0b\r"]  # not the ends of lines
    write_lines(tmp_path / "00001.txt", documents)
    assert list(read_lines(tmp_path / "00001.txt")) == documents
    seal_text(tmp_path)
    assert read_counts(tmp_path).text.documents == 6
    with pytest.raises(MetaXLMError, match="no prepared text"):
        list(read_sentences(tmp_path / "none"))
