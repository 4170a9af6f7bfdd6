"""One module a language: `morphology/xx.py` defines the class `MORPHOLOGY` points to."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from metaxlm.phrasebook.concepts import load_concepts
from metaxlm.phrasebook.lexicon import load_lexicon
from metaxlm.phrasebook.morphology.base import Morphology


@cache
def load_morphology(language: str) -> Morphology:
    """Return the morphology of a language with its lexicon, loaded once."""
    module = import_module(f"metaxlm.phrasebook.morphology.{language}")
    morphology: Morphology = module.MORPHOLOGY(load_lexicon(language), load_concepts())
    return morphology
