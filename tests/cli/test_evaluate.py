"""`metaxlm evaluate` with all tasks of the built-in corpus and two tiny models."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from transformers import AutoModelForSequenceClassification

from metaxlm.files import digest_file, read_json
from metaxlm.finetune.catalog import TASKS
from tests.cli.evaluations import LANGUAGES, QUICK, SIZES, job_times, model_options, read_rows, run
from tests.commands import Command


def read_csv(output: Path, name: str) -> list[dict[str, str]]:
    text = (output / "tables" / f"{name}.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


@pytest.fixture(scope="module")
def everything(models: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All tasks, two models, two seeds of some."""
    output = tmp_path_factory.mktemp("everything") / "out"
    both = [*model_options(models), "--data", data, "--output", output, *QUICK]
    assert run(*both, "--task", "xtreme,amazon-books", "--limit", "12") == 0
    assert run(*both, "--task", "xnli,tatoeba,alignment", "--seeds", "2", "--limit", "12") == 0
    return output


def test_all_tasks_have_jobs_rows_and_predictions(everything: Path, data: Path) -> None:
    rows = read_rows(everything)
    tasks = [name for name in TASKS if name not in ("amazon-dvd", "amazon-music")]
    for model in ("one", "two"):
        for task in tasks:
            mine = [row for row in rows if (row["variant"], row["task"]) == (model, task)]
            metric = TASKS[task].metric
            found = {(row["source"], row["language"]) for row in mine if row["metric"] == metric}
            languages = [code for code in LANGUAGES if code in TASKS[task].languages]
            sources = languages if task == "amazon-books" else ("en",)
            assert found == {(a, b) for a in sources for b in languages}
            for row in mine:
                diagonal = task == "amazon-books" and row["source"] == row["language"]
                assert row["scenario"] == ("supervised" if diagonal else "transfer")
                assert row["examples"] <= 12
                assert row["split"].endswith("-first-12")
            suffix = TASKS[task].submission_suffix
            folder = everything / "predictions" / model / "seed-0-first-12" / task
            assert {path.name for path in folder.glob("test-*")} == {
                f"test-{code}{suffix}" for code in languages
            }
        assert {row["layer"] for row in rows if row["task"] == "tatoeba"} == {0, 1}
    levels = {row["metric"] for row in rows if row["variant"] is None}
    assert {"chance", "majority", "chance_em", "majority_em"} <= levels
    assert {row["task"] for row in rows if row["metric"] == "chance"} == set(tasks)
    folder = everything / "predictions/one/seed-0-first-12/amazon-books/from-de"
    assert {path.name for path in folder.glob("test-*")} == {"test-de.tsv", "test-en.tsv"}


def test_predictions_have_the_order_of_examples(everything: Path, data: Path) -> None:
    folder = everything / "predictions" / "one" / "seed-0-first-12"
    labels = (folder / "xnli" / "test-de.tsv").read_text("utf-8").splitlines()
    assert len(labels) == 12
    assert set(labels) <= {"entailment", "neutral", "contradiction"}
    gold = (data / "udpos" / "test-de.tsv").read_text("utf-8").strip("\n").split("\n\n")[:12]
    tagged = (folder / "udpos" / "test-de.tsv").read_text("utf-8").strip("\n").split("\n\n")
    assert [len(block.splitlines()) for block in tagged] == [len(b.splitlines()) for b in gold]
    answers = json.loads((folder / "xquad" / "test-de.json").read_text("utf-8"))
    questions = json.loads((data / "xquad" / "xquad.de.json").read_text("utf-8"))
    ids = [
        qa["id"]
        for article in questions["data"]
        for paragraph in article["paragraphs"]
        for qa in paragraph["qas"]
    ]
    assert list(answers) == ids[:12]


def test_rows_jobs_and_tables_agree(everything: Path) -> None:
    cell = json.loads((everything / "cells/two/xnli/en-1/cell.json").read_text("utf-8"))
    [file] = [f for f in cell["files"] if (f["split"], f["language"]) == ("test", "de")]
    rows = read_rows(everything)
    [row] = [
        row for row in rows
        if (row["variant"], row["task"], row["language"], row["seed"], row["metric"])
        == ("two", "xnli", "de", 1, "accuracy") and row["split"].startswith("test")
    ]  # fmt: skip
    assert row["value"] == file["values"]["accuracy"]
    by_seed = [
        sum(
            row["value"] / 3 for row in rows
            if (row["variant"], row["task"], row["seed"], row["metric"])
            == ("two", "xnli", seed, "accuracy") and row["split"].startswith("test")
        )
        for seed in (0, 1)
    ]  # fmt: skip
    found = {(line["row"], line["column"]): line for line in read_csv(everything, "tasks")}
    assert float(found["two", "XNLI"]["value"]) == pytest.approx(sum(by_seed) / 2)
    assert ("two", "Avg") in found
    languages = {(line["row"], line["column"]) for line in read_csv(everything, "languages-xnli")}
    assert {("German, de", column) for column in ("one", "Majority label", "Chance")} <= languages
    text = (everything / "tables" / "tasks.md").read_text("utf-8")
    assert "A quick try: only the first 12 examples of each file." in text
    assert "XLM (paper)" in text
    tests = (everything / "tables" / "tests.md").read_text("utf-8")
    assert tests.count("one − two") == 9  # seven tasks, and reviews in two scenarios
    assert (everything / "tables" / "tasks.tex").read_text("utf-8").count(r"\midrule") == 2


def test_questions_share_one_finetuned_model(everything: Path) -> None:
    epochs = [
        json.loads((everything / f"cells/one/{task}/en-0/cell.json").read_text("utf-8"))["epochs"]
        for task in ("xquad", "mlqa")
    ]
    assert epochs[0] == epochs[1]


def test_only_missing_changed_or_damaged_jobs_run(
    small: list[str | Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    both = [*small, "--task", "xnli,pawsx"]
    assert run(*both) == 0
    first = job_times(output)
    results = digest_file(output / "results.jsonl")
    capsys.readouterr()
    assert run(*both) == 0
    assert "2 jobs are already complete" in capsys.readouterr().out
    shutil.copytree(data, tmp_path / "copy", copy_function=shutil.copyfile)  # with other times
    assert run(*both, "--data", tmp_path / "copy") == 0
    assert "2 jobs are already complete" in capsys.readouterr().out
    assert job_times(output) == first
    assert digest_file(output / "results.jsonl") == results

    assert run(*both, "--seeds", "2") == 0
    second = job_times(output)
    assert set(second) - set(first) == {"cells/one/xnli/en-1", "cells/one/pawsx/en-1"}
    assert all(second[place] == first[place] for place in first)

    capsys.readouterr()
    assert run(*both, "--set", "pawsx.epochs=2") == 0
    shown = capsys.readouterr().out
    assert "one pawsx en-0: again, changed: settings.epochs: 1 -> 2" in shown
    assert "one pawsx en: skipped seeds 1, which used other settings or files" in shown
    third = job_times(output)
    assert [place for place in second if third[place] != second[place]] == ["cells/one/pawsx/en-0"]
    assert {row["seed"] for row in read_rows(output) if row["task"] == "pawsx"} == {0}

    path = output / "cells/one/xnli/en-0/predictions/test-de.tsv"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"n", b"m", 1))
    assert run(*both, "--set", "pawsx.epochs=2") == 0
    assert "one xnli en-0: again, damaged: predictions/test-de.tsv" in capsys.readouterr().out
    assert path.read_bytes() == content
    assert digest_file(output / "results.jsonl") != results


def test_kept_models_serve_later(
    small: list[str | Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*small, "--task", "xnli") == 0
    assert run(*small, "--task", "xnli", "--keep-models") == 0
    assert "again, its model was not kept" in capsys.readouterr().out
    kept = tmp_path / "out/cells/one/xnli/en-0/model"
    assert read_json(kept / "metaxlm_task.json")["labels"] == list(TASKS["xnli"].labels)
    assert read_json(kept / "metaxlm_task.json")["length"] == 64
    AutoModelForSequenceClassification.from_pretrained(kept)
    assert run(*small, "--task", "xnli", "--keep-models") == 0
    assert "1 jobs are already complete" in capsys.readouterr().out


def test_examples_without_labels_are_predicted(
    models: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blanked = tmp_path / "data"
    shutil.copytree(data / "xnli", blanked / "xnli")
    for code in LANGUAGES:
        path = blanked / "xnli" / f"test-{code}.tsv"
        rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()]
        path.write_text("".join("\t".join(row[:2]) + "\n" for row in rows), encoding="utf-8")
    options = [*model_options(models), "--data", blanked, "--output", tmp_path / "out", *QUICK]
    assert run(*options, "--task", "xnli", "--languages", "de,ru") == 0
    rows = read_rows(tmp_path / "out")
    assert {row["split"] for row in rows} == {"dev"}
    text = (tmp_path / "out" / "tables" / "tasks.md").read_text("utf-8")
    assert "No labels, predictions only: xnli test of de ru." in text
    assert "XNLI: dev, 2 languages × 12 examples" in text
    labels = (tmp_path / "out/predictions/one/seed-0/xnli/test-de.tsv").read_text("utf-8")
    assert len(labels.splitlines()) == SIZES.test_examples
    assert "no example has a label" in capsys.readouterr().out


def test_an_own_task_is_evaluated(
    models: Path, data: Path, tmp_path: Path, metaxlm: Command
) -> None:
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nkind: classification\ncolumns: {text: 1, second: 2, label: 3}\n"
        f"train: {{de: {data}/xnli/test-de.tsv}}\ntest: {{ru: {data}/xnli/test-ru.tsv}}\n",
        encoding="utf-8",
    )
    options = ["evaluate", *model_options(models), "--task", "mine.yaml", *QUICK]
    code, shown, errors = metaxlm(*options, "--output", "out")
    assert code == 0, errors
    assert "one − two" in shown
    assert {(r["source"], r["language"]) for r in read_rows(tmp_path / "out")} == {("de", "ru")}


def test_a_collapsed_finetuning_is_reported(
    models: Path, data: Path, tmp_path: Path, metaxlm: Command
) -> None:
    options = ["evaluate", *model_options(models, ["one"]), "--data", data, "--task", "udpos"]
    code, shown, _ = metaxlm(*options, *QUICK, "--set", "learning_rate=1e-9", "--output", "idle")
    assert code == 0 and "one udpos en-0: learned nothing: f1" in shown
    assert "in the training language en, baseline" in shown
    code, shown, _ = metaxlm(*options, *QUICK, "--set", "epochs=20", "--output", "busy")
    assert code == 0 and "learned nothing" not in shown


def test_errors_are_reported_before_any_training(
    metaxlm: Command, models: Path, data: Path, tmp_path: Path
) -> None:
    def complain(*more: str | Path, task: str = "xnli", model: Path = models / "one") -> str:
        options = ["evaluate", "--model", model, "--task", task, "--output", tmp_path / "out"]
        return metaxlm.complaint(*options, "--device", "cpu", *more)

    here = ("--data", data)
    assert "did you mean xnli?" in complain(*here, task="xnil")
    assert "need --data DIR" in complain()
    assert "no such folder" in complain("--data", tmp_path / "absent")
    message = complain(*here, "--languages", "sw,ur")
    assert "no dev or test file of xnli for sw ur; found here: " in message
    message = complain(*here, "--languages", "de,sw")
    assert "--languages sw: no dev or test file in any of xnli" in message
    assert "no training file of xnli for de" in complain(*here, "--source", "de")
    assert "did you mean 'epochs'?" in complain(*here, "--set", "epoch=3")
    assert "unknown task 'pawx'" in complain(*here, "--set", "pawx.epochs=3")
    assert "found 0" in complain(*here, "--set", "epochs=0")
    assert "found 'fast'" in complain(*here, "--set", "learning_rate=fast")
    assert "expected KEY=VALUE" in complain(*here, "--set", "epochs")
    message = complain(*here)
    assert "has 64 positions, but xnli needs 256; add --set xnli.length=64" in message
    message = complain(*here, "--select", "source", task="amazon-books")
    assert "amazon-books has no dev file for en to select the epoch" in message
    assert "absent" in complain(*here, model=tmp_path / "absent")
    assert "no dev or test file of xnli" in complain("--data", models)
    assert not (tmp_path / "out").exists()


def test_an_output_that_cannot_be_written(
    metaxlm: Command, models: Path, data: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").write_text("a file", encoding="utf-8")
    options = [*model_options(models, ["one"]), "--data", data, "--task", "xnli", *QUICK]
    assert "choose another --output" in metaxlm.complaint("evaluate", *options, "--output", "out")
