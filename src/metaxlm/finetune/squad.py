"""Tasks that train on English SQuAD 1.1: a data folder comes in, its training files go out.

XQuAD and MLQA of the paper's Section 4.2 share one training set and one selection, so that one
finetuned model serves both. XQuAD is a translated part of SQuAD's dev set: the epoch is selected
on the rest of it, 9,380 questions, as anything else would select on the test questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.data_folder.finetuning_sets import SQUAD, XQUAD
from metaxlm.finetune.finding import FoundFile, find_files, list_data_files
from metaxlm.finetune.readers.questions import Question, read_questions
from metaxlm.finetune.span import SpanTask
from metaxlm.finetune.task import DataFile, Examples, FinetuneSettings

MINUS_XQUAD = "minus-xquad"
"""Variant of SQuAD's dev set without the paragraphs of XQuAD."""

SQUAD_SETTINGS = FinetuneSettings(
    epochs=4, learning_rate=3e-5, batch_size=32, length=384, stride=128
)
"""The paper's, for XQuAD and MLQA alike."""


@dataclass(frozen=True)
class SelectionFile(DataFile):
    """SQuAD's dev set, and the file whose contexts are left out of it (None if not found)."""

    xquad_path: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files that are read."""
        return (self.path,) if self.xquad_path is None else (self.path, self.xquad_path)


class SquadTask(SpanTask):
    """A task that trains on SQuAD; subclasses list their test files."""

    trains_on = "squad"

    def __init__(self, *, name: str, title: str, languages: Sequence[str]) -> None:
        super().__init__(name=name, title=title, languages=languages, settings=SQUAD_SETTINGS)

    def list_files(self, data_dir: Path) -> list[DataFile]:
        """List SQuAD's files for training and selection."""
        found = find_files(data_dir, SQUAD)
        return [*list_data_files(found, {"train": "train"}), *_find_selection(data_dir, found)]

    def read(self, file: DataFile) -> Examples[Question]:
        """Read a SQuAD JSON file; SQuAD's dev set without XQuAD's paragraphs."""
        examples = super().read(file)
        if not isinstance(file, SelectionFile):
            return examples
        if file.xquad_path is None:
            notice = (
                f"{file.path}: xquad.en.json is not below the data folder, so the 1,190 questions "
                f"of XQuAD select too; do not report XQuAD with it"
            )
            return Examples(examples.items, (*examples.notices, notice))
        taken = {question.context for question in read_questions(file.xquad_path).items}
        items = [question for question in examples.items if question.context not in taken]
        if not items:
            raise MetaXLMError(
                f"{file.path}: all its questions are about the contexts of {file.xquad_path}; "
                f"nothing is left to select with: use SQuAD's dev-v1.1.json"
            )
        return Examples(items, examples.notices)


def _find_selection(data_dir: Path, found: Sequence[FoundFile]) -> list[DataFile]:
    """Take the dev set without XQuAD as it is, or the whole one and XQuAD to filter it by."""
    dev = {file.variant == MINUS_XQUAD: file for file in found if file.split == "dev"}
    name = f"dev-{MINUS_XQUAD}"
    if True in dev:
        return [DataFile("en", "select", dev[True].path, name)]
    if not dev:
        return []
    english = [file.path for file in find_files(data_dir, XQUAD) if file.language == "en"]
    if not english:
        return [SelectionFile("en", "select", dev[False].path, "dev")]
    return [SelectionFile("en", "select", dev[False].path, name, xquad_path=english[0])]
