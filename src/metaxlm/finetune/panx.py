"""Named entities (PAN-X, from WikiAnn): words come in, span F1 by language goes out.

Trained on English, tested in 40 languages (the paper's Section 4.2 and its NER table). Batch 8,
learning rate 7e-6, 10 epochs and no weight decay are the paper's; the length of 128 is xTune's.
"""

from __future__ import annotations

from pathlib import Path

from metaxlm.finetune.data_folder.finetuning_sets import PANX
from metaxlm.finetune.finding import find_files, list_data_files
from metaxlm.finetune.readers.tagged import TaggedSentence, read_tagged_sentences
from metaxlm.finetune.tagging import TaggingTask
from metaxlm.finetune.task import DataFile, Examples, FinetuneSettings
from metaxlm.languages import task_languages

TAGS = ("B-LOC", "B-ORG", "B-PER", "I-LOC", "I-ORG", "I-PER", "O")


class PanxTask(TaggingTask):
    """Which words name persons, places and organizations."""

    def __init__(self) -> None:
        super().__init__(
            name="panx",
            title="NER",
            labels=TAGS,
            languages=task_languages("panx"),
            settings=FinetuneSettings(epochs=10, learning_rate=7e-6, batch_size=8, length=128),
        )

    def list_files(self, data_dir: Path) -> list[DataFile]:
        """List XTREME's files, or those of mmner."""
        return list_data_files(find_files(data_dir, PANX))

    def read(self, file: DataFile) -> Examples[TaggedSentence]:
        """Read a word and its tag a line; mmner has the language before each word."""
        prefix = "" if file.path.suffix == ".tsv" else f"{file.language}:"
        return read_tagged_sentences(file.path, TAGS, prefix)
