"""Retrieval with SIF weights, centering and removed components, for an encoder without training.

    python benchmarks/corrections.py MODEL --data data/eval --languages de,es,fr,ru,tr,ar,zh

Accuracy on Tatoeba, mean of both directions and of the languages: the even lines of each file,
counted from 0, are the queries, and all lines are the candidates.
"""

import argparse
from itertools import product
from pathlib import Path

import torch

from metaxlm.finetune.readers.parallel import read_tatoeba
from metaxlm.model.any_encoder import load_encoder
from metaxlm.probe.corrections import Corrections, correct_vectors
from metaxlm.probe.embedding import embed_texts
from metaxlm.probe.nearest import find_both
from metaxlm.progress import set_quiet

COMPONENTS = (0, 1, 4, 8)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True, help="folder with tatoeba/")
    parser.add_argument("--languages", required=True, help="codes, separated by commas")
    options = parser.parse_args()
    set_quiet(True)
    model = load_encoder(options.model)
    languages = options.languages.split(",")
    found: dict[tuple[bool, bool, int], torch.Tensor] = {}  # accuracies by layer, summed
    for language, sif in product(languages, (False, True)):
        pairs = read_tatoeba(options.data, language)
        sides = [
            embed_texts(model, texts, corrections=Corrections(sif=sif))
            for texts in (pairs.foreign, pairs.english)
        ]
        for center, components in product((False, True), COMPONENTS):
            key = (sif, center, components)
            after = Corrections(center=center, remove_components=components)
            layers = [measure(one, other, after) for one, other in zip(*sides, strict=True)]
            found[key] = found.get(key, torch.zeros(len(layers))) + torch.tensor(layers)
    print("| SIF | centering | removed | layer 0 | last layer |\n|---|---|---:|---:|---:|")
    for (sif, center, components), sums in found.items():
        first, last = (100 * sums[place] / len(languages) for place in (0, -1))
        marks = " | ".join("yes" if flag else "" for flag in (sif, center))
        print(f"| {marks} | {components} | {first:.1f} | {last:.1f} |")


def measure(foreign: torch.Tensor, english: torch.Tensor, after: Corrections) -> float:
    """Return the accuracy of the even lines, both ways."""
    both = find_both(correct_vectors(foreign, after), correct_vectors(english, after))
    lines = torch.arange(len(foreign))
    hits = torch.stack([near.indices_Qk[:, 0] == lines for near in both])
    return float(hits[:, ::2].double().mean())


if __name__ == "__main__":
    main()
