"""Vocabulary matching beside WECHSEL, FOCUS and mergekit's tokensurgeon, on one pair of tokenizers.

    python benchmarks/vocabulary_transfer.py --source MODEL --target TOKENIZER \
        --dictionaries MUSE --text runs/x/corpus/text --language de \
        --peer-python wechsel=PYTHON --peer-python deepfocus=PYTHON --peer-python mergekit=PYTHON

Every tool gets the same source model and the same target tokenizer, and gives a matrix of word
rows. What a row starts from is read off that matrix, one way for all:

- copied: bit for bit one row of the source;
- composed: a combination of several source rows;
- blind: the source's unknown token (for any token but the target's own unknown), a row of zeros, or
  a combination that knows nothing of the token: all its character n-grams are foreign to the text
  that the word vectors were trained on, so that they are still fastText's random start;
- random: drawn. These rows differ when the tool runs with another seed; WECHSEL has a fixed seed,
  but returns the list of tokens that it drew.

With more source rows than dimensions every row is some combination of source rows, so composed is
what the other three leave; a mean in which the unknown token is one of several rows is among them.
A row counts as started if it is copied or composed. This says how many rows start from something,
not how good it is: a translation and a guess from a neighbor count alike. WECHSEL serves one
language a run; FOCUS and metaxlm get all languages of the text folder.

A peer runs in the Python named for it, else in this one, where it can be imported; `transformers`
must be there too. Word vectors are trained on the first `--lines` sentences of each language with
the peer's own function and settings, and their time is listed separately.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module, metadata
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

# The peers' Pythons run this file too, and need not have metaxlm: it is imported where it is used.
if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from metaxlm.model.encoder import EncoderConfig
    from metaxlm.model.huggingface import Pretrained
    from metaxlm.model.masked_lm import MaskedLM

PEERS = ("wechsel", "deepfocus", "mergekit")
KINDS = ("copied", "composed", "blind", "random")
COPIED, COMPOSED, BLIND, RANDOM = range(len(KINDS))
Rows = NDArray[np.float32]
Mask = NDArray[np.bool_]
Task = dict[str, Any]
Made = Iterator[dict[str, Any]]


@dataclass(frozen=True)
class Pair:
    """What every tool starts from."""

    source: Pretrained
    target: PreTrainedTokenizerBase
    config: EncoderConfig
    """Sizes of the source, with as many rows as the target has tokens."""
    rows_VD: Rows
    """Word rows of the source."""
    folder: Path
    """Where the tools find what they need and write what they make."""


@dataclass(frozen=True)
class Start:
    """What one tool made of the pair."""

    tool: str
    kinds: NDArray[np.uint8]
    """Place in `KINDS` of each target row."""
    transfer_s: float
    vectors_s: float = 0.0
    dictionary: str = "none"
    output: str = "word rows"


def main() -> None:
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2], Path(sys.argv[3]))
        return
    options = parse()
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    with TemporaryDirectory(prefix="metaxlm-bench-") as folder:
        compare(options, Path(folder))


def parse() -> Namespace:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--source", type=Path, required=True, help="model folder")
    parser.add_argument("--target", type=Path, required=True, help="tokenizer folder")
    parser.add_argument("--dictionaries", type=Path, required=True, help="folder of en-XX.txt")
    parser.add_argument("--text", type=Path, required=True, help="prepared text, a folder each")
    parser.add_argument("--language", default="de", help="the one that WECHSEL gets")
    parser.add_argument("--lines", type=int, default=20_000, help="sentences of each language")
    parser.add_argument("--threads", type=int, default=1, help="of every tool")
    parser.add_argument("--donor", type=Path, help="trained model with the target tokenizer")
    parser.add_argument("--peer-python", action="append", default=[], metavar="NAME=PYTHON")
    options = parser.parse_args()
    options.pythons = dict(item.partition("=")[::2] for item in options.peer_python)
    if unknown := set(options.pythons) - set(PEERS):
        parser.error(f"no peer {', '.join(sorted(unknown))}; there are {', '.join(PEERS)}")
    return options


def compare(options: Namespace, folder: Path) -> None:
    """Run all tools that are there; print the table last."""
    pair = load_pair(options.source, options.target, folder)
    is_used = write_material(options, pair, folder)
    starts = list(run_ours(options, pair))
    missing = []
    if options.donor is None:
        missing.append("tokensurgeon's default method (omp) did not run: it needs a trained model "
                       "that already has the target tokenizer (--donor)")  # fmt: skip
    for name in PEERS:
        python = options.pythons.get(name, sys.executable)
        try:
            run_quietly([python, "-c", f"import {name}, transformers"])
            run = run_surgeon if name == "mergekit" else run_worker
            starts += run(name, python, options, pair)
        except (subprocess.CalledProcessError, OSError) as error:
            lines = [str(error), *str(getattr(error, "stderr", "")).strip().splitlines()]
            missing.append(f"{name} did not run: {lines[-1]}")
    explain(options, pair, is_used)
    print(*missing, sep="\n")
    show(options.language, starts, is_used)


def load_pair(source: Path, target: Path, folder: Path) -> Pair:
    from transformers import AutoTokenizer

    from metaxlm.model.huggingface import load_pretrained

    loaded, tokenizer = load_pretrained(source), AutoTokenizer.from_pretrained(target)
    pad_id = int(tokenizer.pad_token_id)
    config = replace(loaded.model.config, vocab_size=len(tokenizer), pad_id=pad_id)
    return Pair(loaded, tokenizer, config, read_rows(loaded.model), folder)


def read_rows(model: MaskedLM) -> Rows:
    rows: Rows = model.encoder.words.weight.detach().numpy()
    return rows


def write_material(options: Namespace, pair: Pair, folder: Path) -> Mask:
    """Write what the peers need; return which target rows the one language's text uses."""
    from metaxlm.data.text import read_sentences
    from metaxlm.init.dictionaries import load_dictionaries

    np.save(folder / "source.npy", pair.rows_VD)
    with (folder / "all.txt").open("w", encoding="utf-8") as joined:
        for language in sorted(path for path in options.text.iterdir() if path.is_dir()):
            lines = [f"{line}\n" for line in islice(read_sentences(language), options.lines)]
            joined.writelines(lines)
            (folder / f"{language.name}.txt").write_text("".join(lines), encoding="utf-8")
    pairs = load_dictionaries(options.dictionaries, [options.language]).by_language
    lines = [f"{english}\t{word}\n" for word, english in pairs[options.language]]
    (folder / "dictionary.txt").write_text("".join(lines), encoding="utf-8")
    task = {"source": str(options.source.resolve()), "target": str(options.target.resolve()),
            "threads": options.threads, "language": options.language}  # fmt: skip
    (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
    text = (folder / f"{options.language}.txt").read_text(encoding="utf-8").splitlines()
    is_used = np.zeros(len(pair.target), bool)
    for ids in pair.target(text, add_special_tokens=False)["input_ids"]:
        is_used[ids] = True
    return is_used


def classify(pair: Pair, rows_VD: Rows, is_random: Mask, is_blind: Mask) -> NDArray[np.uint8]:
    """Return the kind of origin of each row of a tool's output."""
    assert rows_VD.shape == (len(pair.target), pair.rows_VD.shape[1])
    known = {row.tobytes() for row in pair.rows_VD}
    unknown = pair.rows_VD[pair.source.tokenizer.unk_token_id].tobytes()
    kinds = np.full(len(rows_VD), COMPOSED, np.uint8)
    kinds[is_blind | ~rows_VD.any(axis=1)] = BLIND
    kinds[is_random] = RANDOM
    for number, row in enumerate(rows_VD.astype(np.float32)):
        if (found := row.tobytes()) in known:
            is_own = found != unknown or number == pair.target.unk_token_id
            kinds[number] = COPIED if is_own else BLIND
    return kinds


def run_ours(options: Namespace, pair: Pair) -> Iterator[Start]:
    """Plan and apply, with more dictionaries each time."""
    from metaxlm.data.statistics import count_corpus
    from metaxlm.init.dictionaries import load_dictionaries
    from metaxlm.init.match_plan import Counts, make_plan
    from metaxlm.init.start import Parts, initialize
    from metaxlm.progress import set_quiet
    from metaxlm.recipe import MatchingRecipe

    set_quiet(True)
    source, both = pair.source, Parts.preset("both")
    languages = sorted(path.name for path in options.text.iterdir() if path.is_dir())
    recipe, filled = MatchingRecipe(), MatchingRecipe(filler="subwords")
    by_use = MatchingRecipe(
        precedence="frequency_weighted", one_to_many="order", split_words="all", segments=True
    )
    variants: list[tuple[str, list[str], MatchingRecipe]] = [
        ("rules", [], recipe),
        ("rules, dictionary", [options.language], recipe),
        ("rules, dictionaries", languages, recipe),
        ("the same, subword filler", languages, filled),
        ("dictionaries by use", languages, by_use),
    ]
    for name, wanted, recipe in variants:
        start = time.perf_counter()
        loaded = load_dictionaries(options.dictionaries, wanted) if wanted else None
        counts = Counts()
        if recipe is by_use:
            counts = Counts(target=count_corpus(options.text, pair.target, limit=options.lines))
        plan = make_plan(pair.target, source.tokenizer, recipe, loaded, counts)
        rows_VD = read_rows(initialize(pair.config, source.model, plan, both, seed=1))
        seconds = time.perf_counter() - start
        again_VD = read_rows(initialize(pair.config, source.model, plan, both, seed=2))
        is_random = (rows_VD != again_VD).any(axis=1)
        kinds = classify(pair, rows_VD, is_random, np.zeros_like(is_random))
        found = list(loaded.by_language) if loaded else ["none"]
        dictionary = found[0] if len(found) == 1 else f"{len(found)} languages"
        yield Start(f"metaxlm: {name}", kinds, seconds, 0, dictionary, "whole model, bias, head")


def run_worker(name: str, python: str, options: Namespace, pair: Pair) -> Iterator[Start]:
    """Run a peer that is a library, in a process of its own."""
    folder = pair.folder
    # The caches of the peers belong to this run: else a second one would not train anything.
    caches = {key: str(folder / "cache") for key in ("XDG_CACHE_HOME", "HF_HOME")}
    command = [python, str(Path(__file__).resolve()), "work", name, str(folder)]
    run_quietly(command, os.environ | caches)
    for path in sorted(folder.glob(f"{name}*.npz")):
        found = np.load(path)
        kinds = classify(pair, found["rows"], found["is_random"], found["is_blind"])
        dictionary = options.language if name == "wechsel" else "none"
        transfer_s, vectors_s = found["seconds"].tolist()
        yield Start(str(found["tool"]), kinds, transfer_s, vectors_s, dictionary)


def work(name: str, folder: Path) -> None:
    """Run one peer and write what it made; this runs in the peer's Python."""
    task = json.loads((folder / "task.json").read_text(encoding="utf-8"))
    auto = import_module("transformers").AutoTokenizer
    source, target = (auto.from_pretrained(task[side]) for side in ("source", "target"))
    work_with = work_with_wechsel if name == "wechsel" else work_with_focus
    for number, result in enumerate(work_with(task, source, target, folder)):
        np.savez(folder / f"{name}-{number}.npz", **result)


def work_with_wechsel(task: Task, source: Any, target: Any, folder: Path) -> Made:
    wechsel, words = import_module("wechsel"), import_module("regex").compile(r"\w+|[^\w\s]")
    start = time.perf_counter()
    settings = {"tokenize_fn": words.findall, "thread": task["threads"]}
    english, other = (wechsel.train_embeddings(str(folder / f"{language}.txt"), **settings)
                      for language in ("en", task["language"]))  # fmt: skip
    vectors_s = time.perf_counter() - start
    start = time.perf_counter()
    dictionary = str(folder / "dictionary.txt")
    transfer = wechsel.WECHSEL(english, other, "bilingual_dictionary", dictionary)
    rows, info = transfer.apply(source, target, np.load(folder / "source.npy"))
    transfer_s = time.perf_counter() - start
    drawn, seen = set(info.not_found), set[int]()
    for word in other.get_words():
        seen.update(other.get_subwords(word)[1].tolist())
    every = range(len(target))
    # As the peer reads a token: decoded, without the space around it.
    grams = (other.get_subwords(target.decode(row).strip())[1].tolist() for row in every)
    yield {
        "tool": f"WECHSEL {metadata.version('wechsel')}: {task['language']}",
        "rows": rows.astype(np.float32),
        "is_random": np.array([t in drawn for t in target.convert_ids_to_tokens(every)]),
        "is_blind": np.array([seen.isdisjoint(found) for found in grams]),
        "seconds": [transfer_s, vectors_s],
    }


def work_with_focus(task: Task, source: Any, target: Any, folder: Path) -> Made:
    focus, version = import_module("deepfocus").FOCUS, metadata.version("deepfocus")
    source_VD = import_module("torch").from_numpy(np.load(folder / "source.npy"))

    def run(seed: int, is_fuzzy: bool) -> tuple[Rows, float]:
        start = time.perf_counter()
        made = focus(target, source, source_VD, target_training_data_path=str(folder / "all.txt"),
                     fuzzy_match_all=is_fuzzy, processes=task["threads"], seed=seed,
                     verbosity="silent")  # fmt: skip
        return made.numpy(), time.perf_counter() - start

    vectors_s = 0.0
    for is_fuzzy in (False, True):
        (again, first_s), (rows, transfer_s) = run(1, is_fuzzy), run(2, is_fuzzy)
        # The very first call trains the word vectors and keeps them: the difference is their time.
        vectors_s = vectors_s or first_s - transfer_s
        is_random = (rows != again).any(axis=1)
        yield {
            "tool": f"FOCUS {version}: {'fuzzy match' if is_fuzzy else 'exact match'}",
            "rows": rows,
            "is_random": is_random,
            "is_blind": np.zeros_like(is_random),
            "seconds": [transfer_s, vectors_s],
        }


def run_surgeon(name: str, python: str, options: Namespace, pair: Pair) -> Iterator[Start]:
    """Run mergekit's command, which takes two model folders and writes a third."""
    from safetensors.numpy import load_file

    from metaxlm.init.start import Parts, initialize
    from metaxlm.model.huggingface import load_pretrained

    ask = f"from importlib.metadata import version; print(version('{name}'))"
    version = run_quietly([python, "-c", ask]).strip()
    source = dress(pair.source.model, pair.source.tokenizer, pair.folder / "source")
    # The method `subword` takes nothing but the tokenizer from the donor, so a fresh one serves.
    fresh = initialize(pair.config, None, None, Parts.preset("none"), seed=1)
    donor = dress(fresh, pair.target, pair.folder / "donor")
    # The command knows the word starts of few tokenizer classes; T5's are written as the target's.
    runs = [("subword", donor), ("subword", rename_tokenizer(donor, "T5Tokenizer"))]
    if options.donor is not None:
        trained = load_pretrained(options.donor)
        runs.append(("omp", dress(trained.model, trained.tokenizer, pair.folder / "trained")))
    command = [python, "-m", "mergekit.scripts.tokensurgeon", str(source)]
    for method, donor in runs:
        output = pair.folder / f"made-{method}-{donor.name}"
        start = time.perf_counter()
        run_quietly([*command, str(donor), str(output), "--quiet", "-a", method])
        seconds = time.perf_counter() - start
        tensors = load_file(output / "model.safetensors")
        rows_VD = tensors["roberta.embeddings.word_embeddings.weight"]
        nowhere = np.zeros(len(pair.target), bool)
        kinds = classify(pair, rows_VD, nowhere, nowhere)
        parts = {"bias": "lm_head.bias", "head": "lm_head.dense.weight"}
        written = ["whole model", *(part for part, key in parts.items() if key in tensors)]
        label = f"{method}, T5 word starts" if donor.name == "T5Tokenizer" else method
        yield Start(f"tokensurgeon {version}: {label}", kinds, seconds, output=", ".join(written))


def dress(model: MaskedLM, tokenizer: PreTrainedTokenizerBase, folder: Path) -> Path:
    """Write a model as RoBERTa: BERT and XLM-R folders stop the command."""
    from metaxlm.model.huggingface import save_pretrained

    save_pretrained(model, tokenizer, folder, "")
    roberta = {"architectures": ["RobertaForMaskedLM"], "model_type": "roberta"}
    rewrite(folder / "config.json", roberta)
    return folder


def rename_tokenizer(donor: Path, tokenizer_class: str) -> Path:
    """Copy a folder, its tokenizer under another class; the tokens and their rows stay."""
    copy = shutil.copytree(donor, donor.parent / tokenizer_class)
    rewrite(copy / "tokenizer_config.json", {"tokenizer_class": tokenizer_class, "extra_ids": 0})
    return copy


def rewrite(path: Path, values: dict[str, Any]) -> None:
    found = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(found | values), encoding="utf-8")


def run_quietly(command: list[str], environment: dict[str, str] | None = None) -> str:
    """Run a command; its output is only seen if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout


def explain(options: Namespace, pair: Pair, is_used: Mask) -> None:
    """Print what was run and how rows were counted."""
    print("- copied" + (__doc__ or "").split("- copied", 1)[1].split("A peer runs", 1)[0])
    print(
        f"source {len(pair.rows_VD):,} rows, target {len(pair.target):,} rows; word vectors from "
        f"{options.lines:,} sentences a language; those of {options.language} use "
        f"{is_used.sum():,} target rows, {is_used.mean():.1%} of all.\nSeconds are wall time, "
        f"{options.threads} thread(s); tokensurgeon's are its whole command, start and all."
    )


def show(language: str, starts: list[Start], is_used: Mask) -> None:
    """Print the table."""
    from rich.console import Console
    from rich.table import Table

    table = Table("tool", *KINDS, "started", f"of {language} rows", "vectors s",
                  "transfer s", "dictionary", "output")  # fmt: skip
    for start in starts:
        counts = np.bincount(start.kinds, minlength=len(KINDS))
        is_started = start.kinds <= COMPOSED
        numbers = [f"{is_started.mean():.1%}", f"{is_started[is_used].mean():.1%}",
                   f"{start.vectors_s:.1f}", f"{start.transfer_s:.1f}"]  # fmt: skip
        cells = [f"{count:,}" for count in counts]
        table.add_row(start.tool, *cells, *numbers, start.dictionary, start.output)
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
