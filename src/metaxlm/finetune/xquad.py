"""XQuAD: questions about the same 240 paragraphs in 11 languages, 1,190 in each.

Trained on English SQuAD, tested in all languages (the paper's Section 4.2); F1 and exact match with
SQuAD's normalization in every language, as XTREME scores it.
"""

from __future__ import annotations

from pathlib import Path

from metaxlm.finetune.data_folder.finetuning_sets import XQUAD
from metaxlm.finetune.finding import find_files, list_data_files
from metaxlm.finetune.squad import SquadTask
from metaxlm.finetune.task import DataFile
from metaxlm.languages import task_languages


class XquadTask(SquadTask):
    """XQuAD with the paper's settings."""

    def __init__(self) -> None:
        super().__init__(name="xquad", title="XQuAD", languages=task_languages("xquad"))

    def list_files(self, data_dir: Path) -> list[DataFile]:
        """List `xquad.XX.json` beside SQuAD's files."""
        tests = list_data_files(find_files(data_dir, XQUAD), {"test": "test"})
        return [*super().list_files(data_dir), *tests]
