"""Rewriting of English sentences with dictionaries: sentences per second of one core's time.

    python benchmarks/rewriting.py --text en.txt --dictionaries muse/ wiktionary/

`--text` has one sentence per line; those of 15 to 25 words are used. Prints the seconds of the
tables, and the sentences per second with and without phrases.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path

import numpy as np

from metaxlm.init.dictionaries import Dictionaries, load_dictionaries
from metaxlm.sentences.rewriting import DictionaryPairs, Rewriting
from metaxlm.streams import open_stream


def read_sentences(path: Path, most: int) -> list[str]:
    with open_stream(path) as stream:
        lines = (line.decode().strip() for line in stream)
        fitting = (line for line in lines if 15 <= len(line.split()) <= 25)
        return list(itertools.islice(fitting, most))


def measure(
    sentences: list[str], dictionaries: Dictionaries, phrases: bool, batch_size: int
) -> tuple[float, float]:
    """Return the seconds of the tables, and the sentences per second."""
    started = time.process_time()
    pairs = DictionaryPairs(sentences, dictionaries, seed=1, settings=Rewriting(phrases=phrases))
    made = time.process_time()
    num_drawn = 0
    while (passed := time.process_time() - made) < 5:
        pairs.draw(np.arange(num_drawn, num_drawn + batch_size))
        num_drawn += batch_size
    return made - started, num_drawn / passed


def main() -> None:
    """Read, rewrite, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--dictionaries", type=Path, nargs="+", required=True)
    parser.add_argument("--languages", nargs="+")
    parser.add_argument("--sentences", type=int, default=100_000)
    parser.add_argument("--batch-size", type=int, default=512)
    arguments = parser.parse_args()
    sentences = read_sentences(arguments.text, arguments.sentences)
    dictionaries = load_dictionaries(arguments.dictionaries, arguments.languages)
    words = sum(len(sentence.split()) for sentence in sentences) / len(sentences)
    print(
        f"{len(sentences):,} sentences of {words:.1f} words, "
        f"{len(dictionaries.by_language)} languages, batches of {arguments.batch_size}"
    )
    print("\n| phrases | tables, s | sentences/s |\n|---|---:|---:|")
    for phrases in (True, False):
        seconds, rate = measure(sentences, dictionaries, phrases, arguments.batch_size)
        print(f"| {'yes' if phrases else 'no'} | {seconds:.1f} | {rate:,.0f} |")


if __name__ == "__main__":
    main()
