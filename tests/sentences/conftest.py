from __future__ import annotations

import pytest
from transformers import PreTrainedTokenizerBase as Tokenizer

from tests.sentences.encoder_trainings import SentenceTrainings, make_teacher, save_student


@pytest.fixture(scope="session")
def trainings(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> SentenceTrainings:
    folder = tmp_path_factory.mktemp("sentences")
    return SentenceTrainings(make_teacher(folder), save_student(folder / "student", tokenizer))
