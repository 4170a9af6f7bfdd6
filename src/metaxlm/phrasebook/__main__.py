"""A look at the phrasebook: `python -m metaxlm.phrasebook xx 4` prints every pattern in a language.

In: a language, how many sentences of each pattern (or `--documents N`). Out: lines on the screen.
"""

from __future__ import annotations

import argparse
from random import Random

from metaxlm.phrasebook.documents import Documents
from metaxlm.phrasebook.realization import load_realizer
from metaxlm.phrasebook.sampling import Sampler
from metaxlm.progress import say


def main() -> None:
    """Print sentences of every pattern beside the English, or whole documents."""
    parser = argparse.ArgumentParser(prog="python -m metaxlm.phrasebook", description=__doc__)
    parser.add_argument("language")
    parser.add_argument("count", type=int, nargs="?", default=2)
    parser.add_argument("--documents", type=int, default=0)
    parser.add_argument("--pattern", default="")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    realizer, english = load_realizer(arguments.language), load_realizer("en")
    random = Random(arguments.seed)
    if arguments.documents:
        documents = Documents(random)
        for _ in range(arguments.documents):
            document = documents.draw()
            joint = " " if realizer.morphology.spaced else ""
            text = joint.join(realizer.realize(meaning).text for meaning in document.meanings)
            say(f"[{document.genre} {document.sentiment}] {text}")
        return
    sampler = Sampler(random)
    for pattern in sampler.patterns:
        if arguments.pattern not in ("", pattern):
            continue
        for _ in range(arguments.count):
            meaning = sampler.sample(pattern)
            said = realizer.realize(meaning)
            tagged = " ".join(f"{word.text}/{word.upos}" for word in said.items)
            say(f"{pattern:20} {english.realize(meaning).text}  |  {said.text}  |  {tagged}")


if __name__ == "__main__":
    main()
