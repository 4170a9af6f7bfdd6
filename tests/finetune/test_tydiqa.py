"""TyDiQA-GoldP: files by language or for all, and dev in the place of a test set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from metaxlm.finetune.tydiqa import TydiqaTask

from metaxlm.errors import MetaXLMError
from metaxlm.languages import task_languages


def write_questions(path: Path, *ids: str) -> Path:
    answers = [{"text": "cat", "answer_start": 2}]
    entries = [{"id": name, "question": "Who?", "answers": answers} for name in ids]
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"data": [{"paragraphs": [{"context": "a cat", "qas": entries}]}]}
    path.write_text(json.dumps(content))
    return path


def test_settings_and_languages_are_the_papers() -> None:
    task = TydiqaTask()
    settings = task.settings
    assert (settings.batch_size, settings.learning_rate, settings.epochs) == (32, 4e-5, 40)
    assert (settings.length, settings.stride) == (384, 128)
    assert task.languages == task_languages("tydiqa") and len(task.languages) == 9
    assert (task.name, task.kind, task.metric, task.trains_on) == ("tydiqa", "span", "f1", "")


def test_english_dev_selects_and_every_dev_set_is_reported(tmp_path: Path) -> None:
    for code, name in (("en", "english"), ("sw", "swahili")):
        write_questions(tmp_path / "tydiqa" / "dev" / f"tydiqa.goldp.{code}.dev.json", f"{name}-1")
        write_questions(tmp_path / "tydiqa" / "train" / f"tydiqa.goldp.{code}.train.json", "7")
    files = TydiqaTask().list_files(tmp_path)
    assert sorted((file.split, file.language, file.name) for file in files) == [
        ("select", "en", "dev"),
        ("test", "en", "dev"),
        ("test", "sw", "dev"),
        ("train", "en", "train"),
        ("train", "sw", "train"),
    ]
    paths = {(file.split, file.language): file.path.name for file in files}
    assert paths["select", "en"] == paths["test", "en"] == "tydiqa.goldp.en.dev.json"
    assert paths["train", "sw"] == "tydiqa.goldp.sw.train.json"
    assert all(len(TydiqaTask().read(file).items) == 1 for file in files)


def test_of_a_file_for_all_languages_only_one_is_read(tmp_path: Path) -> None:
    ids = ["english--5-1", "swahili-6-2", "english-7-1", "korean-8-3"]
    write_questions(tmp_path / "tydiqa-goldp-v1.1-train.json", *ids)
    task = TydiqaTask()
    files = {file.language: file for file in task.list_files(tmp_path) if file.split == "train"}
    assert set(files) == set(task.languages)
    kept = {code: [q.id for q in task.read(files[code]).items] for code in ("en", "sw", "ko")}
    assert kept == {"en": ids[::2], "sw": ids[1:2], "ko": ids[3:]}
    with pytest.raises(MetaXLMError, match=r"train\.json: no question in 'te', .*found en ko sw$"):
        task.read(files["te"])


def test_ids_that_xtreme_cut_to_a_number_train(tmp_path: Path) -> None:
    write_questions(tmp_path / "tydiqa.goldp.en.train.json", "12", "12", "3")
    task = TydiqaTask()
    (file,) = task.list_files(tmp_path)
    examples = task.read(file)
    assert [question.id for question in examples.items] == ["12", "12", "3"]
    assert "has an id that was there before, as have 1 of 3" in examples.notices[0]
