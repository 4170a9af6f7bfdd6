"""Paraphrase identification (PAWS-X): sentence pairs come in, accuracy by language goes out.

Trained on English PAWS, tested in 7 languages (the paper's Section 4.2 and its PAWS-X table).
Batch 32, learning rate 2e-5, 10 epochs and weight decay 0.01 are the paper's; the length of 256 is
xTune's.
"""

from __future__ import annotations

from pathlib import Path

from metaxlm.finetune.classification import ClassificationTask
from metaxlm.finetune.data_folder.finetuning_sets import PAWSX
from metaxlm.finetune.finding import find_files, list_data_files
from metaxlm.finetune.readers.labeled import LabeledText, read_labeled_pairs
from metaxlm.finetune.task import DataFile, Examples, FinetuneSettings
from metaxlm.languages import task_languages

LABELS = ("0", "1")


class PawsxTask(ClassificationTask):
    """Whether two sentences mean the same (1) or not (0)."""

    def __init__(self) -> None:
        super().__init__(
            name="pawsx",
            title="PAWS-X",
            labels=LABELS,
            languages=task_languages("pawsx"),
            settings=FinetuneSettings(epochs=10, learning_rate=2e-5, weight_decay=0.01, length=256),
        )

    def list_files(self, data_dir: Path) -> list[DataFile]:
        """List XTREME's files or those of the release; derived test labels are named so."""
        return list_data_files(find_files(data_dir, PAWSX))

    def read(self, file: DataFile) -> Examples[LabeledText]:
        """Read two sentences and 0 or 1."""
        return read_labeled_pairs(file.path, LABELS)
