"""Where everything stands in a run folder, said once.

`runs/NAME/{recipe.yaml, inputs.json, corpus/, vocabulary/, shards/, meta/, variants/V/, cells/,
results.jsonl, comparisons.json, provenance.json, report/}`
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RunLayout:
    """Paths of one run."""

    root: Path

    @property
    def recipe(self) -> Path:
        """The resolved recipe, every default spelled out."""
        return self.root / "recipe.yaml"

    @property
    def corpus(self) -> Path:
        """Sentences by language under `text/`; the built-in corpus adds `tasks/`."""
        return self.root / "corpus"

    def text(self, language: str) -> Path:
        """The prepared sentences of a language, in parts."""
        return self.corpus / "text" / language

    def work(self, stage: str) -> Path:
        """What a stage has done so far; gone when it is complete."""
        return self.root / f"work-{stage}"

    @property
    def tasks(self) -> Path:
        """Task data and dictionaries of the built-in corpus."""
        return self.corpus / "tasks"

    @property
    def vocabulary(self) -> Path:
        """Both tokenizers, `multilingual/` and `monolingual/`."""
        return self.root / "vocabulary"

    @property
    def shards(self) -> Path:
        """Token shards under `multilingual/XX` and `monolingual/XX`."""
        return self.root / "shards"

    @property
    def meta(self) -> Path:
        """Phase (a): `checkpoints/` and `model/`."""
        return self.root / "meta"

    def variant(self, name: str) -> Path:
        """One variant's `initialization/`, `checkpoints/`, `steps/`, `model/`."""
        return self.root / "variants" / name

    @property
    def report(self) -> Path:
        """The page, tables and figures."""
        return self.root / "report"
