"""Paths of a run folder.

`runs/NAME/{recipe.yaml, inputs.json, corpus/, vocabulary/, shards/, meta/, variants/V/, cells/,
results.jsonl, comparisons.json, provenance.json, report/}`
"""

from pathlib import Path


class RunLayout:
    """Paths of one run."""

    def __init__(self, root: Path) -> None:
        """Name all parts of the run folder `root`."""
        self.root = root
        self.recipe = root / "recipe.yaml"  # the resolved recipe, including all defaults
        self.corpus = root / "corpus"
        """Sentences by language in `text/`; the built-in corpus also has `tasks/`."""
        self.tasks = self.corpus / "tasks"  # task data and dictionaries of the built-in corpus
        self.vocabulary = root / "vocabulary"  # the tokenizers `multilingual/` and `monolingual/`
        self.shards = root / "shards"  # token shards in `multilingual/XX` and `monolingual/XX`
        self.meta = root / "meta"  # phase (a): `checkpoints/` and `model/`
        self.report = root / "report"  # the report page, tables and figures

    def text(self, language: str) -> Path:
        """Return the folder of the prepared sentences of a language."""
        return self.corpus / "text" / language

    def work(self, stage: str) -> Path:
        """Return the work folder of a stage, which is removed when the stage is complete."""
        return self.root / f"work-{stage}"

    def variant(self, name: str) -> Path:
        """Return a variant's folder.

        It has `initialization/`, `checkpoints/`, `steps/`, `model/`, its sentence encoder in
        `sentences/`, and dictionaries that grew for it in `dictionaries/`.
        """
        return self.root / "variants" / name

    def encoder(self, name: str) -> Path:
        """Return the folder of a variant's sentence encoder."""
        return self.variant(name) / "sentences"

    def dictionaries(self, name: str) -> Path:
        """Return the folder of a variant's grown dictionaries."""
        return self.variant(name) / "dictionaries"
