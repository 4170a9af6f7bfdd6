"""What an evaluation settles before it trains: tasks, languages, settings, shared trainings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from metaxlm.run.evaluation_plan import (
    TaskPlan,
    Wishes,
    choose_languages,
    choose_tasks,
    group_tasks,
    plan_task,
    read_overrides,
)

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.registry import GROUPS, TASKS
from metaxlm.finetune.task import DataFile, Split, Task


class Listed:
    """A published task whose files are a list instead of a folder."""

    def __init__(self, name: str, folder: Path, *places: tuple[Split, str]) -> None:
        self._task = TASKS[name]
        self._files = []
        for split, language in places:
            path = folder / f"{split}-{language}"
            path.write_text(f"{split} {language}", encoding="utf-8")
            self._files.append(DataFile(language, split, path, split))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def list_files(self, data_dir: Path) -> list[DataFile]:
        return list(self._files)


def make_task(name: str, folder: Path, *places: tuple[Split, str]) -> Task[Any, Any]:
    return cast(Task[Any, Any], Listed(name, folder, *places))


PLACES: tuple[tuple[Split, str], ...] = (
    ("train", "en"), ("dev", "en"), ("dev", "de"), ("test", "en"), ("test", "fr"),
)  # fmt: skip


def test_tasks_by_name_group_and_kind() -> None:
    tasks, features = choose_tasks(["xnli, amazon", "tatoeba,xnli"])
    assert [task.name for task in tasks] == ["xnli", *GROUPS["amazon"]]
    assert features == ["tatoeba"]
    with pytest.raises(MetaXLMError, match="names no task; known: udpos"):
        choose_tasks([" , "])


def test_languages_are_the_papers_that_are_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = plan_task(make_task("xnli", tmp_path, *PLACES), tmp_path, Wishes())
    assert set(plan.languages) == {"en", "de", "fr"}
    assert list(plan.languages) == [c for c in TASKS["xnli"].languages if c in plan.languages]
    assert "no dev or test file for ar" in capsys.readouterr().out
    plan = plan_task(make_task("xnli", tmp_path, *PLACES), tmp_path, Wishes(("fr", "sw")))
    assert plan.languages == ("fr",)
    assert "no dev or test file for sw; not tested there" in capsys.readouterr().out
    with pytest.raises(MetaXLMError, match="no dev or test file of xnli for sw; found here: en de"):
        plan_task(make_task("xnli", tmp_path, *PLACES), tmp_path, Wishes(("sw",)))
    with pytest.raises(MetaXLMError, match="for any language; found here: nothing"):
        choose_languages("own", [], [], None, tmp_path)


def test_settings_are_the_papers_then_those_for_all_then_the_tasks_own(tmp_path: Path) -> None:
    values = read_overrides(["xnli.epochs=7", "epochs=2", "batch_size=4"], ["xnli"], "last")
    plan = plan_task(make_task("xnli", tmp_path, *PLACES), tmp_path, Wishes(values=values))
    paper = TASKS["xnli"].settings
    assert plan.settings == replace(paper, epochs=7, batch_size=4, select_by="last")
    other = plan_task(make_task("pawsx", tmp_path, *PLACES), tmp_path, Wishes(values=values))
    assert other.settings.epochs == 2


@pytest.mark.parametrize(
    ("override", "complaint"),
    [
        ("epochs=1.5", "found 1.5"),
        ("epochs=-1", "found -1"),
        ("warmup=2", "found 2"),
        ("learning_rate=", "learning_rate has no value"),
        ("seeds=3", "unknown key 'seeds'"),
        ("select_by=best", "found 'best'"),
        ("lenght=3", "did you mean 'length'"),
        ("xnl.epochs=3", "did you mean 'xnli'"),
        ("=3", "expected KEY=VALUE"),
        ("epochs=[", "not valid YAML"),
    ],
)
def test_wrong_overrides(override: str, complaint: str) -> None:
    with pytest.raises(MetaXLMError) as error:
        read_overrides([override], ["xnli"])
    assert complaint in str(error.value)
    assert f"--set {override}" in str(error.value)


def test_settings_of_a_task_that_is_not_asked_for_have_no_effect(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """So that one command line serves processes of one task each."""
    assert read_overrides(["udpos.epochs=3", "epochs=2"], ["xnli"]) == {"": {"epochs": 2}}
    assert "--set udpos.epochs=3: has no effect" in capsys.readouterr().out


def test_training_languages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    places: tuple[tuple[Split, str], ...] = (
        ("train", "en"), ("train", "fr"), ("test", "en"), ("test", "de"),
    )  # fmt: skip
    task = make_task("amazon-dvd", tmp_path, *places)
    assert plan_task(task, tmp_path, Wishes()).sources == ("en", "fr")
    assert "no training file for de ja; not trained there" in capsys.readouterr().out
    assert plan_task(task, tmp_path, Wishes(sources=("fr",))).sources == ("fr",)
    with pytest.raises(MetaXLMError, match="no training file of amazon-dvd for ja; found here: en"):
        plan_task(task, tmp_path, Wishes(sources=("en", "ja")))


def test_a_selection_needs_its_files(tmp_path: Path) -> None:
    places: tuple[tuple[Split, str], ...] = (("train", "en"), ("test", "en"))
    task = make_task("xnli", tmp_path, *places)
    with pytest.raises(MetaXLMError, match="no dev file for en, which must pick the epoch"):
        plan_task(task, tmp_path, Wishes())
    for how, complaint in (("all", "no dev file to pick an epoch"), ("last", None)):
        wishes = Wishes(values={"": {"select_by": how}})
        if complaint is None:
            assert plan_task(task, tmp_path, wishes).settings.select_by == "last"
        else:
            with pytest.raises(MetaXLMError, match=complaint):
                plan_task(task, tmp_path, wishes)
    with_selection = make_task("xquad", tmp_path, *places, ("select", "en"))
    assert plan_task(with_selection, tmp_path, Wishes()).languages == ("en",)


def test_inputs_change_with_what_is_read_and_with_nothing_else(tmp_path: Path) -> None:
    def inputs(wishes: Wishes) -> dict[str, Any]:
        return plan_task(task, tmp_path, wishes).list_inputs("en")

    task = make_task("xnli", tmp_path, *PLACES)
    before = inputs(Wishes(("fr",)))
    assert [entry[:2] for entry in before["files"]] == [
        ["train", "en"], ["dev", "en"], ["test", "fr"],
    ]  # fmt: skip
    (tmp_path / "dev-de").write_text("another", encoding="utf-8")
    assert inputs(Wishes(("fr",))) == before
    assert inputs(Wishes(("fr", "de"))) != before
    (tmp_path / "test-fr").write_text("another", encoding="utf-8")
    assert inputs(Wishes(("fr",))) != before


def test_questions_of_one_training_set_go_together(tmp_path: Path) -> None:
    places: tuple[tuple[Split, str], ...] = (("train", "en"), ("select", "en"), ("test", "en"))

    def plan(name: str, **values: Any) -> TaskPlan:
        wishes = Wishes(values={"": values})
        return plan_task(make_task(name, tmp_path, *places), tmp_path, wishes)

    def names(*plans: TaskPlan) -> list[list[str]]:
        return [[one.task.name for one in group] for group in group_tasks(plans)]

    assert names(plan("xquad"), plan("tydiqa"), plan("mlqa")) == [["xquad", "mlqa"], ["tydiqa"]]
    assert names(plan("xquad"), plan("mlqa", epochs=1)) == [["xquad"], ["mlqa"]]
    assert names(plan("xnli"), plan("pawsx")) == [["xnli"], ["pawsx"]]
