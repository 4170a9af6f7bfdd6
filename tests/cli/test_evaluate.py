"""`metaxlm evaluate` with all tasks and two tiny models; stopped, killed, started twice at once."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from transformers import AutoModelForSequenceClassification

from metaxlm.files import digest_file, read_json
from metaxlm.finetune.catalog import TASKS
from tests.cli.conftest import LANGUAGES, QUICK, SIZES, job_times, model_options, read_rows, run
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


def test_rows_jobs_and_tables_agree(everything: Path) -> None:
    cell = json.loads((everything / "cells/two/xnli/en-1/cell.json").read_text("utf-8"))
    [file] = [f for f in cell["files"] if (f["split"], f["language"]) == ("test", "de")]
    keys = ("variant", "task", "metric")
    values = {
        (row["language"], row["seed"]): row["value"]
        for row in read_rows(everything)
        if [row[key] for key in keys] == ["two", "xnli", "accuracy"]
        and row["split"].startswith("test")
    }
    assert values["de", 1] == file["values"]["accuracy"]
    found = {(line["row"], line["column"]): line for line in read_csv(everything, "tasks")}
    assert len(values) == 6
    assert float(found["two", "XNLI"]["value"]) == pytest.approx(sum(values.values()) / 6)
    assert ("two", "Avg") in found
    languages = {(line["row"], line["column"]) for line in read_csv(everything, "languages-xnli")}
    assert {("German, de", column) for column in ("one", "Majority label", "Chance")} <= languages
    text = (everything / "tables" / "tasks.md").read_text("utf-8")
    assert "A quick try: only the first 12 examples of each file." in text
    tests = (everything / "tables" / "tests.md").read_text("utf-8")
    assert tests.count("one − two") == 9  # seven tasks, and reviews in two scenarios
    assert (everything / "tables" / "tasks.tex").read_text("utf-8").count(r"\midrule") == 2


def test_only_missing_changed_or_damaged_jobs_run(
    small: list[str | Path], data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    both = [*small, "--task", "xnli,pawsx"]
    assert run(*both) == 0
    first = job_times(output)
    results = digest_file(output / "results.jsonl")
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
    card = ModelCard.load(kept / "README.md").data
    assert card.pipeline_tag == "text-classification"
    rows = [row for row in read_rows(tmp_path / "out") if row["metric"] == "accuracy"]
    written = {one.dataset_config: one.metric_value for one in card.eval_results}
    assert written == {row["language"]: round(100 * row["value"], 2) for row in rows}
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
    def complain(*more: str | Path, task: str = "xnli") -> str:
        options = ["--model", models / "one", "--task", task, "--output", tmp_path / "out"]
        return metaxlm.complaint("evaluate", *options, "--device", "cpu", *more)

    here = ("--data", data)
    assert "did you mean xnli?" in complain(*here, task="xnil")
    assert "need --data DIR" in complain()
    assert "no such folder" in complain("--data", tmp_path / "absent")
    message = complain(*here, "--languages", "de,sw")
    assert "--languages sw: no dev or test file in any of xnli" in message
    assert "no training file of xnli for de" in complain(*here, "--source", "de")
    assert "did you mean 'epochs'?" in complain(*here, "--set", "epoch=3")
    assert "unknown task 'pawx'" in complain(*here, "--set", "pawx.epochs=3")
    assert "found -1" in complain(*here, "--set", "epochs=-1")
    switch = ("--set", "switch=0.5")
    assert "xnli: switch needs --dictionaries DIR" in complain(*here, *switch)
    message = complain(*here, "--dictionaries", data / "muse")
    assert "--dictionaries has no effect without a share; add --set switch=0.5" in message
    assert "absent: no such folder" in complain(*here, *switch, "--dictionaries", "absent")
    assert "found 2" in complain(*here, "--set", "switch=2", "--dictionaries", data / "muse")
    own = complain(*here, "--set", "epochs=0", "--set", "length=64")
    assert "without a task head, but epochs=0 scores the model's own head" in own
    message = complain(*here)
    assert "has 64 positions, but xnli needs 256; add --set xnli.length=64" in message
    message = complain(*here, "--select", "source", task="amazon-books")
    assert "amazon-books has no dev file for en to select the epoch" in message
    assert not (tmp_path / "out").exists()


def test_switched_words_come_from_dictionaries(small: list[str | Path], data: Path) -> None:
    """The dictionaries are an input of the job: another one repeats it."""
    words = data.parent / "words"
    shutil.copytree(data / "muse", words)
    output = Path(small[small.index("--output") + 1])
    options = [*small, "--task", "xnli", "--set", "switch=0.9", "--dictionaries", words]
    losses = []
    for line in ("", "", "quickly schnell\n"):
        with (words / "en-de.txt").open("a", encoding="utf-8") as file:
            file.write(line)
        assert run(*options) == 0
        losses.append((job_times(output), read_json(output / "cells/one/xnli/en-0/cell.json")))
    assert losses[0] == losses[1]
    assert losses[1][0] != losses[2][0]
    assert losses[0][1]["settings"]["switch"] == 0.9


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", "-m", "metaxlm", "evaluate", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


RESUMED = [*QUICK, "--limit", "8", "--task", "udpos", "--set", "epochs=3"]


@pytest.fixture(scope="module")
def undisturbed(models: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluation of two seeds that nothing stops."""
    output = tmp_path_factory.mktemp("undisturbed")
    options = [*model_options(models, ["one"]), "--data", data, "--output", output, *RESUMED]
    assert run(*options, "--seeds", "2") == 0
    return output


def check_continuation(arguments: Sequence[str | Path], output: Path, undisturbed: Path) -> None:
    """Check that no job runs twice, and that scores equal those of an undisturbed evaluation."""
    before = job_times(output)
    assert run(*arguments, "--seeds", str(len(before) + 1)) == 0
    after = job_times(output)
    assert len(after) == len(before) + 1
    assert {place: after[place] for place in before} == before
    for seed in (0, 1):
        mine, other = (
            read_json(root / f"cells/one/udpos/en-{seed}/cell.json")
            for root in (output, undisturbed)
        )
        assert mine["files"] == other["files"]


def wait_for(path: Path) -> None:
    until = time.monotonic() + 300
    while not path.exists():
        assert time.monotonic() < until
        time.sleep(0.005)


@pytest.mark.slow  # a killed process of a run is also tested in tests/run/test_grid.py
def test_a_killed_evaluation_resumes(
    small: list[str | Path], tmp_path: Path, undisturbed: Path
) -> None:
    arguments = [*small, *RESUMED]
    process = start(*arguments, "--seeds", "2000")
    wait_for(tmp_path / "out/cells/one/udpos/en-1/manifest.json")
    assert process.poll() is None
    process.kill()
    process.communicate()
    check_continuation(arguments, tmp_path / "out", undisturbed)


def test_a_stopped_evaluation_resumes(
    small: list[str | Path],
    tmp_path: Path,
    undisturbed: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [*small, *RESUMED]

    def stop() -> None:
        wait_for(tmp_path / "out/cells/one/udpos/en-1/manifest.json")
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=stop)
    before = signal.getsignal(signal.SIGTERM)
    thread.start()
    assert run(*arguments, "--seeds", "2000") == 75
    thread.join()
    assert signal.getsignal(signal.SIGTERM) is before
    assert capsys.readouterr().err == "metaxlm: stopped; the same command continues\n"
    assert not list((tmp_path / "out").rglob(".tmp-*"))
    check_continuation(arguments, tmp_path / "out", undisturbed)


@pytest.mark.slow  # the lock of jobs is also tested with whole runs, in tests/run/test_grid.py
def test_two_processes_share_a_folder(
    small: list[str | Path], models: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both have the same jobs: each job runs once, and both processes succeed."""
    arguments = [*small, *model_options(models, ["two"]), "--task", "xnli,udpos"]
    arguments += ["--set", "epochs=8", "--seeds", "3"]
    process = start(*arguments)
    wait_for(tmp_path / "out/cells/one/xnli/en-0/manifest.json")
    assert run(*arguments) == 0
    shown = process.communicate(timeout=300)[0]
    assert process.returncode == 0, shown
    both = [shown, capsys.readouterr().out]
    output = tmp_path / "out"
    assert len(job_times(output)) == 12
    made = [[line for line in text.splitlines() if "test files" in line] for text in both]
    assert all(made)
    assert len(made[0] + made[1]) == len({*made[0], *made[1]}) == 12
    found = {(r["variant"], r["task"], r["seed"]) for r in read_rows(output) if r["variant"]}
    assert len(found) == 12
    assert (output / "tables" / "tests.md").is_file()


def test_confusions_numbers_and_flores_are_evaluated(
    models: Path, data: Path, tmp_path: Path, metaxlm: Command
) -> None:
    pairs = {code: (data / f"xnli/test-{code}.tsv").read_text("utf-8") for code in ("de", "ru")}
    for code, text in pairs.items():
        rows = [line.split("\t") for line in text.splitlines()]
        lines = (f"{first}\t{second}\t{k % 5 / 4}\n" for k, (first, second, _) in enumerate(rows))
        (tmp_path / f"{code}.tsv").write_text("".join(lines), encoding="utf-8")
        (tmp_path / "dev").mkdir(exist_ok=True)
        name = {"de": "deu_Latn", "ru": "eng_Latn"}[code]
        sentences = "".join(f"{first}\n" for first, *_ in rows)
        (tmp_path / f"dev/{name}.dev").write_text(sentences, encoding="utf-8")
    columns = "columns: {text: 1, second: 2, label: 3}\n"
    files = "train: {{de: {0}de.tsv}}\ntest: {{ru: {0}ru.tsv}}\n"
    for name, kind, place in (
        ("mine", "classification", f"{data}/xnli/test-"),
        ("similar", "regression", ""),
    ):
        text = f"name: {name}\nkind: {kind}\n{columns}{files.format(place)}"
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    options = ["evaluate", *model_options(models), "--task", "mine.yaml,similar.yaml,flores"]
    options += ["--data", ".", *QUICK, "--output", "out"]
    code, shown, errors = metaxlm(*options)
    assert code == 0, errors
    assert "similar" in shown
    assert "gold classes" not in shown
    rows = read_rows(tmp_path / "out")
    assert {row["metric"] for row in rows if row["task"] == "similar"} >= {"pearson", "spearman"}
    found = {row["language"] for row in rows if row["task"] == "flores"}
    assert found == {"de"}
    numbers = (tmp_path / "out/predictions/one/seed-0/similar/from-de/test-ru.tsv").read_text(
        "utf-8"
    )
    assert len([float(line) for line in numbers.splitlines()]) == SIZES.test_examples
    confusion = read_csv(tmp_path / "out", "confusion-mine")
    labels = {"entailment", "neutral", "contradiction"}
    assert {row["row"] for row in confusion} == {row["column"] for row in confusion} == labels
    counts = [float(row["value"]) for row in confusion]
    assert sum(counts) == 2 * SIZES.test_examples  # of both models
    assert (tmp_path / "out/tables/layers-flores.md").is_file()
    code, _, errors = metaxlm(*options)
    assert code == 0, errors
