"""What a second round adds where half of the dictionary is missing, on the built-in corpus.

    python benchmarks/dictionary_growth.py --seeds 3

Half of the English words of each dictionary are removed. Variants are initialized without
dictionaries (plain), with the halves (first), with the halves and words that `first` links in
sentence pairs (second), and with whole dictionaries (whole). Pairs with a test sentence are left
out. New entries are counted as right if the whole dictionary has them; names and words that it
lacks are not counted. Takes some minutes per seed on one core.
"""

import argparse
import random
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from metaxlm.analysis.run_folder import read_run
from metaxlm.analysis.score_tables import summarize
from metaxlm.analysis.stats import mean
from metaxlm.data.demo import write_phrasebook
from metaxlm.finetune.readers.parallel import read_tatoeba
from metaxlm.recipe import PhrasebookRecipe

LANGUAGES = ("de", "fr", "ru", "tr")
SIZES = {"source_sentences": 10_000, "sentences": 3_000, "aligned_pairs": 100, "test_pairs": 150}
TRAINING = {
    "batch_size": 16, "length": 64, "learning_rate": 2e-3, "mask_probability": 0.3,
    "checkpoint_every": 500,
}  # fmt: skip
VARIANTS = {
    "plain": {},
    "first": {"dictionaries": True},
    "second": {"dictionaries": True, "grow": {"variant": "first", "pairs": "pairs"}},
    "whole": {"dictionaries": True, "matching": {"dictionaries": "all/tasks/muse"}},
}
RECIPE = {
    "name": "growth",
    "languages": ["en", *LANGUAGES],
    "corpus": {"phrasebook": SIZES},
    "vocabulary": {"size": 4_000, "monolingual_size": 2_500},
    "model": {"layers": 2, "hidden": 64, "heads": 4, "ffn": 256, "max_positions": 128},
    "meta": {"steps": 500, "warmup_steps": 50, **TRAINING},
    "matching": {"dictionaries": "half"},
    "pretraining": {"steps": 200, "warmup_steps": 20, **TRAINING},
    "variants": VARIANTS,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    scores: dict[tuple[str, str], list[float]] = defaultdict(list)
    counts: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for seed in range(1, options.seeds + 1):
        with TemporaryDirectory() as name:
            place = Path(name)
            prepare(place, seed)
            command = [sys.executable, "-m", "metaxlm", "run", "growth.yaml", "--quiet"]
            subprocess.run(command, cwd=place, check=True)
            for variant, one in summarize(read_run(place / "runs" / "growth").results).items():
                for part in ("retrieval", "alignment"):
                    scores[variant, part].append(100 * mean(one[part]))
            for language in LANGUAGES:
                counts[language].append(count_right(place, language))
    print("| variant | retrieval | alignment errors |\n|---|---:|---:|")
    for variant in VARIANTS:
        shown = (scores[variant, part] for part in ("retrieval", "alignment"))
        cells = (f"{sum(s) / len(s):.1f} ({', '.join(f'{x:.1f}' for x in s)})" for s in shown)
        print(f"| {variant} | {' | '.join(cells)} |")
    print("\n| language | new entries | right |\n|---|---:|---:|")
    for language, found in counts.items():
        new, right = map(sum, zip(*found, strict=True))
        print(f"| {language} | {new} | {right / new:.0%} |")


def prepare(place: Path, seed: int) -> None:
    """Write the recipe, half dictionaries and sentence pairs."""
    for name, num_pairs in (("all", 500), ("test", SIZES["test_pairs"])):
        sizes = PhrasebookRecipe(**SIZES | {"test_pairs": num_pairs})
        write_phrasebook(place / name, ["en", *LANGUAGES], seed, sizes)
    for name in ("half", "pairs"):
        (place / name).mkdir()
    for language in LANGUAGES:
        lines = sorted(read_entries(place / "all" / "tasks" / "muse" / f"en-{language}.txt"))
        words = sorted({word for word, _ in lines})
        kept = set(random.Random(seed).sample(words, len(words) // 2))
        half = "".join(f"{a} {b}\n" for a, b in lines if a in kept)
        (place / "half" / f"en-{language}.txt").write_text(half, encoding="utf-8")
        tests = list(read_tatoeba(place / "test" / "tasks", language).english)
        for path in (place / "test" / "tasks" / "wordalign").rglob("test.en"):
            tests += path.read_text(encoding="utf-8").splitlines()
        known = set(map(spell, tests))
        pairs = read_tatoeba(place / "all" / "tasks", language)
        rows = [
            f"{english}\t{foreign}\n"
            for english, foreign in zip(pairs.english, pairs.foreign, strict=True)
            if spell(english) not in known
        ]
        (place / "pairs" / f"en-{language}.tsv").write_text("".join(rows), encoding="utf-8")
    recipe = yaml.safe_dump(RECIPE | {"seed": seed}, sort_keys=False)
    (place / "growth.yaml").write_text(recipe, encoding="utf-8")


def spell(text: str) -> str:
    """Return the letters and digits of a text."""
    return re.sub(r"\W", "", text.lower())


def count_right(place: Path, language: str) -> tuple[int, int]:
    """Return how many entries were added, and how many of them the whole dictionary has."""
    grown = place / "runs" / "growth" / "variants" / "second" / "dictionaries"
    folders = (grown, place / "half", place / "all" / "tasks" / "muse")
    found, half, whole = (read_entries(folder / f"en-{language}.txt") for folder in folders)
    known = {word for word, _ in whole}
    new = {(word, other) for word, other in found - half if word in known and word != other}
    return len(new), len(new & whole)


def read_entries(path: Path) -> set[tuple[str, str]]:
    """Return the entries of a dictionary in lower case."""
    lines = path.read_text(encoding="utf-8").lower().splitlines()
    return {(word, other) for word, other in (line.split(None, 1) for line in lines)}


if __name__ == "__main__":
    main()
