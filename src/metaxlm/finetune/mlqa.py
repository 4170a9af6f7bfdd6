"""MLQA: questions about paragraphs of Wikipedia in 7 languages, both in the same language.

Trained on English SQuAD, tested in all languages (the paper's Section 4.2); F1 and exact match with
MLQA's own normalization, which depends on the language of the answer.
"""

from __future__ import annotations

from pathlib import Path

from metaxlm.finetune.answer_metrics import normalize_mlqa
from metaxlm.finetune.data_folder.finetuning_sets import MLQA
from metaxlm.finetune.finding import find_files, list_data_files
from metaxlm.finetune.squad import SquadTask
from metaxlm.finetune.task import DataFile
from metaxlm.languages import task_languages


class MlqaTask(SquadTask):
    """MLQA with the paper's settings."""

    def __init__(self) -> None:
        super().__init__(name="mlqa", title="MLQA", languages=task_languages("mlqa"))

    def list_files(self, data_dir: Path) -> list[DataFile]:
        """List `{dev,test}-context-XX-question-XX.json` beside SQuAD's files."""
        files = list_data_files(find_files(data_dir, MLQA), {"dev": "dev", "test": "test"})
        return [*super().list_files(data_dir), *files]

    def normalize(self, text: str, language: str) -> str:
        """Make texts alike that count as the same answer, by the language's rules."""
        return normalize_mlqa(text, language)
