"""Every reader of metaxlm beside small valid files, which `fuzz` damages and has read.

`python -m tests.faults.fuzzed_readers FOLDER COUNT PART PARTS` prints a JSON object: for each
reader of the part, how many damaged inputs were read, refused or ended in another way. The process
may allocate 500 MB on top of what it has after all readers ran once.
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
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
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
"""Of an error message."""

READERS: dict[str, Reader] = {}


@dataclass(frozen=True)
class Reader:
    """Valid files, and a call that reads them."""

    write: Callable[[Path], Any]
    read: Callable[[Path], Any]
    weight: float = 1.0
    """Share of the mutations, against that of other readers; slow readers have less."""


@dataclass
class Outcome:
    """What became of the damaged inputs of one reader."""

    mutations: int = 0
    read: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    failures: list[str] = field(default_factory=list)


class TooSlow(BaseException):
    """A call took longer than it may."""


def _reader(
    name: str, write: Callable[[Path], Any], weight: float = 1.0
) -> Callable[[Callable[[Path], Any]], None]:
    def add(read: Callable[[Path], Any]) -> None:
        READERS[name] = Reader(write, read, weight)

    return add


def _files(**contents: str | bytes) -> Callable[[Path], None]:
    """Return a function that writes files; `__` in a name is a dot, `___` a slash."""

    def write(folder: Path) -> None:
        for name, content in contents.items():
            path = folder / name.replace("___", "/").replace("__", ".")
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


def _zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


@_reader(
    "corpus text",
    _files(
        de__txt=_TEXT, fr__txt__xz=lzma.compress(_TEXT.encode()),
        ru__txt__gz=gzip.compress(_TEXT.encode()),
        es__txt__bz2=bz2.compress(_TEXT.encode()), zh__txt__zst=_zstd(_TEXT.encode()),
    ),
    weight=2,
)  # fmt: skip
def _read_text_corpus(folder: Path) -> None:
    from metaxlm.data.readers.text import read_text

    _read_corpus(folder, "text", read_text)


@_reader("corpus jsonl", _files(de__jsonl=_JSONL, fr__jsonl__xz=lzma.compress(_JSONL.encode())))
def _read_jsonl_corpus(folder: Path) -> None:
    from metaxlm.data.readers.jsonl import read_jsonl

    _read_corpus(folder, "jsonl", read_jsonl)


def _read_corpus(folder: Path, source: Any, read: Any) -> None:
    from metaxlm.data.readers.inputs import find_inputs, split_input

    for language in sorted({path.name.split(".")[0] for path in folder.iterdir()}):
        for path in find_inputs(folder, source, language):
            for split in split_input(path, source, 1 << 20):
                _consume(read(split, lambda _: None))


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


@_reader("corpus parquet", _write_parquet, weight=2)
def _read_parquet_corpus(folder: Path) -> None:
    from metaxlm.data.readers.parquet import read_parquet

    _read_corpus(folder, "parquet", read_parquet)


def _write_dump(folder: Path) -> None:
    from tests.data.test_dump import FOOT, HEAD, page

    text = "'''Mühle''' {{Infobox|a=1}} ist ein [[Haus|Gebäude]].\n\n"
    text += "{| class=a\n| b\n|}\n* Punkt<ref>x</ref>\n"
    pages = HEAD + b"".join(page(f"Seite {k}", text) for k in range(6)) + FOOT
    (folder / "de.xml").write_bytes(pages)
    (folder / "fr.xml.bz2").write_bytes(bz2.compress(pages))


@_reader("corpus dump", _write_dump)
def _read_dump_corpus(folder: Path) -> None:
    from metaxlm.data.readers.dump import read_dump

    _read_corpus(folder, "dump", read_dump)


_PAIRS = "cat katze\ndog hund\nhouse haus\nthe river\tder Fluss\ngirl mädchen\n"


@_reader(
    "dictionaries",
    _files(**{"en-de__txt": _PAIRS, "ru-en__txt__xz": lzma.compress(_PAIRS.encode())}),
)
def _read_dictionaries(folder: Path) -> None:
    from metaxlm.init.dictionaries import load_dictionaries

    for dictionary in load_dictionaries(folder).by_language.values():
        _consume(dictionary)


def _write_ledger(folder: Path) -> None:
    from tests.conftest import PARTS, sentences

    from metaxlm.init.ledger import save_ledger
    from metaxlm.init.plan import make_plan
    from metaxlm.recipe import MatchingRecipe
    from metaxlm.vocab.byte_bpe import train_byte_bpe
    from metaxlm.vocab.unigram import train_unigram

    target = train_unigram((line for code in PARTS for line in sentences(code)), 90)
    source = train_byte_bpe(iter(sentences("en")), 320)
    save_ledger(make_plan(target, source, MatchingRecipe(), None), folder / "ledger.parquet")


@_reader("ledgers", _write_ledger, weight=2)
def _read_ledger(folder: Path) -> None:
    from metaxlm.init.ledger import coverage, load_ledger

    coverage(load_ledger(folder / "ledger.parquet"))


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


@_reader(
    "task pairs",
    _files(
        plain="a b\tc d\tneutral\ne f\tg\tentailment\n",
        named="language\tgold_label\tsentence1\tsentence2\nen\tneutral\ta b\tc\nen\t-\ta\tb\n",
    ),
)
def _read_pairs(folder: Path) -> None:
    from metaxlm.finetune.readers import read_labeled_pairs

    for name in ("plain", "named"):
        read_labeled_pairs(folder / name, ["neutral", "entailment"], {"x": "neutral"}, "en")


@_reader("task tags", _files(tagged=_TAGGED))
def _read_tagged(folder: Path) -> None:
    from metaxlm.finetune.readers import read_tagged_sentences

    read_tagged_sentences(folder / "tagged", ["DET", "NOUN", "VERB", "PRON"], "de:")


@_reader("task questions", _files(squad__json=json.dumps(_SQUAD, indent=1)))
def _read_squad(folder: Path) -> None:
    from metaxlm.finetune.readers import read_questions

    read_questions(folder / "squad.json")
    read_questions(folder / "squad.json", is_training=True)


@_reader("task reviews", _files(reviews=_REVIEWS))
def _read_reviews(folder: Path) -> None:
    from metaxlm.finetune.readers import read_reviews

    read_reviews(folder / "reviews")


@_reader(
    "task parallel",
    _files(
        **{
            "tatoeba___tatoeba__deu-eng__deu": "Ein Haus.\nEin Hund.\n",
            "tatoeba___tatoeba__deu-eng__eng": "A house.\nA dog.\n",
        }
    ),
)
def _read_parallel(folder: Path) -> None:
    from metaxlm.finetune.readers import list_tatoeba, read_tatoeba

    list_tatoeba(folder)
    read_tatoeba(folder, "de")


@_reader(
    "task alignments",
    _files(
        **{
            "wordalign___de-en___test__de": "ein Haus\nein Hund bellt\n",
            "wordalign___de-en___test__en": "a house\na dog barks\n",
            "wordalign___de-en___alignv2__txt": "1 1 1 S\n1 2 2\n7 1 1 P\n7 2 2 S\n7 3 3 S\n",
        }
    ),
)
def _read_alignments(folder: Path) -> None:
    from metaxlm.finetune.readers import read_word_alignment

    read_word_alignment(folder, "de")


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
        files = f"train: {{de: {file}}}\ntest: {{de: {file}, fr: {file}}}\n"
        text = f"name: mine\nkind: {kind}\n{more}{files}epochs: 2\nlearning_rate: 1e-5\n"
        _files(**{f"{name}___task__yaml": text, f"{name}___{file.replace('.', '__')}": content})(
            folder
        )


@_reader("own tasks", _write_own_tasks, weight=2)
def _read_own_tasks(folder: Path) -> None:
    from metaxlm.finetune.own_task import load_own_task

    for path in sorted(folder.glob("*/task.yaml")):
        task = load_own_task(path)
        for file in task.list_files(folder):
            task.read(file)


_INPUTS = {
    "classification": {"tsv": "a b\tc\nd\te\n", "jsonl": '{"first": "a", "second": "b"}\n' * 2},
    "tagging": {
        "text": "Ein Hund bellt.\n\nJa\n",
        "conll": _TAGGED,
        "conllu": "# x\n1\tEin\n\n1\tJa\n",
    },
    "span": {
        "jsonl": '{"question": "a", "context": "b"}\n{"id": 3, "question": "a", "context": "b"}\n'
    },
}


@_reader(
    "prediction inputs",
    _files(**{f"{k}__{f}": text for k, formats in _INPUTS.items() for f, text in formats.items()}),
)
def _read_prediction_inputs(folder: Path) -> None:
    from metaxlm.finetune.prediction_inputs import open_input, read_inputs

    for kind, formats in _INPUTS.items():
        for layout in formats:
            with open_input(str(folder / f"{kind}.{layout}")) as lines:
                _consume(read_inputs(lines, kind, layout))  # type: ignore[arg-type]


@_reader(
    "data folders",
    _files(
        **{
            "udpos___test-de__tsv": _TAGGED,
            "xnli___test-de__tsv": "a b\tc d\tneutral\n",
            "xquad___xquad__de__json": json.dumps(_SQUAD),
            "tatoeba___tatoeba__deu-eng__deu": "Ein Haus.\nEin Hund.\n",
            "tatoeba___tatoeba__deu-eng__eng": "A house.\nA dog.\n",
            "dictionaries___en-de__txt": _PAIRS,
            "wiki___dewiki-20240101-pages-articles__xml": "<mediawiki></mediawiki>",
        }
    ),
)
def _check_data(folder: Path) -> None:
    from metaxlm.finetune.data_folder import check_data, render

    render(check_data(folder))


# Features


@_reader("sentences", _files(texts="Ein Haus.\nA dog.\n他在读书。\n"))
def _read_sentences(folder: Path) -> None:
    from metaxlm.probe.sentence_files import open_sentences

    with open_sentences(str(folder / "texts")) as sentences:
        _consume(sentences)


@_reader(
    "sentence pairs",
    _files(
        bars="ein Haus ||| a house\n猫 ||| cat\n",
        tabs__tsv="a\tb\nc\td\n",
        de="a\nb\n",
        en="c\nd\n",
    ),
)
def _read_sentence_pairs(folder: Path) -> None:
    from metaxlm.probe.pair_files import PairFiles

    for names in (("bars",), ("tabs.tsv",), ("de", "en")):
        for split in ("spaces", "characters"):
            PairFiles(*(str(folder / name) for name in names), split=split).count()  # type: ignore[misc]


@_reader(
    "links",
    _files(pairs="ein Haus ||| a house\nein Hund ||| a dog\n", pharaoh="0-0 1p1\n0-0 1-1\n",
           talp="1-1\n1-1 2?2\n", naacl="1 1 1 S\n2 2 2\n"),
)  # fmt: skip
def _read_links(folder: Path) -> None:
    from metaxlm.probe.link_files import read_gold, read_links
    from metaxlm.probe.pair_files import PairFiles

    pairs = list(PairFiles(str(folder / "pairs")))
    for layout in ("pharaoh", "talp", "naacl"):
        path = str(folder / layout)
        read_gold(path, layout, pairs, "pairs")  # type: ignore[arg-type]
        if layout != "naacl":
            _consume(read_links(path, layout))  # type: ignore[arg-type]


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


@_reader("vectors", _write_vectors, weight=2)
def _read_vectors(folder: Path) -> None:
    from metaxlm.probe.search_sides import SearchRequest, open_sides, read_gold_pairs

    for names, layer in ((("one.npy", "one.parquet"), None), (("two.npy", "two.parquet"), "1")):
        request = SearchRequest((str(folder / names[0]), str(folder / names[1])), layer)
        with open_sides(request, has_model=False) as sides:
            read_gold_pairs(folder / "gold", sides)


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


@_reader("recipes", _files(recipe__yaml=_RECIPE, base__yaml=_BASE), weight=2)
def _read_recipes(folder: Path) -> None:
    from metaxlm.recipe.load import load_recipe, save_recipe

    save_recipe(load_recipe(folder / "recipe.yaml", ["seed=3"]))


def _write_manifest(folder: Path) -> None:
    from metaxlm.manifest import write_manifest

    (folder / "part.bin").write_bytes(bytes(100))
    write_manifest(folder, {"step": 3, "note": "für", "counts": {"tokens": 1.5}})


@_reader("manifests", _write_manifest)
def _read_manifest(folder: Path) -> None:
    from metaxlm.manifest import MANIFEST, find_damage, read_sealed
    from metaxlm.run.verify import verify

    find_damage(folder)
    verify(folder)
    read_sealed(folder / MANIFEST)


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
    write_json(folder / "variants/metaxlm/init/coverage.json", make_coverage(False))
    for name in ("results.jsonl", "comparisons.json"):
        pack(read_text(folder / name), folder / f"{name}.xz")
        (folder / name).unlink()
    (folder / "cells/xlm/tatoeba/en-0").mkdir(parents=True)
    write_json(folder / "cells/xlm/tatoeba/en-0/cell.json", {"examples": [{"language": "de"}]})


@_reader("published runs", _write_run, weight=2)
def _read_run(folder: Path) -> None:
    from metaxlm.analysis.run_folder import read_run

    read_run(folder)


def _write_addition(folder: Path) -> None:
    from tests.run.test_publish import make_run

    make_run(folder / "published", [("xlm", "xnli", 0), ("metaxlm", "xnli", 0)])
    cells = [("xlm", "xnli", 0), ("xlm", "xnli", 1), ("metaxlm", "xnli", 1)]
    make_run(folder / "run", cells, mark="b")


@_reader("additions", _write_addition)
def _read_addition(folder: Path) -> None:
    from metaxlm.run.publish import add_run

    add_run(folder / "published", folder / "run")


def _write_cells(folder: Path) -> None:
    from tests.run.test_jobs import RESULT, make_job

    for seed in range(2):
        make_job(folder, seed).write(*RESULT)


@_reader("cells", _write_cells)
def _read_cells(folder: Path) -> None:
    from metaxlm.run.jobs import list_jobs

    for job in list_jobs(folder)[0]:
        job.read_tallies()


# Vocabularies and models


def _write_tokenizers(folder: Path) -> None:
    from tests.conftest import sentences
    from tests.model.conftest import make_unigram_tokenizer, make_wordpiece_tokenizer

    from metaxlm.vocab.byte_bpe import train_byte_bpe

    make_unigram_tokenizer().save_pretrained(folder / "unigram")
    train_byte_bpe(iter(sentences("en")), 320).save_pretrained(folder / "bpe")
    words = make_wordpiece_tokenizer()
    (folder / "words").mkdir()
    vocabulary = sorted(words.get_vocab().items(), key=lambda item: item[1])
    (folder / "words/vocab.txt").write_text("\n".join(word for word, _ in vocabulary) + "\n")
    (folder / "words/config.json").write_text('{"model_type": "bert"}')
    merges = json.loads((folder / "bpe/tokenizer.json").read_text("utf-8"))["model"]
    (folder / "merges").mkdir()
    (folder / "merges/config.json").write_text('{"model_type": "roberta"}')
    (folder / "merges/vocab.json").write_text(json.dumps(merges["vocab"]), encoding="utf-8")
    lines = [" ".join(pair) for pair in merges["merges"]]
    (folder / "merges/merges.txt").write_text(
        "\n".join(["#version: 0.2", *lines]), encoding="utf-8"
    )


@_reader("tokenizers", _write_tokenizers, weight=1.5)
def _read_tokenizers(folder: Path) -> None:
    from metaxlm.vocab.loading import load_tokenizer
    from metaxlm.vocab.token_forms import detect_kind

    for name in ("unigram", "bpe", "words", "merges"):
        tokenizer = load_tokenizer(str(folder / name))
        detect_kind(tokenizer)
        tokenizer("a cat sees the house")


def _write_sentencepiece(folder: Path) -> None:
    from sentencepiece import SentencePieceTrainer
    from tests.conftest import PARTS, sentences

    # The usual character map has 240 kB, and hardly a mutation would meet anything else.
    rules = folder.parent / "rules.tsv"
    rules.write_text("65 301\tE9\n41 308\tC4\nFB01\t66 69\n")
    with (folder / "spiece.model").open("wb") as model:
        SentencePieceTrainer.train(
            sentence_iterator=(line for code in PARTS for line in sentences(code)),
            model_writer=model, vocab_size=90, normalization_rule_tsv=str(rules), minloglevel=2,
        )  # fmt: skip


@_reader("SentencePiece models", _write_sentencepiece)
def _read_sentencepiece(folder: Path) -> None:
    from metaxlm.vocab.loading import load_tokenizer

    load_tokenizer(str(folder))("a cat sees the house")


def _write_model(name: str, **changes: Any) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        from tests.model.encoder_kinds import ALL, write_folder

        write_folder(ALL[name], folder / "model", **changes)
        if changes:
            task = {"labels": ["LABEL_0", "LABEL_1", "LABEL_2"], "length": 32, "stride": 8}
            (folder / "model/metaxlm_task.json").write_text(json.dumps(task))

    return write


def _read_encoder(folder: Path) -> None:
    from metaxlm.model.any_encoder import check_encoder, load_encoder

    check_encoder(folder / "model")
    load_encoder(folder / "model")


_reader("encoders", _write_model("bert"))(_read_encoder)
_reader("foreign encoders", _write_model("electra"), weight=0.7)(_read_encoder)


@_reader(
    "finetuned models",
    _write_model("xlm-roberta", suffix="ForTokenClassification", num_labels=3),
    weight=0.7,
)
def _read_finetuned(folder: Path) -> None:
    from metaxlm.model.finetuned import load_finetuned

    load_finetuned(folder / "model")


def _write_checkpoints(folder: Path) -> None:
    import torch

    from metaxlm.pretrain.checkpoint import Checkpoint, TrainingState, save_checkpoint

    tensors = {"a": torch.ones(3, 4), "b": torch.zeros(5)}
    save_checkpoint(folder, Checkpoint(tensors, tensors, TrainingState(step=2)))
    # What a manifest of another version vouches for, too.
    other = save_checkpoint(folder / "other", Checkpoint(tensors, tensors, TrainingState(step=3)))
    (other / "manifest.json").unlink()


@_reader("checkpoints", _write_checkpoints)
def _read_checkpoints(folder: Path) -> None:
    from metaxlm.manifest import write_manifest
    from metaxlm.pretrain.checkpoint import load_newest

    load_newest(folder)
    other = folder / "other/step-00000003"
    if all(path.is_file() for path in other.iterdir()):
        write_manifest(other, {"step": 3})
        try:
            load_newest(folder / "other")
        finally:
            (other / "manifest.json").unlink()


def _write_shards(folder: Path) -> None:
    from tests.conftest import sentences
    from tests.model.conftest import make_unigram_tokenizer

    from metaxlm.data.shards import write_shard

    write_shard(folder / "en", sentences("en"), make_unigram_tokenizer())


@_reader("shards", _write_shards, weight=0.5)
def _read_shards(folder: Path) -> None:
    from metaxlm.data.shards import open_shard
    from metaxlm.data.statistics import collect_statistics

    shard = open_shard(folder / "en")
    shard.sentence(0)
    collect_statistics(folder, 0.7, "tokens")


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
        outcome.refused += 1
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
