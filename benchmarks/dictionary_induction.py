"""Precision at 1 of dictionaries induced from text, against MUSE's test range.

    python benchmarks/dictionary_induction.py --text CORPORA --muse MUSE --languages de,es,ru,tr,zh

The seed is the first 5,000 English words of MUSE's file, the test the next 1,500. A test word
counts if it and one of its translations are among the words of the vectors, as in MUSE's and
VecMap's own evaluation. `bound` is the share of all test words that count, `of all` the share that
is found, and `occurrences` the median count of their translations in the text. `--test 3500-5000`
is for choosing settings: its seed is the 3,500 words before. `--vectors` keeps the vectors of each
language for the next call.

    python benchmarks/dictionary_induction.py --score DICTIONARIES --muse MUSE --languages de,es

scores the first translations of finished dictionaries instead, such as those of
`metaxlm dictionary induce --model`: of all words that MUSE has, and of its test words.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from metaxlm.dictionary import induction
from metaxlm.dictionary.vectors import Matrix, WordVectors, train_vectors
from metaxlm.probe.nearest import find_both

Gold = dict[str, list[str]]


def read_muse(path: Path) -> Gold:
    gold: Gold = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        word, translation = line.split("\t") if "\t" in line else line.split()
        gold.setdefault(word.lower(), []).append(translation.lower())
    return gold


def load_vectors(text: Path, language: str, known: list[str], cache: Path | None) -> WordVectors:
    path = None if cache is None else cache / f"{language}.npz"
    if path is not None and path.is_file():
        with np.load(path) as stored:
            words, counts, vectors_VD = stored["words"], stored["counts"], stored["vectors_VD"]
        return WordVectors(language, words.tolist(), counts, vectors_VD)
    found = train_vectors([text / f"{language}.txt.xz"], language, known=known)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        words = np.array(found.words)
        np.savez(path, words=words, counts=found.counts, vectors_VD=found.vectors_VD)
    return found


def find_best(source_VD: Matrix, target_WD: Matrix, *, csls: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the best target of each source, and the best source of each target."""
    forward, backward = find_both(source_VD, target_WD, k=induction.NEIGHBORS)
    if not csls:
        return forward.indices_Qk[:, 0].numpy(), backward.indices_Qk[:, 0].numpy()
    means = [side.similarities_Qk.mean(dim=1) for side in (forward, backward)]
    best = []
    for side, other in ((forward, means[1]), (backward, means[0])):
        places = (2 * side.similarities_Qk - other[side.indices_Qk]).argmax(dim=1, keepdim=True)
        best.append(side.indices_Qk.gather(1, places)[:, 0].numpy())
    return best[0], best[1]


def map_seed_only(source: WordVectors, target: WordVectors, seeds: np.ndarray) -> np.ndarray:
    """Rotate with the seed, and take the nearest by cosine."""
    first, second = (induction.normalize(side.vectors_VD) for side in (source, target))
    return find_best(*induction.map_orthogonal(first, second, seeds), csls=False)[0]


def map_vecmap(
    source: WordVectors, target: WordVectors, seeds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Normalize, whiten, rotate, weigh, CSLS; return this, and again with the mutual best pairs."""
    first, second = (induction.normalize(side.vectors_VD) for side in (source, target))
    forward, backward = find_best(*induction.map_whitened(first, second, seeds), csls=True)
    rows = np.arange(len(forward))
    mutual = rows[(backward[forward] == rows) & ~np.isin(rows, seeds[:, 0])]
    pairs = np.concatenate([seeds, np.stack([mutual, forward[mutual]], axis=1)])
    return forward, find_best(*induction.map_whitened(first, second, pairs), csls=True)[0]


def score_dictionaries(
    folder: Path, muse: Path, languages: list[str], first: int, last: int
) -> None:
    """Print the precision at 1 of finished dictionaries."""
    heads = ["entries", "words", "in MUSE", "precision", "test words", "precision", "of all"]
    print(f"| language | {' | '.join(heads)} |\n|---{'|---:' * len(heads)}|")
    for language in languages:
        name = f"en-{language}.txt"
        gold, found = read_muse(muse / name), read_muse(folder / name)
        cells = [f"{sum(map(len, found.values())):,}", f"{len(found):,}"]
        tested = list(gold)[first:last]
        for words in (list(gold), tested):
            known = [word for word in words if word in found]
            right = sum(found[word][0] in gold[word] for word in known)
            cells += [f"{len(known):,}", f"{100 * right / max(1, len(known)):.1f}"]
        cells.append(f"{100 * right / len(tested):.1f}")
        print(f"| {language} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--text", type=Path, help="folder with files like de.txt.xz")
    parser.add_argument("--score", type=Path, help="folder of finished dictionaries to score")
    parser.add_argument("--muse", type=Path, required=True, help="folder with en-de.txt")
    parser.add_argument("--languages", default="de,es,ru,tr,zh")
    parser.add_argument("--test", default="5000-6500", help="test words; the seed is before them")
    parser.add_argument("--vectors", type=Path, help="folder that keeps word vectors")
    parser.add_argument("--identical", action="store_true", help="also measure without a seed")
    arguments = parser.parse_args()
    first, last = map(int, arguments.test.split("-"))
    languages = arguments.languages.split(",")
    if arguments.score is not None:
        score_dictionaries(arguments.score, arguments.muse, languages, first, last)
        return
    if arguments.text is None:
        parser.error("give --text, or --score")
    torch.set_num_threads(1)
    english = load_vectors(arguments.text, "en", [], arguments.vectors)
    names = ["seed only", "VecMap", "VecMap+", "ours"]
    names += ["identical"] if arguments.identical else []
    heads = [
        *names,
        "words",
        "bound",
        "of all",
        "occurrences",
        "kept",
        "precision",
        "held out",
        "minutes",
    ]
    print(f"| language | {' | '.join(heads)} |\n|---{'|---:' * len(heads)}|", flush=True)
    rows = []
    for language in languages:
        gold = read_muse(arguments.muse / f"en-{language}.txt")
        words = list(gold)
        seed = [(word, form) for word in words[:first] for form in gold[word]]
        known = [form for _, form in seed]
        target = load_vectors(arguments.text, language, known, arguments.vectors)
        started = time.perf_counter()
        indices = english.find_indices(), target.find_indices()
        seeds = np.array(
            [(indices[0][a], indices[1][b]) for a, b in seed if a in indices[0] and b in indices[1]]
        )
        tested = {
            word: [form for form in gold[word] if form in indices[1]]
            for word in words[first:last]
            if word in indices[0] and any(form in indices[1] for form in gold[word])
        }

        def score(best: dict[str, str], tested: dict[str, list[str]] = tested) -> float:
            return (
                100 * sum(best.get(word) in forms for word, forms in tested.items()) / len(tested)
            )

        def name_best(best: np.ndarray, target: WordVectors = target) -> dict[str, str]:
            return {
                word: target.words[row]
                for word, row in zip(english.words, best.tolist(), strict=True)
            }

        scores = [
            score(name_best(map_seed_only(english, target, seeds))),
            *(score(name_best(best)) for best in map_vecmap(english, target, seeds)),
        ]
        found = induction.induce(english, target, seed)
        scores.append(score(found.translate()))
        if arguments.identical:
            scores.append(score(induction.induce(english, target).translate()))
        occurrences = [
            max(target.counts[indices[1][form]] for form in forms) for forms in tested.values()
        ]
        entries = {entry.source: entry.target for entry in found.make_entries("").entries}
        kept = {word: entries[word] for word in tested if word in entries}
        right = sum(kept[word] in gold[word] for word in kept)
        cells = [
            *(f"{value:.1f}" for value in scores), f"{len(tested)}",
            f"{100 * len(tested) / (last - first):.1f}",
            f"{scores[3] * len(tested) / (last - first):.1f}", f"{np.median(occurrences):.0f}",
            f"{len(kept)}",
            f"{100 * right / max(1, len(kept)):.1f}", f"{100 * found.reached.share:.1f}",
            f"{(time.perf_counter() - started) / 60:.1f}",
        ]  # fmt: skip
        rows.append(scores)
        print(f"| {language} | " + " | ".join(cells) + " |", flush=True)
    means = [f"{value:.1f}" for value in np.mean(rows, axis=0)]
    print("| mean | " + " | ".join(means) + " |" + " |" * (len(heads) - len(means)))


if __name__ == "__main__":
    main()
