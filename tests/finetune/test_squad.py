"""Files of the tasks that train on SQuAD: layouts, and a selection without XQuAD's paragraphs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from metaxlm.finetune.mlqa import MlqaTask
from metaxlm.finetune.squad import SelectionFile
from metaxlm.finetune.xquad import XquadTask

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.task import DataFile
from metaxlm.languages import task_languages


def write_questions(path: Path, *contexts: str) -> Path:
    """One question for each context, about its first word."""
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": f"{path.stem}-{k}",
                    "question": "Which?",
                    "answers": [{"text": context.split()[0], "answer_start": 0}],
                }
            ],
        }
        for k, context in enumerate(contexts)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": "1.1", "data": [{"paragraphs": paragraphs}]}))
    return path


def make_tree(folder: Path) -> Path:
    """XTREME's download tree, small."""
    write_questions(folder / "squad" / "train-v1.1.json", "one", "two")
    write_questions(folder / "squad" / "dev-v1.1.json", "red", "green", "blue")
    write_questions(folder / "xquad" / "xquad.en.json", "green")
    write_questions(folder / "xquad" / "xquad.de.json", "grün")
    for split in ("dev", "test"):
        for pair in ("en-question-en", "de-question-de", "en-question-de"):
            write_questions(
                folder / "mlqa" / "MLQA_V1" / split / f"{split}-context-{pair}.json", "a"
            )
    return folder


def list_names(files: list[DataFile]) -> set[tuple[str, str, str, str]]:
    return {(file.split, file.language, file.name, file.path.name) for file in files}


TRAINING = {
    ("train", "en", "train", "train-v1.1.json"),
    ("select", "en", "dev-minus-xquad", "dev-v1.1.json"),
}


def test_both_tasks_train_and_select_on_squad(tmp_path: Path) -> None:
    folder = make_tree(tmp_path)
    assert list_names(XquadTask().list_files(folder)) == TRAINING | {
        ("test", "en", "test", "xquad.en.json"),
        ("test", "de", "test", "xquad.de.json"),
    }
    assert list_names(MlqaTask().list_files(folder)) == TRAINING | {
        (split, code, split, f"{split}-context-{code}-question-{code}.json")
        for split in ("dev", "test")
        for code in ("en", "de")
    }
    xquad, mlqa = XquadTask(), MlqaTask()
    assert xquad.settings == mlqa.settings
    assert xquad.trains_on == mlqa.trains_on == "squad"
    shared = {("train", "en"), ("select", "en")}
    for task in (xquad, mlqa):
        files = task.list_files(folder)
        assert {(f.split, f.language) for f in files if f.split in ("train", "select")} == shared


def test_settings_and_languages_are_the_papers() -> None:
    settings = XquadTask().settings
    assert (settings.batch_size, settings.learning_rate, settings.epochs) == (32, 3e-5, 4)
    assert (settings.length, settings.stride, settings.select_by) == (384, 128, "source")
    assert XquadTask().languages == task_languages("xquad") and len(XquadTask().languages) == 11
    assert MlqaTask().languages == task_languages("mlqa") and len(MlqaTask().languages) == 7


def select(folder: Path) -> tuple[DataFile, list[str], tuple[str, ...]]:
    (file,) = (file for file in XquadTask().list_files(folder) if file.split == "select")
    examples = XquadTask().read(file)
    return file, [question.context for question in examples.items], examples.notices


def test_paragraphs_of_xquad_do_not_select(tmp_path: Path) -> None:
    file, contexts, notices = select(make_tree(tmp_path))
    assert contexts == ["red", "blue"] and notices == ()
    assert isinstance(file, SelectionFile)
    assert file.paths == (tmp_path / "squad/dev-v1.1.json", tmp_path / "xquad/xquad.en.json")


def test_a_filtered_file_is_taken_as_it_is(tmp_path: Path) -> None:
    folder = make_tree(tmp_path)
    path = write_questions(folder / "squad" / "dev-v1.1-minus-xquad.json", "red", "blue")
    file, contexts, _ = select(folder)
    assert contexts == ["red", "blue"]
    assert (file.name, file.paths) == ("dev-minus-xquad", (path,))


def test_without_xquad_the_whole_dev_set_selects_and_that_is_told(tmp_path: Path) -> None:
    folder = make_tree(tmp_path)
    (folder / "xquad" / "xquad.en.json").unlink()
    file, contexts, notices = select(folder)
    assert contexts == ["red", "green", "blue"] and file.name == "dev"
    assert file.paths == (file.path,)
    assert "xquad.en.json is not below the data folder" in notices[0]
    assert str(file.path) in notices[0]


def test_a_dev_set_of_nothing_but_xquad_is_refused(tmp_path: Path) -> None:
    folder = make_tree(tmp_path)
    write_questions(folder / "squad" / "dev-v1.1.json", "green")
    with pytest.raises(MetaXLMError, match=r"dev-v1\.1\.json: all its questions are about the"):
        select(folder)


def test_subsets_are_named_and_missing_files_are_not_listed(tmp_path: Path) -> None:
    write_questions(tmp_path / "train-v1.1-subset.json", "one")
    assert list_names(XquadTask().list_files(tmp_path)) == {
        ("train", "en", "train-subset", "train-v1.1-subset.json")
    }


def test_training_questions_need_an_answer_and_test_questions_do_not(tmp_path: Path) -> None:
    path = write_questions(tmp_path / "xquad.en.json", "red")
    path.write_text(path.read_text().replace('"text": "red"', '"text": ""'))
    task = XquadTask()
    assert task.read(DataFile("en", "test", path, "test")).items[0].answers == ()
    with pytest.raises(MetaXLMError, match="has no answer, and is to train"):
        task.read(DataFile("en", "train", path, "train"))


def test_both_ways_select_the_same_published_questions(
    published: Callable[[str], Path], tmp_path: Path
) -> None:
    published("squad")
    source = published("xquad")
    for name in ("whole", "filtered"):
        (tmp_path / name).mkdir()
        shutil.copy(source / "xquad" / "xquad.en.json", tmp_path / name)
    shutil.copy(source / "squad" / "dev-v1.1.json", tmp_path / "whole")
    shutil.copy(source / "squad" / "dev-v1.1-minus-xquad.json", tmp_path / "filtered")
    chosen = []
    for name in ("whole", "filtered"):
        (file,) = (f for f in MlqaTask().list_files(tmp_path / name) if f.split == "select")
        chosen.append(MlqaTask().read(file).items)
        assert file.name == "dev-minus-xquad"
    assert len(chosen[0]) == 9_380
    assert chosen[0] == chosen[1]
