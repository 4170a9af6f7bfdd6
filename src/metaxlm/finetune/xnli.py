"""Natural language inference (XNLI): sentence pairs come in, accuracy by language goes out.

Trained on English MultiNLI, tested in 15 languages (the paper's Section 4.2 and its XNLI table).
Batch 32, learning rate 1e-5, 6 epochs and weight decay 0.01 are the paper's; the length of 256 is
xTune's.
"""

from __future__ import annotations

from pathlib import Path

from metaxlm.finetune.classification import ClassificationTask
from metaxlm.finetune.data_folder.finetuning_sets import XNLI
from metaxlm.finetune.finding import find_files, list_data_files
from metaxlm.finetune.readers.labeled import LabeledText, read_labeled_pairs
from metaxlm.finetune.task import DataFile, Examples, FinetuneSettings
from metaxlm.languages import task_languages

LABELS = ("entailment", "neutral", "contradiction")
SYNONYMS = {"contradictory": "contradiction"}
"""XNLI's own copy of the training set spells one label differently."""


class XnliTask(ClassificationTask):
    """Which of three relations holds between two sentences."""

    def __init__(self) -> None:
        super().__init__(
            name="xnli",
            title="XNLI",
            labels=LABELS,
            languages=task_languages("xnli"),
            settings=FinetuneSettings(epochs=6, learning_rate=1e-5, weight_decay=0.01, length=256),
        )

    def list_files(self, data_dir: Path) -> list[DataFile]:
        """List XTREME's files, those of XNLI 1.0, and MultiNLI's for training."""
        return list_data_files(find_files(data_dir, XNLI), languages=self.languages)

    def read(self, file: DataFile) -> Examples[LabeledText]:
        """Read pairs; XNLI 1.0 has all languages in one file."""
        return read_labeled_pairs(file.path, LABELS, SYNONYMS, file.language)
