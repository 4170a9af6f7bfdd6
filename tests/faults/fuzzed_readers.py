"""Every reader of metaxlm with small valid files, which `fuzz` damages and reads.

`python -m tests.faults.fuzzed_readers FOLDER COUNT PART PARTS` prints a JSON object: for each
reader of the part, how many damaged inputs were read, were rejected or ended in another way. The
process may allocate 500 MB more than it has after all readers ran once.
"""

from __future__ import annotations

import bz2
import gzip
import importlib
import json
import lzma
import os
import random
import resource
import shutil
import signal
import sys
import time
import traceback
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
from tests.faults.mutations import mutate

from metaxlm.errors import MetaXLMError

MOST_BYTES = 500_000_000
MOST_SECONDS = 10.0
MOST_CHARACTERS = 5_000
"""The longest error message."""

READERS: dict[str, Reader] = {}
"""Filled at the end of the readers below."""


@dataclass(frozen=True)
class Reader:
    """Valid files, and a call that reads them."""

    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    weight: float = 1.0
    """Relative share of the mutations; slow readers have less."""


@dataclass
class Outcome:
    """The results of the damaged inputs of one reader."""

    mutations: int = 0
    read: int = 0
    rejected: int = 0
    slowest_s: float = 0.0
    failures: list[str] = field(default_factory=list)


class TooSlow(BaseException):
    """A call took longer than it may."""


def use(name: str) -> Any:
    """Import `module:name` of metaxlm, or of the tests."""
    module, _, attribute = name.partition(":")
    root = "" if module.startswith("tests.") else "metaxlm."
    return getattr(importlib.import_module(root + module), attribute)


def _files(contents: Mapping[str, str | bytes]) -> Callable[[Path], None]:
    """Return a function that writes files."""

    def write(folder: Path) -> None:
        for name, content in contents.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.encode() if isinstance(content, str) else content)

    return write


def _consume(values: Iterable[Any]) -> None:
    for _ in values:
        pass


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


def _corpus(source: str, module: str) -> Callable[[Path], None]:
    """Return a function that reads a raw corpus of all languages."""

    def read(folder: Path) -> None:
        for language in sorted({path.name.split(".")[0] for path in folder.iterdir()}):
            for path in use("data.readers.inputs:find_inputs")(folder, source, language):
                for split in use("data.readers.inputs:split_input")(path, source, 1 << 20):
                    _consume(use(f"data.readers.{module}:read_{source}")(split, lambda _: None))

    return read


def _write_parquet(folder: Path) -> None:
    table = pa.table(
        {
            "id": [str(k) for k in range(200)],
            "title": [f"Titel {k % 7}" for k in range(200)],
            "text": [_TEXT * (k % 5) for k in range(200)],
        }
    )
    pq.write_table(table, folder / "de.parquet", row_group_size=80, compression="zstd")
    pq.write_table(table, folder / "fr.parquet", use_dictionary=False, compression="snappy")


def _write_dump(folder: Path) -> None:
    from tests.data.test_dump import FOOT, HEAD, page

    text = "'''Mühle''' {{Infobox|a=1}} ist ein [[Haus|Gebäude]].\n\n"
    text += "{| class=a\n| b\n|}\n* Punkt<ref>x</ref>\n"
    pages = HEAD + b"".join(page(f"Seite {k}", text) for k in range(6)) + FOOT
    (folder / "de.xml").write_bytes(pages)
    (folder / "fr.xml.bz2").write_bytes(bz2.compress(pages))


def _read_dictionaries(folder: Path) -> None:
    for dictionary in use("init.dictionaries:load_dictionaries")(folder).by_language.values():
        _consume(dictionary)


def _write_ledger(folder: Path) -> None:
    from tests.conftest import PARTS, sentences

    lines = (line for code in PARTS for line in sentences(code))
    target = use("vocab.unigram:train_unigram")(lines, 90)
    source = use("vocab.bpe:train_byte_bpe")(iter(sentences("en")), 320)
    plan = use("init.match_plan:make_plan")(target, source, use("recipe:MatchingRecipe")(), None)
    use("init.ledger:save_ledger")(plan, folder / "ledger.parquet")


def _read_ledger(folder: Path) -> None:
    use("init.ledger:coverage")(use("init.ledger:load_ledger")(folder / "ledger.parquet"))


# Task data

_TAGGED = "Der\tDET\nHund\tNOUN\nbellt\tVERB\n\nSie\tPRON\nliest\tVERB\n"
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


def _read_labeled(folder: Path) -> None:
    for name in ("plain", "named"):
        read = use("finetune.readers.texts:read_labeled_pairs")
        read(folder / name, ["neutral", "entailment"], {"x": "neutral"}, "en")


def _read_squad(folder: Path) -> None:
    for is_training in (False, True):
        use("finetune.readers.questions:read_questions")(
            folder / "squad.json", is_training=is_training
        )


def _read_parallel(folder: Path) -> None:
    use("finetune.readers.parallel:list_tatoeba")(folder)
    use("finetune.readers.parallel:read_tatoeba")(folder, "de")


def _write_own_tasks(folder: Path) -> None:
    for name, (kind, file, more, content) in _OWN.items():
        files = f"train: {{de: {file}}}\ntest: {{de: {file}, fr: {file}}}\n"
        text = f"name: mine\nkind: {kind}\n{more}{files}epochs: 2\nlearning_rate: 1e-5\n"
        _files({f"{name}/task.yaml": text, f"{name}/{file}": content})(folder)


def _read_own_tasks(folder: Path) -> None:
    for path in sorted(folder.glob("*/task.yaml")):
        task = use("finetune.custom:load_custom_task")(path)
        for file in task.list_files(folder):
            task.read(file)


def _check_data(folder: Path) -> None:
    use("finetune.check:render")(use("finetune.check:check_data")(folder))


# Probes


def _read_sentences(folder: Path) -> None:
    with use("probe.retrieval_io:open_sentences")(str(folder / "texts")) as sentences:
        _consume(sentences)


_SIDES = {
    "bars": "ein Haus ||| a house\n猫 ||| cat\n", "tabs.tsv": "a\tb\nc\td\n", "de": "a\nb\n",
    "en": "c\nd\n",
}  # fmt: skip
_LINKS = {
    "pairs": "ein Haus ||| a house\nein Hund ||| a dog\n", "pharaoh": "0-0 1p1\n0-0 1-1\n",
    "talp": "1-1\n1-1 2?2\n", "naacl": "1 1 1 S\n2 2 2\n",
}  # fmt: skip


def _read_sentence_pairs(folder: Path) -> None:
    for names in (("bars",), ("tabs.tsv",), ("de", "en")):
        for split in ("spaces", "characters"):
            paths = [str(folder / name) for name in names]
            use("probe.alignment_io:PairFiles")(*paths, split=split).count()


def _read_links(folder: Path) -> None:
    pairs = list(use("probe.alignment_io:PairFiles")(str(folder / "pairs")))
    for layout in ("pharaoh", "talp", "naacl"):
        path = str(folder / layout)
        use("probe.alignment_io:read_gold")(path, layout, pairs, "pairs")
        if layout != "naacl":
            _consume(use("probe.alignment_io:read_links")(path, layout))


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
    for names, layer in ((("one.npy", "one.parquet"), None), (("two.npy", "two.parquet"), "1")):
        sides = str(folder / names[0]), str(folder / names[1])
        use("probe.retrieval_io:load_indexes")(sides, layer, gold=folder / "gold")


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


def _read_recipes(folder: Path) -> None:
    recipe = use("recipe.recipe_file:load_recipe")(folder / "recipe.yaml", ["seed=3"])
    use("recipe.recipe_file:save_recipe")(recipe)


def _write_manifest(folder: Path) -> None:
    (folder / "part.bin").write_bytes(bytes(100))
    facts = {"step": 3, "note": "für", "counts": {"tokens": 1.5}}
    use("manifest:write_manifest")(folder, facts)


def _read_manifest(folder: Path) -> None:
    use("manifest:find_damage")(folder)
    use("run.verify:verify")(folder)
    use("manifest:read_sealed")(folder / "manifest.json")


def _write_run(folder: Path) -> None:
    from tests.analysis.fake_run import make_coverage
    from tests.analysis.paper_rows import (
        make_comparison,
        make_folder,
        make_layer_rows,
        make_paper_rows,
    )

    from metaxlm.files import pack, read_text, write_json

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


def _read_run(folder: Path) -> None:
    use("analysis.run_folder:read_run")(folder)


def _write_addition(folder: Path) -> None:
    make_run = use("tests.run.test_publish:make_run")
    make_run(folder / "published", [("xlm", "xnli", 0), ("metaxlm", "xnli", 0)])
    cells = [("xlm", "xnli", 0), ("xlm", "xnli", 1), ("metaxlm", "xnli", 1)]
    make_run(folder / "run", cells, mark="b")


def _write_cells(folder: Path) -> None:
    for seed in range(2):
        use("tests.run.test_jobs:make_job")(folder, seed).write(*use("tests.run.test_jobs:RESULT"))


def _read_cells(folder: Path) -> None:
    for job in use("run.jobs:list_jobs")(folder)[0]:
        job.read_tallies()


# Vocabularies and models


def _write_tokenizers(folder: Path) -> None:
    from tests.conftest import sentences
    from tests.model.conftest import make_unigram_tokenizer, make_wordpiece_tokenizer

    make_unigram_tokenizer().save_pretrained(folder / "unigram")
    train = use("vocab.bpe:train_byte_bpe")
    train(iter(sentences("en")), 320).save_pretrained(folder / "bpe")
    words = sorted(make_wordpiece_tokenizer().get_vocab().items(), key=lambda item: item[1])
    model = json.loads((folder / "bpe/tokenizer.json").read_text("utf-8"))["model"]
    merges = [" ".join(pair) for pair in model["merges"]]
    _files(
        {
            "words/vocab.txt": "\n".join(word for word, _ in words) + "\n",
            "words/config.json": '{"model_type": "bert"}',
            "merges/config.json": '{"model_type": "roberta"}',
            "merges/vocab.json": json.dumps(model["vocab"]),
            "merges/merges.txt": "\n".join(["#version: 0.2", *merges]),
        }
    )(folder)


def _read_tokenizers(folder: Path) -> None:
    for name in ("unigram", "bpe", "words", "merges"):
        tokenizer = use("vocab.tokenizer:load_tokenizer")(str(folder / name))
        use("vocab.tokens:detect_kind")(tokenizer)
        tokenizer("a cat sees the house")


def _write_sentencepiece(folder: Path) -> None:
    from sentencepiece import SentencePieceTrainer
    from tests.conftest import PARTS, sentences

    # The usual character map has 240 kB, and hardly a mutation would change anything else.
    rules = folder.parent / "rules.tsv"
    rules.write_text("65 301\tE9\n41 308\tC4\nFB01\t66 69\n")
    with (folder / "spiece.model").open("wb") as model:
        SentencePieceTrainer.train(
            sentence_iterator=(line for code in PARTS for line in sentences(code)),
            model_writer=model, vocab_size=90, normalization_rule_tsv=str(rules), minloglevel=2,
        )  # fmt: skip


def _read_sentencepiece(folder: Path) -> None:
    use("vocab.tokenizer:load_tokenizer")(str(folder))("a cat sees the house")


def _write_model(name: str, **changes: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        from tests.model.encoder_kinds import ALL, write_folder

        write_folder(ALL[name], folder / "model", **changes)
        if changes:
            task = {"labels": ["LABEL_0", "LABEL_1", "LABEL_2"], "length": 32, "stride": 8}
            (folder / "model/metaxlm_task.json").write_text(json.dumps(task))

    return write


def _read_encoder(folder: Path) -> None:
    use("model.any_encoder:check_encoder")(folder / "model")
    use("model.any_encoder:load_encoder")(folder / "model")


def _write_checkpoints(folder: Path) -> None:
    import torch

    from metaxlm.pretrain.checkpoint import Checkpoint, TrainingState, save_checkpoint

    tensors = {"a": torch.ones(3, 4), "b": torch.zeros(5)}
    save_checkpoint(folder, Checkpoint(tensors, tensors, TrainingState(step=2)))
    # The manifest of another version may list other content.
    other = save_checkpoint(folder / "other", Checkpoint(tensors, tensors, TrainingState(step=3)))
    (other / "manifest.json").unlink()


def _read_checkpoints(folder: Path) -> None:
    load_newest = use("pretrain.checkpoint:load_newest")
    load_newest(folder)
    other = folder / "other/step-00000003"
    if all(path.is_file() for path in other.iterdir()):
        use("manifest:write_manifest")(other, {"step": 3})
        try:
            load_newest(folder / "other")
        finally:
            (other / "manifest.json").unlink()


def _write_shards(folder: Path) -> None:
    from tests.conftest import sentences
    from tests.model.conftest import make_unigram_tokenizer

    use("data.shards:write_shard")(folder / "en", sentences("en"), make_unigram_tokenizer())


def _read_shards(folder: Path) -> None:
    use("data.shards:open_shard")(folder / "en").sentence(0)
    use("data.statistics:collect_statistics")(folder, 0.7, "tokens")


_TEXTS = {
    "de.txt": _TEXT, "fr.txt.xz": lzma.compress(_TEXT.encode()),
    "ru.txt.gz": gzip.compress(_TEXT.encode()), "es.txt.bz2": bz2.compress(_TEXT.encode()),
    "zh.txt.zst": _zstd(_TEXT.encode()),
}  # fmt: skip
_TAGS = ["DET", "NOUN", "VERB", "PRON"]
READERS |= {
    "corpus text": Reader(_files(_TEXTS), _corpus("text", "lines"), 2),
    "corpus jsonl": Reader(
        _files({"de.jsonl": _JSONL, "fr.jsonl.xz": lzma.compress(_JSONL.encode())}),
        _corpus("jsonl", "lines"),
    ),
    "corpus parquet": Reader(_write_parquet, _corpus("parquet", "parquet"), 2),
    "corpus dump": Reader(_write_dump, _corpus("dump", "dump")),
    "dictionaries": Reader(
        _files({"en-de.txt": _PAIRS, "ru-en.txt.xz": lzma.compress(_PAIRS.encode())}),
        _read_dictionaries,
    ),
    "ledgers": Reader(_write_ledger, _read_ledger, 2),
    "task pairs": Reader(_files(_LABELED), _read_labeled),
    "task tags": Reader(
        _files({"tagged": _TAGGED}),
        lambda f: use("finetune.readers.conll:read_tagged_sentences")(f / "tagged", _TAGS, "de:"),
    ),
    "task questions": Reader(_files({"squad.json": json.dumps(_SQUAD, indent=1)}), _read_squad),
    "task reviews": Reader(
        _files({"reviews": _REVIEWS}),
        lambda f: use("finetune.readers.texts:read_reviews")(f / "reviews"),
    ),
    "task parallel": Reader(_files(_TATOEBA), _read_parallel),
    "task alignments": Reader(
        _files(_ALIGNED), lambda f: use("finetune.readers:read_word_alignment")(f, "de")
    ),
    "own tasks": Reader(_write_own_tasks, _read_own_tasks, 2),
    "data folders": Reader(_files(_DATA), _check_data),
    "sentences": Reader(_files({"texts": "Ein Haus.\nA dog.\n他在读书。\n"}), _read_sentences),
    "sentence pairs": Reader(_files(_SIDES), _read_sentence_pairs),
    "links": Reader(_files(_LINKS), _read_links),
    "vectors": Reader(_write_vectors, _read_vectors, 2),
    "recipes": Reader(_files({"recipe.yaml": _RECIPE, "base.yaml": _BASE}), _read_recipes, 2),
    "manifests": Reader(_write_manifest, _read_manifest),
    "published runs": Reader(_write_run, _read_run, 2),
    "additions": Reader(
        _write_addition, lambda f: use("run.publish:add_run")(f / "published", f / "run")
    ),
    "cells": Reader(_write_cells, _read_cells),
    "tokenizers": Reader(_write_tokenizers, _read_tokenizers, 1.5),
    "SentencePiece models": Reader(_write_sentencepiece, _read_sentencepiece),
    "encoders": Reader(_write_model("bert"), _read_encoder),
    "foreign encoders": Reader(_write_model("electra"), _read_encoder, 0.7),
    "checkpoints": Reader(_write_checkpoints, _read_checkpoints),
    "shards": Reader(_write_shards, _read_shards, 0.5),
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
    begin = time.process_time()
    # The time that the process computes; what waits for something must end as well.
    timers = ((signal.ITIMER_PROF, MOST_SECONDS), (signal.ITIMER_REAL, 4 * MOST_SECONDS))
    signal.signal(signal.SIGALRM, _stop)
    signal.signal(signal.SIGPROF, _stop)
    for timer, seconds in timers:
        signal.setitimer(timer, seconds)
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
        for timer, _ in timers:
            signal.setitimer(timer, 0)
    outcome.slowest_s = max(outcome.slowest_s, time.process_time() - begin)


def _stop(signum: int, frame: FrameType | None) -> None:
    raise TooSlow(f"more than {MOST_SECONDS} s")


def share_out(total: int) -> dict[str, int]:
    """Return how many of the mutations each reader gets."""
    weights = sum(reader.weight for reader in READERS.values())
    return {name: ceil(total * reader.weight / weights) for name, reader in READERS.items()}


def limit_memory(num_bytes: int = MOST_BYTES) -> None:
    """Allow this process the given number of bytes beyond its present size."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    used = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData"))
    resource.setrlimit(resource.RLIMIT_DATA, (used * 1024 + num_bytes,) * 2)


def main(folder: Path, total: int, part: int, parts: int) -> None:
    """Fuzz every `parts`-th reader."""
    import torch

    from metaxlm.progress import set_quiet

    set_quiet(True)
    torch.set_num_threads(1)
    counts = dict(list(share_out(total).items())[part::parts])
    write_seeds(folder, counts)
    limit_memory()
    outcomes: dict[str, Any] = {}
    for name, count in counts.items():
        begin = time.monotonic()
        print(name, file=sys.stderr, flush=True)
        outcomes[name] = asdict(fuzz(folder, name, count))
        outcomes[name]["seconds"] = round(time.monotonic() - begin, 1)
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
