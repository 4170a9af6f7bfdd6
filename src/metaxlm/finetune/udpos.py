"""Part-of-speech tagging (UD 2.5): words come in, F1 by language goes out.

Trained on English, tested in 33 languages (the paper's Section 4.2 and its POS table). Batch 32,
learning rate 1e-5, 10 epochs and no weight decay are the paper's; the length of 128 is xTune's. The
score `f1` is the `xtreme` mode, which the paper reports; `f1_token` beside it is plain accuracy
over words.
"""

from __future__ import annotations

from pathlib import Path

from metaxlm.finetune.data_folder.finetuning_sets import UDPOS
from metaxlm.finetune.finding import find_files, list_data_files
from metaxlm.finetune.readers.tagged import TaggedSentence, read_tagged_sentences
from metaxlm.finetune.tagging import POS_SCORES, TaggingTask
from metaxlm.finetune.task import DataFile, Examples, FinetuneSettings
from metaxlm.languages import task_languages

TAGS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
)


class UdposTask(TaggingTask):
    """Which of 17 parts of speech each word is."""

    def __init__(self) -> None:
        super().__init__(
            name="udpos",
            title="POS",
            labels=TAGS,
            languages=task_languages("udpos"),
            settings=FinetuneSettings(epochs=10, learning_rate=1e-5, length=128),
            scores=POS_SCORES,
        )

    def list_files(self, data_dir: Path) -> list[DataFile]:
        """List XTREME's files."""
        return list_data_files(find_files(data_dir, UDPOS))

    def read(self, file: DataFile) -> Examples[TaggedSentence]:
        """Read a word and its tag a line."""
        return read_tagged_sentences(file.path, TAGS)
