"""Vocabulary matching at full size: XLM-R's pieces against RoBERTa's tokens, counted and timed.

    python benchmarks/matching.py --vocabularies DIR --dictionaries DIR

`--vocabularies` holds `xlmr-pieces.txt.xz` (one piece per line), `roberta-encoder.json` and
`roberta-vocab.bpe`; `--dictionaries` MUSE's files. Prints the rows that each rule matches, on its
own and together, the coverage by script without and with dictionaries, and the seconds on one core.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from transformers import RobertaTokenizerFast

from metaxlm.init.dictionaries import load_dictionaries
from metaxlm.init.ledger import coverage
from metaxlm.init.match_plan import Plan, make_plan
from metaxlm.init.vocabulary import NormalizedVocab, list_vocabulary, read_vocabulary
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.tokens import Kind


def read_pieces(path: Path) -> NormalizedVocab:
    """Read a list of SentencePiece pieces."""
    text = lzma.decompress(path.read_bytes()).decode()
    # Not splitlines: one of the pieces is itself a line separator.
    return list_vocabulary(text.removesuffix("\n").split("\n"), Kind.SENTENCEPIECE)


def read_roberta(folder: Path) -> NormalizedVocab:
    """Read RoBERTa's tokenizer from GPT-2's two files; its special tokens come after them."""
    tokens = json.loads((folder / "roberta-encoder.json").read_text(encoding="utf-8"))
    lines = (folder / "roberta-vocab.bpe").read_text(encoding="utf-8").split("\n")
    merges = [tuple(line.split()) for line in lines if line and not line.startswith("#version")]
    return read_vocabulary(RobertaTokenizerFast(vocab=tokens, merges=merges))


def main() -> None:
    """Match, count, time, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--vocabularies", type=Path, required=True)
    parser.add_argument("--dictionaries", type=Path, required=True)
    arguments = parser.parse_args()
    target = read_pieces(arguments.vocabularies / "xlmr-pieces.txt.xz")
    source = read_roberta(arguments.vocabularies)

    started = time.perf_counter()
    rules = make_plan(target, source, MatchingRecipe())
    seconds = {"rules": time.perf_counter() - started}
    plans: dict[str, Plan] = {"rules": rules}
    for name, recipe in {
        "+ dictionaries, word starts, one token": MatchingRecipe(
            pieces="word_start", multi_token=False
        ),
        "+ dictionaries, any piece, one token": MatchingRecipe(multi_token=False),
        "+ dictionaries, any piece, several tokens": MatchingRecipe(),
    }.items():
        started = time.perf_counter()
        dictionaries = load_dictionaries(arguments.dictionaries)
        plans[name] = make_plan(target, source, recipe, dictionaries)
        seconds[name] = time.perf_counter() - started

    print(f"{len(target):,} pieces against {len(source):,} tokens, one core")
    print("\n| rule | rows | together | share |\n|---|---:|---:|---:|")
    together = 0
    for rule, count in rules.count_rules().items():
        if count and rule != "filler":
            together += count
            print(f"| {rule} | {count:,} | {together:,} | {together / len(target):.1%} |")
    print("\n| plan | rows that start from something | share | seconds |\n|---|---:|---:|---:|")
    for name, plan in plans.items():
        matched = int(plan.is_matched.sum())
        print(f"| {name} | {matched:,} | {matched / len(target):.1%} | {seconds[name]:.1f} |")
    before, after = (
        coverage(plans[name])["by_script"] for name in (next(iter(plans)), list(plans)[-1])
    )
    print("\n| script | rows | rules | with dictionaries |\n|---|---:|---:|---:|")
    for script, one in before.items():
        shares = [found[script]["matched"] / one["rows"] for found in (before, after)]
        print(f"| {script} | {one['rows']:,} | {shares[0]:.1%} | {shares[1]:.1%} |")


if __name__ == "__main__":
    main()
