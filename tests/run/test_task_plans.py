"""Plans of evaluations: tasks, languages, settings, shared training runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.catalog import GROUPS, TASKS
from metaxlm.finetune.task import AnyTask, DataFile, Split
from metaxlm.run.fingerprints import FileFingerprints
from metaxlm.run.task_plans import (
    TaskOverrides,
    TaskPlan,
    choose_tasks,
    group_tasks,
    plan_task,
    read_overrides,
)

DEFAULT = "train-en dev-en dev-de test-en test-fr"


class Listed:
    """A published task whose files are a list instead of a folder."""

    def __init__(self, name: str, folder: Path, places: str) -> None:
        self._task, self._files = TASKS[name], []
        for place in places.split():
            split, language = place.split("-")
            path = folder / place
            path.write_text(place, encoding="utf-8")
            self._files.append(DataFile(language, cast(Split, split), path, split))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def list_files(self, data_dir: Path) -> list[DataFile]:
        return list(self._files)


def plan(
    folder: Path,
    name: str = "xnli",
    places: str = DEFAULT,
    languages: tuple[str, ...] | None = None,
    sources: tuple[str, ...] | None = None,
    **values: Any,
) -> TaskPlan:
    task = cast(AnyTask, Listed(name, folder, places))
    return plan_task(task, folder, TaskOverrides(languages, sources, {"": values}))


def test_tasks_by_name_group_and_kind() -> None:
    tasks, features = choose_tasks(["xnli, amazon", "tatoeba,xnli"])
    assert [task.name for task in tasks] == ["xnli", *GROUPS["amazon"]]
    assert features == ["tatoeba"]
    with pytest.raises(MetaXLMError, match="names no task; known: udpos"):
        choose_tasks([" , "])


def test_default_languages_are_the_papers_with_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = plan(tmp_path).languages
    assert set(found) == {"en", "de", "fr"}
    assert list(found) == [code for code in TASKS["xnli"].languages if code in found]
    assert "no dev or test file for ar" in capsys.readouterr().out
    assert plan(tmp_path, languages=("fr", "sw")).languages == ("fr",)
    assert "no dev or test file for sw; skipping" in capsys.readouterr().out
    with pytest.raises(MetaXLMError, match="no dev or test file of xnli for sw; found here: en de"):
        plan(tmp_path, languages=("sw",))
    with pytest.raises(MetaXLMError, match="for any language; found here: nothing"):
        plan(tmp_path, places="train-en", languages=())


def test_overrides_of_a_task_precede_those_of_all_tasks(tmp_path: Path) -> None:
    values = read_overrides(["xnli.epochs=7", "epochs=2", "batch_size=4"], ["xnli"], "last")
    settings = [
        plan_task(
            cast(AnyTask, Listed(name, tmp_path, DEFAULT)), tmp_path, TaskOverrides(values=values)
        ).settings
        for name in ("xnli", "pawsx")
    ]
    paper = TASKS["xnli"].settings
    assert settings[0] == replace(paper, epochs=7, batch_size=4, select_by="last")
    assert settings[1].epochs == 2


def test_training_languages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reviews = ("amazon-dvd", "train-en train-fr test-en test-de")
    assert plan(tmp_path, *reviews).sources == ("en", "fr")
    assert "no training file for de ja; skipping" in capsys.readouterr().out
    assert plan(tmp_path, *reviews, sources=("fr",)).sources == ("fr",)
    with pytest.raises(MetaXLMError, match="no training file of amazon-dvd for ja; found here: en"):
        plan(tmp_path, *reviews, sources=("en", "ja"))


def test_without_training_only_test_files_are_needed(tmp_path: Path) -> None:
    found = plan(tmp_path, places="test-de test-fr", epochs=0)
    assert (found.sources, found.languages) == (("en",), ("de", "fr"))
    with pytest.raises(MetaXLMError, match="no training file of xnli for en; found here: nothing"):
        plan(tmp_path, places="test-de test-fr", epochs=1)


def test_inputs_depend_only_on_files_that_are_read(tmp_path: Path) -> None:
    found = plan(tmp_path, languages=("fr",))

    def inputs(plan: TaskPlan) -> dict[str, Any]:
        return plan.list_inputs("en", FileFingerprints())

    before = inputs(found)
    assert [entry[:2] for entry in before["files"]] == [
        ["train", "en"], ["dev", "en"], ["test", "fr"],
    ]  # fmt: skip
    (tmp_path / "dev-de").write_text("another", encoding="utf-8")
    assert inputs(found) == before
    assert inputs(replace(found, languages=("fr", "de"))) != before
    (tmp_path / "test-fr").write_text("another", encoding="utf-8")
    assert inputs(found) != before


def test_tasks_with_one_training_set_share_a_model(tmp_path: Path) -> None:
    def group(*tasks: tuple[str, dict[str, Any]]) -> list[list[str]]:
        places = "train-en select-en test-en"
        plans = [plan(tmp_path, name, places, **values) for name, values in tasks]
        return [[one.name for one in group] for group in group_tasks(plans)]

    found = group(("xquad", {}), ("tydiqa", {}), ("mlqa", {}))
    assert found == [["xquad", "mlqa"], ["tydiqa"]]
    assert group(("xquad", {}), ("mlqa", {"epochs": 1})) == [["xquad"], ["mlqa"]]
    assert group(("xnli", {}), ("pawsx", {})) == [["xnli"], ["pawsx"]]
