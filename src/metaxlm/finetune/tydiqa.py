"""TyDiQA-GoldP: questions that were asked in 9 languages about a paragraph with the answer.

Trained on its English training set, tested on its dev sets, as XTREME does and the paper's Section
4.2 after it: there is no test set with answers. English dev picks the epoch and is reported too.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.data_folder.description import find_language
from metaxlm.finetune.data_folder.finetuning_sets import TYDIQA
from metaxlm.finetune.finding import find_files, list_data_files
from metaxlm.finetune.readers.questions import Question
from metaxlm.finetune.span import SpanTask
from metaxlm.finetune.task import DataFile, Examples, FinetuneSettings
from metaxlm.languages import task_languages


class TydiqaTask(SpanTask):
    """TyDiQA-GoldP with the paper's settings."""

    def __init__(self) -> None:
        super().__init__(
            name="tydiqa",
            title="TyDiQA",
            languages=task_languages("tydiqa"),
            settings=FinetuneSettings(
                epochs=40, learning_rate=4e-5, batch_size=32, length=384, stride=128
            ),
        )

    def list_files(self, data_dir: Path) -> list[DataFile]:
        """List training and dev files, of one language each or of all of them."""
        found = find_files(data_dir, TYDIQA)
        files = list_data_files(found, {"train": "train", "dev": "test"}, self.languages)
        files = [
            replace(file, name=file.name.replace("test", "dev")) if file.split == "test" else file
            for file in files
        ]
        english = [file for file in files if (file.split, file.language) == ("test", "en")]
        return [*files, *(replace(file, split="select") for file in english)]

    def read(self, file: DataFile) -> Examples[Question]:
        """Read a file; of one with several languages, those questions whose id names this one.

        Ids are `english-123...`; XTREME's script cuts them to a number, in files by language.
        """
        examples = super().read(file)
        items = [item for item in examples.items if _tell_language(item.id) in ("", file.language)]
        if not items:
            raise MetaXLMError(
                f"{file.path}: no question in {file.language!r}, going by the ids; found "
                f"{' '.join(sorted({_tell_language(item.id) for item in examples.items}))}"
            )
        return Examples(items, examples.notices)


def _tell_language(question_id: str) -> str:
    """Return the code of the language that a question's id begins with; empty if it has none."""
    name, dash, _ = question_id.partition("-")
    return find_language(name) if dash and name.isalpha() else ""
