"""Sentiment of Amazon reviews (Webis-CLS-10): reviews come in, accuracy by language goes out.

One task for each domain: books, DVDs, music. Each is trained in each of its four languages and
tested in all four: the same language is the paper's supervised setting (its Section 4.3 and Amazon
table), the others are its 4 x 4 transfer directions. There is no dev set, so the last epoch is
taken. Batch 32, learning rate 2e-5, 5 epochs and weight decay 0.01 are the paper's; it gives no
length, and 256 is that of its other classification tasks.
"""

from __future__ import annotations

from pathlib import Path

from metaxlm.finetune.classification import ClassificationTask
from metaxlm.finetune.data_folder.finetuning_sets import CLS
from metaxlm.finetune.finding import find_files, list_data_files
from metaxlm.finetune.readers.labeled import LabeledText
from metaxlm.finetune.readers.reviews import NEGATIVE, POSITIVE, read_reviews
from metaxlm.finetune.task import DataFile, Examples, FinetuneSettings
from metaxlm.languages import task_languages

DOMAINS = {"books": "Books", "dvd": "DVD", "music": "Music"}


class AmazonTask(ClassificationTask):
    """Whether a review of one domain is positive or negative."""

    def __init__(self, domain: str) -> None:
        languages = ("en", *(code for code in task_languages("cls") if code != "en"))
        super().__init__(
            name=f"amazon-{domain}",
            title=f"Amazon {DOMAINS[domain]}",
            labels=(NEGATIVE, POSITIVE),
            languages=languages,
            sources=languages,
            settings=FinetuneSettings(
                epochs=5, learning_rate=2e-5, weight_decay=0.01, length=256, select_by="last"
            ),
        )
        self.domain = domain

    def list_files(self, data_dir: Path) -> list[DataFile]:
        """List the release's `XX/DOMAIN/{train,test}.review`."""
        files = find_files(data_dir, CLS)
        return list_data_files(
            files, {f"{self.domain} train": "train", f"{self.domain} test": "test"}
        )

    def read(self, file: DataFile) -> Examples[LabeledText]:
        """Read headlines and texts with their sentiment."""
        return read_reviews(file.path)
