"""Every reader of metaxlm with small valid files, which `fuzz` damages and reads.

`python -m tests.faults.fuzzed_readers FOLDER COUNT PART PARTS` prints a JSON object: for each
reader of the part, how many damaged inputs were read, were rejected or ended in another way. The
process may allocate 500 MB more than it has after all readers ran once.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import resource
import shutil
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from sentencepiece import SentencePieceTrainer
from tests.analysis.fake_run import make_coverage
from tests.analysis.paper_rows import make_comparison, make_folder, make_layer_rows, make_paper_rows
from tests.conftest import PARTS, sentences
from tests.data.test_dump import FOOT, HEAD, page
from tests.faults.mutations import mutate
from tests.model.conftest import make_unigram_tokenizer, make_wordpiece_tokenizer
from tests.model.encoder_kinds import ALL, write_folder
from tests.run.test_jobs import RESULT, make_job
from tests.run.test_publish import make_run

from metaxlm import manifest
from metaxlm.analysis.run_folder import read_run
from metaxlm.data import shards
from metaxlm.data.readers import dump, inputs, lines, parquet
from metaxlm.data.statistics import collect_statistics
from metaxlm.errors import MetaXLMError
from metaxlm.files import pack, read_text, write_json
from metaxlm.finetune.check import check_data, render
from metaxlm.finetune.custom import load_custom_task
from metaxlm.finetune.readers import conll, parallel, questions, texts
from metaxlm.init import ledger
from metaxlm.init.dictionaries import load_dictionaries
from metaxlm.init.match_plan import make_plan
from metaxlm.model.any_encoder import check_encoder, load_encoder
from metaxlm.pretrain.checkpoint import Checkpoint, TrainingState, load_newest, save_checkpoint
from metaxlm.probe.alignment_io import PairFiles, read_gold, read_links
from metaxlm.probe.retrieval_io import load_indexes, open_sentences
from metaxlm.progress import set_quiet
from metaxlm.recipe import MatchingRecipe
from metaxlm.recipe.recipe_file import load_recipe, save_recipe
from metaxlm.run.jobs import list_jobs
from metaxlm.run.publish import add_run
from metaxlm.run.verify import verify
from metaxlm.vocab.tokenizer import load_tokenizer, train_byte_bpe
from metaxlm.vocab.tokens import detect_kind
from metaxlm.vocab.unigram import train_unigram

MOST_BYTES = 500_000_000
MOST_SECONDS = 10.0
MOST_CHARACTERS = 5_000  # the longest error message

Files = Mapping[str, str | bytes]


@dataclass(frozen=True)
class Reader:
    """Valid files or a function that writes them, and a call that reads them."""

    content: Files | Callable[[Path], Any]
    read: Callable[[Path], Any]
    weight: float = 1.0  # relative share of the mutations; slow readers have less

    def write(self, folder: Path) -> None:
        if callable(self.content):
            self.content(folder)
        else:
            write_files(folder, self.content)


@dataclass
class Outcome:
    """The results of the damaged inputs of one reader."""

    mutations: int = 0
    read: int = 0
    rejected: int = 0
    failures: list[str] = field(default_factory=list)


class TooSlow(BaseException):
    """A call took longer than it may."""


def write_files(folder: Path, files: Files) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def consume(values: Iterable[Any]) -> None:
    deque(values, maxlen=0)


# Corpora

_TEXT = "Der Fluss ist breit.\nEr fließt nach Norden.\n\nДом стоит на холме.\n他在读书。\n"
_JSONL = "".join(
    json.dumps({"id": k, "title": f"Titel {k}", "text": line}, ensure_ascii=False) + "\n"
    for k, line in enumerate(_TEXT.split("\n"))
)
_PAIRS = "cat katze\ndog hund\nhouse haus\nthe river\tder Fluss\ngirl mädchen\n"


def _zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


def _corpus(source: Any, read: Callable[..., Iterable[Any]]) -> Callable[[Path], None]:
    """Return a function that reads a raw corpus of all languages."""

    def read_all(folder: Path) -> None:
        for language in sorted({path.name.split(".")[0] for path in folder.iterdir()}):
            for path in inputs.find_inputs(folder, source, language):
                for split in inputs.split_input(path, source, 1 << 20):
                    consume(read(split, lambda _: None))

    return read_all


def _write_parquet(folder: Path) -> None:
    numbers = range(200)
    columns = {
        "id": [str(k) for k in numbers],
        "title": [f"Titel {k % 7}" for k in numbers],
        "text": [_TEXT * (k % 5) for k in numbers],
    }
    table = pa.table(columns)
    pq.write_table(table, folder / "de.parquet", row_group_size=80, compression="zstd")
    pq.write_table(table, folder / "fr.parquet", use_dictionary=False, compression="snappy")


def _write_dump(folder: Path) -> None:
    text = "'''Mühle''' {{Infobox|a=1}} ist ein [[Haus|Gebäude]].\n\n"
    text += "{| class=a\n| b\n|}\n* Punkt<ref>x</ref>\n"
    pages = HEAD + b"".join(page(f"Seite {k}", text) for k in range(6)) + FOOT
    write_files(folder, {"de.xml": pages, "fr.xml.bz2": bz2.compress(pages)})


def _read_dictionaries(folder: Path) -> None:
    for dictionary in load_dictionaries(folder).by_language.values():
        consume(dictionary)


def _write_ledger(folder: Path) -> None:
    target = train_unigram((line for code in PARTS for line in sentences(code)), 90)
    source = train_byte_bpe(iter(sentences("en")), 320)
    plan = make_plan(target, source, MatchingRecipe(), None)
    ledger.save_ledger(plan, folder / "ledger.parquet")


# Task data

_TAGGED = "Der\tDET\nHund\tNOUN\nbellt\tVERB\n\nSie\tPRON\nliest\tVERB\n"
_TAGS = ["DET", "NOUN", "VERB", "PRON"]
_LABELS = ["neutral", "entailment"]
_ASKED = [
    {"id": "a", "question": "What is wide?", "answers": [{"text": "river", "answer_start": 4}]},
    {"id": 7, "question": "How?", "answers": [{"text": "old", "answer_start": 1}]},
]
_PARAGRAPH = {"context": "The river is wide and old.", "qas": _ASKED}
_SQUAD = {"version": "1.1", "data": [{"title": "t", "paragraphs": [_PARAGRAPH]}]}
_REVIEWS = (
    "<items>\n<item>\n<summary>Good</summary>\n<rating>5.0</rating>\n"
    "<text>I &amp;quot;like&amp;quot; it</text>\n"
    "</item>\n<item>\n<rating>1</rating>\n<text>Bad &#9999999999; book</text>\n</item>\n</items>\n"
)
_TATOEBA = {
    "tatoeba/tatoeba.deu-eng.deu": "Ein Haus.\nEin Hund.\n",
    "tatoeba/tatoeba.deu-eng.eng": "A house.\nA dog.\n",
}
_ALIGNED = {
    "wordalign/de-en/test.de": "ein Haus\nein Hund bellt\n",
    "wordalign/de-en/test.en": "a house\na dog barks\n",
    "wordalign/de-en/alignv2.txt": "1 1 1 S\n1 2 2\n7 1 1 P\n7 2 2 S\n7 3 3 S\n",
}
_LABELED = {
    "plain": "a b\tc d\tneutral\ne f\tg\tentailment\n",
    "named": "language\tgold_label\tsentence1\tsentence2\nen\tneutral\ta b\tc\nen\t-\ta\tb\n",
}
_DATA = {
    "udpos/test-de.tsv": _TAGGED,
    "xnli/test-de.tsv": "a b\tc d\tneutral\n",
    "xquad/xquad.de.json": json.dumps(_SQUAD),
    **_TATOEBA,
    "dictionaries/en-de.txt": _PAIRS,
    "wiki/dewiki-20240101-pages-articles.xml": "<mediawiki></mediawiki>",
}
_COLUMNS = "columns: {text: text, label: label}\n"
_OWN = {
    "tsv": ("classification", "t.tsv", _COLUMNS, "text\tlabel\na b\tx\nc\ty\n"),
    "csv": ("classification", "t.csv", "columns: {text: 1, label: 2}\n", '"a, b",x\n"c\nd",y\n'),
    "jsonl": ("classification", "t.jsonl", _COLUMNS,
              '{"text": "a", "label": "x"}\n{"text": "c", "label": 7}\n'),
    "conll": ("tagging", "t.conll", "metric: span_f1\n", "# x\nEin B-PER\nHund I-PER\n\nbellt O\n"),
    "conllu": ("tagging", "t.conllu", "metric: accuracy\n",
               "1\tEin\t_\tDET\n1-2\tx\t_\t_\n2\tHund\t_\tNOUN\n"),
    "questions": ("questions", "t.json", "stride: 32\n", json.dumps(_SQUAD)),
}  # fmt: skip


def _write_own_tasks(folder: Path) -> None:
    for name, (kind, file, more, content) in _OWN.items():
        data = f"train: {{de: {file}}}\ntest: {{de: {file}, fr: {file}}}\n"
        text = f"name: mine\nkind: {kind}\n{more}{data}epochs: 2\nlearning_rate: 1e-5\n"
        write_files(folder / name, {"task.yaml": text, file: content})


def _read_own_tasks(folder: Path) -> None:
    for path in sorted(folder.glob("*/task.yaml")):
        task = load_custom_task(path)
        for file in task.list_files(folder):
            task.read(file)


def _read_parallel(folder: Path) -> None:
    parallel.list_tatoeba(folder)
    parallel.read_tatoeba(folder, "de")


# Probes

_SIDES = {
    "bars": "ein Haus ||| a house\n猫 ||| cat\n", "tabs.tsv": "a\tb\nc\td\n", "de": "a\nb\n",
    "en": "c\nd\n",
}  # fmt: skip
_LINKS = {
    "pairs": "ein Haus ||| a house\nein Hund ||| a dog\n", "pharaoh": "0-0 1p1\n0-0 1-1\n",
    "talp": "1-1\n1-1 2?2\n", "naacl": "1 1 1 S\n2 2 2\n",
}  # fmt: skip


def read_texts(folder: Path) -> None:
    with open_sentences(str(folder / "texts")) as lines_read:
        consume(lines_read)


def _read_sentence_pairs(folder: Path) -> None:
    targets = {"bars": None, "tabs.tsv": None, "de": str(folder / "en")}
    for name, target in targets.items():
        PairFiles(str(folder / name), target, "spaces").count()
        PairFiles(str(folder / name), target, "characters").count()


def _read_links(folder: Path) -> None:
    pairs = list(PairFiles(str(folder / "pairs")))
    layouts: Any = ("pharaoh", "talp", "naacl")
    for layout in layouts:
        path = str(folder / layout)
        read_gold(path, layout, pairs, "pairs")
        if layout != "naacl":
            consume(read_links(path, layout))


def _write_vectors(folder: Path) -> None:
    vectors = np.linspace(-1, 1, 120).astype(np.float16).reshape(10, 12)
    np.save(folder / "one.npy", vectors)
    np.save(folder / "two.npy", np.stack([vectors, -vectors]))
    width = pa.list_(pa.float16(), 12)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 12)
    table = pa.table({"line": range(10), "text": ["x"] * 10, "layer_8": column.cast(width)})
    pq.write_table(table, folder / "one.parquet")
    lists = pa.array(vectors.astype(np.float32).tolist(), pa.list_(pa.float32()))
    pq.write_table(pa.table({"layer_0": lists, "layer_1": lists}), folder / "two.parquet")
    (folder / "gold").write_text("1\t2\n3\t4\n")


def _read_vectors(folder: Path) -> None:
    for name, layer in (("one", None), ("two", "1")):
        sides = str(folder / f"{name}.npy"), str(folder / f"{name}.parquet")
        load_indexes(sides, layer, gold=folder / "gold")


# Recipes, JSON, runs

_RECIPE = """\
extends: base.yaml
name: mine
model: &m {layers: 2, hidden: 64, heads: 2}
pretraining: {steps: 20, warmup_steps: 4, batch_size: 8, length: 32, learning_rate: 1e-4}
variants: [xlm]
"""
_BASE = """\
languages: [en, de, no]
corpus: {source: text, path: data}
variants:
  xlm: {initialize: none}
  metaxlm: {initialize: both}
evaluation:
  grid:
    - {tasks: [xnli], variants: [xlm]}
"""


def _write_manifest(folder: Path) -> None:
    (folder / "part.bin").write_bytes(bytes(100))
    manifest.write_manifest(folder, {"step": 3, "note": "für", "counts": {"tokens": 1.5}})


def _read_manifest(folder: Path) -> None:
    manifest.find_damage(folder)
    verify(folder)
    manifest.read_sealed(folder / "manifest.json")


def _write_run(folder: Path) -> None:
    make_folder(folder, [*make_paper_rows(tasks=["xnli"])[:40], *make_layer_rows()[:40]])
    recipe = (folder / "recipe.yaml").read_text("utf-8")
    (folder / "recipe.yaml").write_text(f"{recipe}evaluation: {{grid: [{{tasks: [xnli]}}]}}\n")
    tests = [make_comparison("xnli", {("xlm", "metaxlm"): (-0.05, 0.001)})]
    write_json(folder / "comparisons.json", {str(k): asdict(one) for k, one in enumerate(tests)})
    write_json(folder / "variants/metaxlm/initialization/coverage.json", make_coverage(False))
    for name in ("results.jsonl", "comparisons.json"):
        pack(read_text(folder / name), folder / f"{name}.xz")
        (folder / name).unlink()
    (folder / "cells/xlm/tatoeba/en-0").mkdir(parents=True)
    write_json(folder / "cells/xlm/tatoeba/en-0/cell.json", {"examples": [{"language": "de"}]})


def _write_addition(folder: Path) -> None:
    make_run(folder / "published", [("xlm", "xnli", 0), ("metaxlm", "xnli", 0)])
    cells = [("xlm", "xnli", 0), ("xlm", "xnli", 1), ("metaxlm", "xnli", 1)]
    make_run(folder / "run", cells, mark="b")


# Vocabularies and models


def _write_tokenizers(folder: Path) -> None:
    make_unigram_tokenizer().save_pretrained(folder / "unigram")
    train_byte_bpe(iter(sentences("en")), 320).save_pretrained(folder / "bpe")
    words = sorted(make_wordpiece_tokenizer().get_vocab().items(), key=lambda item: item[1])
    model = json.loads((folder / "bpe/tokenizer.json").read_text("utf-8"))["model"]
    merges = [" ".join(pair) for pair in model["merges"]]
    files = {
        "words/vocab.txt": "\n".join(word for word, _ in words) + "\n",
        "words/config.json": '{"model_type": "bert"}',
        "merges/config.json": '{"model_type": "roberta"}',
        "merges/vocab.json": json.dumps(model["vocab"]),
        "merges/merges.txt": "\n".join(["#version: 0.2", *merges]),
    }
    write_files(folder, files)


def _read_tokenizers(folder: Path) -> None:
    for name in ("unigram", "bpe", "words", "merges"):
        tokenizer = load_tokenizer(str(folder / name))
        detect_kind(tokenizer)
        tokenizer("a cat sees the house")


def _write_sentencepiece(folder: Path) -> None:
    # The usual character map has 240 kB, and hardly a mutation would change anything else.
    rules = folder.parent / "rules.tsv"
    rules.write_text("65 301\tE9\n41 308\tC4\nFB01\t66 69\n")
    with (folder / "spiece.model").open("wb") as model:
        SentencePieceTrainer.train(
            sentence_iterator=(line for code in PARTS for line in sentences(code)),
            model_writer=model, vocab_size=90, normalization_rule_tsv=str(rules), minloglevel=2,
        )  # fmt: skip


def _read_encoder(folder: Path) -> None:
    check_encoder(folder / "model")
    load_encoder(folder / "model")


def _write_checkpoints(folder: Path) -> None:
    tensors = {"a": torch.ones(3, 4), "b": torch.zeros(5)}
    save_checkpoint(folder, Checkpoint(tensors, tensors, TrainingState(step=2)))
    # The manifest of another version may list other content.
    other = save_checkpoint(folder / "other", Checkpoint(tensors, tensors, TrainingState(step=3)))
    (other / "manifest.json").unlink()


def _read_checkpoints(folder: Path) -> None:
    load_newest(folder)
    other = folder / "other/step-00000003"
    if all(path.is_file() for path in other.iterdir()):
        manifest.write_manifest(other, {"step": 3})
        try:
            load_newest(folder / "other")
        finally:
            (other / "manifest.json").unlink()


def _read_shards(folder: Path) -> None:
    shards.open_shard(folder / "en").sentence(0)
    collect_statistics(folder, 0.7, "tokens")


_TEXTS: Files = {
    "de.txt": _TEXT, "fr.txt.xz": lzma.compress(_TEXT.encode()),
    "ru.txt.gz": gzip.compress(_TEXT.encode()), "es.txt.bz2": bz2.compress(_TEXT.encode()),
    "zh.txt.zst": _zstd(_TEXT.encode()),
}  # fmt: skip
_RECORDS: Files = {"de.jsonl": _JSONL, "fr.jsonl.xz": lzma.compress(_JSONL.encode())}
_DICTIONARIES: Files = {"en-de.txt": _PAIRS, "ru-en.txt.xz": lzma.compress(_PAIRS.encode())}
READERS = {
    "corpus text": Reader(_TEXTS, _corpus("text", lines.read_text), 2),
    "corpus jsonl": Reader(_RECORDS, _corpus("jsonl", lines.read_jsonl)),
    "corpus parquet": Reader(_write_parquet, _corpus("parquet", parquet.read_parquet), 2),
    "corpus dump": Reader(_write_dump, _corpus("dump", dump.read_dump)),
    "dictionaries": Reader(_DICTIONARIES, _read_dictionaries),
    "ledgers": Reader(
        _write_ledger, lambda f: ledger.coverage(ledger.load_ledger(f / "ledger.parquet")), 2
    ),
    "task pairs": Reader(
        _LABELED,
        lambda f: [
            texts.read_labeled_pairs(f / name, _LABELS, {"x": "neutral"}, "en")
            for name in ("plain", "named")
        ],
    ),
    "task tags": Reader(
        {"tagged": _TAGGED}, lambda f: conll.read_tagged_sentences(f / "tagged", _TAGS, "de:")
    ),
    "task questions": Reader(
        {"squad.json": json.dumps(_SQUAD, indent=1)},
        lambda f: [
            questions.read_questions(f / "squad.json", is_training=is_training)
            for is_training in (False, True)
        ],
    ),
    "task reviews": Reader({"reviews": _REVIEWS}, lambda f: texts.read_reviews(f / "reviews")),
    "task parallel": Reader(_TATOEBA, _read_parallel),
    "task alignments": Reader(_ALIGNED, lambda f: parallel.read_word_alignment(f, "de")),
    "own tasks": Reader(_write_own_tasks, _read_own_tasks, 2),
    "data folders": Reader(_DATA, lambda f: render(check_data(f))),
    "sentences": Reader({"texts": "Ein Haus.\nA dog.\n他在读书。\n"}, read_texts),
    "sentence pairs": Reader(_SIDES, _read_sentence_pairs),
    "links": Reader(_LINKS, _read_links),
    "vectors": Reader(_write_vectors, _read_vectors, 2),
    "recipes": Reader(
        {"recipe.yaml": _RECIPE, "base.yaml": _BASE},
        lambda f: save_recipe(load_recipe(f / "recipe.yaml", ["seed=3"])),
        2,
    ),
    "manifests": Reader(_write_manifest, _read_manifest),
    "published runs": Reader(_write_run, read_run, 2),
    "additions": Reader(_write_addition, lambda f: add_run(f / "published", f / "run")),
    "cells": Reader(
        lambda f: [make_job(f, seed).write(*RESULT) for seed in range(2)],
        lambda f: [job.read_tallies() for job in list_jobs(f)[0]],
    ),
    "tokenizers": Reader(_write_tokenizers, _read_tokenizers, 1.5),
    "SentencePiece models": Reader(
        _write_sentencepiece, lambda f: load_tokenizer(str(f))("a cat sees the house")
    ),
    "encoders": Reader(lambda f: write_folder(ALL["bert"], f / "model"), _read_encoder),
    "foreign encoders": Reader(
        lambda f: write_folder(ALL["electra"], f / "model"), _read_encoder, 0.7
    ),
    "checkpoints": Reader(_write_checkpoints, _read_checkpoints),
    "shards": Reader(
        lambda f: shards.write_shard(f / "en", sentences("en"), make_unigram_tokenizer()),
        _read_shards,
        0.5,
    ),
}


# Fuzzing


def write_seeds(folder: Path, names: Iterable[str]) -> None:
    """Write the valid files of readers, and check that they are read."""
    for name in names:
        home = folder / name
        home.mkdir(parents=True)
        READERS[name].write(home)
        READERS[name].read(home)


def fuzz(folder: Path, name: str, count: int) -> Outcome:
    """Damage the files of a reader the given number of times, one file each time, and read them."""
    home = folder / name
    files = sorted(path for path in home.rglob("*") if path.is_file())
    outcome = Outcome()
    for number in range(count):
        draw = random.Random(f"{name} {number}")
        path = files[number % len(files)]
        whole = path.read_bytes()
        what, damaged = mutate(whole, draw)
        with _damage(path, damaged, draw) as special:
            _try(outcome, READERS[name].read, home, f"{path.name}, {number}: {special or what}")
        path.write_bytes(whole)
    return outcome


@contextmanager
def _damage(path: Path, damaged: bytes, draw: random.Random) -> Iterator[str]:
    """Write the damaged bytes, or now and then put something else in the file's place."""
    special = draw.choice(("folder", "pipe", "loop", "missing")) if draw.random() < 0.02 else ""
    path.unlink()
    if special == "folder":
        path.mkdir()
    elif special == "pipe":
        os.mkfifo(path)
    elif special == "loop":
        path.symlink_to(path.name)
    elif not special:
        path.write_bytes(damaged)
    try:
        yield special
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _try(outcome: Outcome, read: Callable[[Path], Any], home: Path, what: str) -> None:
    outcome.mutations += 1
    _set_timers(MOST_SECONDS)
    try:
        read(home)
        outcome.read += 1
    except MetaXLMError as error:
        outcome.rejected += 1
        if not str(error).strip() or len(str(error)) > MOST_CHARACTERS:
            outcome.failures.append(f"{what}: an error of {len(str(error)):,} characters")
    except BaseException as error:  # any other end is what this looks for, panics of Rust too
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        where = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in where if "/metaxlm/" in frame.filename] or where
        place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        outcome.failures.append(f"{what}: {type(error).__name__} at {place}: {str(error)[:150]}")
    finally:
        _set_timers(0)


def _set_timers(seconds: float) -> None:
    """Limit the time that the process computes; what waits for something must end as well."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise TooSlow(f"more than {MOST_SECONDS} s")

    signal.signal(signal.SIGALRM, stop)
    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, 4 * seconds)


def share_out(total: int) -> dict[str, int]:
    """Return how many of the mutations each reader gets."""
    weights = sum(reader.weight for reader in READERS.values())
    return {name: ceil(total * reader.weight / weights) for name, reader in READERS.items()}


def measure_memory(name: str) -> int:
    """Return a size of this process in bytes, such as `VmRSS`."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(row.split()[1]) for row in status.splitlines() if row.startswith(name)) * 1024


def limit_memory(num_bytes: int = MOST_BYTES) -> None:
    """Allow this process the given number of bytes beyond its present size."""
    resource.setrlimit(resource.RLIMIT_DATA, (measure_memory("VmData") + num_bytes,) * 2)


def main(folder: Path, total: int, part: int, parts: int) -> None:
    """Fuzz every `parts`-th reader."""
    set_quiet(True)
    torch.set_num_threads(1)
    counts = dict(list(share_out(total).items())[part::parts])
    write_seeds(folder, counts)
    limit_memory()
    outcomes: dict[str, Any] = {}
    for name, count in counts.items():
        print(name, file=sys.stderr, flush=True)
        outcomes[name] = asdict(fuzz(folder, name, count))
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
