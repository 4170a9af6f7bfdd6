from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from metaxlm.files import read_json
from metaxlm.finetune.catalog import TASKS
from metaxlm.model.any_encoder import load_encoder
from metaxlm.probe.embedding import embed_texts
from metaxlm.probe.linear_head import STRENGTHS
from metaxlm.probe.sentence_folder import export_sentence_transformers
from tests.commands import Command

COMMAND = "evaluate-sentences --teacher teacher --model student --data data --device cpu"


@pytest.fixture
def folder(tmp_path: Path, models: Path, data: Path) -> Path:
    """A teacher of sentence-transformers, a student that is a plain encoder, and the tasks."""
    export_sentence_transformers(load_encoder(models / "one"), tmp_path / "teacher")
    (tmp_path / "student").symlink_to(models / "two")
    (tmp_path / "data").symlink_to(data)
    return tmp_path


def read_table(text: str) -> dict[str, list[str]]:
    """The cells of the first Markdown table by the first one."""
    rows = [[cell.strip(" *") for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    end = next((k for k in range(3, len(rows)) if len(rows[k]) < 2), len(rows))
    return {row[0]: row[1:] for row in rows[:end] if len(row) > 1}


def encode(folder: Path, texts: list[str]) -> np.ndarray:
    vectors = embed_texts(load_encoder(folder / "student"), texts, torch.device("cpu"))[-1]
    return (vectors / vectors.norm(dim=1, keepdim=True)).numpy()


def test_every_measure_beside_the_teacher(metaxlm: Command, folder: Path) -> None:
    code, printed, errors = metaxlm(*COMMAND.split(), "--lines", "odd", "--output", "scores")
    assert (code, errors) == (0, "")
    assert "student: not of sentence-transformers; its vectors are means of the last" in printed
    written = (folder / "scores" / "scores.md").read_text("utf-8")
    assert written[: written.index("**Tatoeba")].strip() in printed
    for table in re.split(r"\n(?=\*\*)", written):
        assert list(read_table(table))[2:] == ["teacher (teacher)", "student"]
    found = read_json(folder / "scores" / "scores.json")
    assert found["teacher"] == "teacher"
    assert found["data"]["lines"] == "odd"
    teacher, student = (row["scores"] for row in found["models"])
    assert teacher["english"] == pytest.approx({"cosine": 1.0, "spearman": 1.0})
    assert student["english"]["spearman"] < 0.99
    means = [language["mean"] for language in student["tatoeba"].values()]
    assert sorted(student["tatoeba"]) == ["de", "ru"]
    assert read_table(written)["student"][0] == f"{100 * np.mean(means):.1f}"
    figure = (folder / "scores" / "tatoeba.svg").read_text("utf-8")
    assert all(name in figure for name in ("teacher", "student", "de", "ru"))
    assert not (folder / "scores" / "steps.svg").exists()
    # Retrieval of the odd lines, by numpy.
    texts = [
        (folder / f"data/tatoeba/tatoeba.deu-eng.{side}").read_text("utf-8").splitlines()
        for side in ("deu", "eng")
    ]
    cosines = encode(folder, texts[0]) @ encode(folder, texts[1]).T
    hits = cosines.argmax(axis=1) == np.arange(len(cosines))
    assert student["tatoeba"]["de"]["to_en"] == pytest.approx(hits[1::2].mean())


def test_encoders_of_steps_are_drawn_as_a_curve(metaxlm: Command, folder: Path) -> None:
    for step, name in ((5, "teacher"), (10, "student")):
        (folder / f"step-{step:08}").symlink_to(folder / name)
    models = [part for step in (5, 10) for part in ("--model", f"step-{step:08}")]
    command = ("evaluate-sentences", "--teacher", "teacher", *models, "--data", "data")
    code, _, errors = metaxlm(*command, "--languages", "de", "--limit", "20", "--device", "cpu")
    assert code == 0, errors
    curve = (folder / "scores" / "steps.svg").read_text("utf-8")
    assert "English Spearman" in curve and "Tatoeba" in curve
    assert "step-" not in (folder / "scores" / "tatoeba.svg").read_text("utf-8")


def test_the_head_of_inference(metaxlm: Command, folder: Path) -> None:
    """Accuracy by scikit-learn, with the strength that is best on every tenth example."""
    assert metaxlm(*COMMAND.split(), "--languages", "de", "--output", "scores")[0] == 0
    task = TASKS["xnli"]
    files = {(file.split, file.language): file for file in task.list_files(folder / "data")}

    def read(split: str, language: str) -> tuple[np.ndarray, np.ndarray]:
        examples = task.read(files[split, language]).items
        u, v = (
            encode(folder, [getattr(example, side) for example in examples])
            for side in ("first", "second")
        )
        features = np.concatenate([u, v, np.abs(u - v), u * v], axis=1)
        return features, np.array([task.labels.index(example.label) for example in examples])

    features, labels = read("train", "en")
    is_held = np.arange(len(labels)) % 10 == 0

    def fit(rows: np.ndarray, strength: float) -> tuple[StandardScaler, LogisticRegression]:
        scaler = StandardScaler().fit(features[rows])
        head = LogisticRegression(C=1 / (strength * rows.sum()), tol=1e-6, max_iter=500)
        return scaler, head.fit(scaler.transform(features[rows]), labels[rows])

    right = []
    for strength in STRENGTHS:
        scaler, head = fit(~is_held, strength)
        predicted = head.predict(scaler.transform(features[is_held]))
        right.append(((predicted == labels[is_held]).sum(), strength))
    scaler, head = fit(np.ones(len(labels), bool), max(right)[1])
    scores = read_json(folder / "scores" / "scores.json")["models"][1]["scores"]["xnli"]
    assert list(scores) == ["de", "en"]
    for language, accuracy in scores.items():
        tested, gold = read("test", language)
        expected = (head.predict(scaler.transform(tested)) == gold).mean()
        assert accuracy == pytest.approx(expected, abs=1 / len(gold) + 1e-9)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--teacher student --data data", "not a sentence encoder, it has no modules.json"),
        ("--teacher teacher --data data --languages xx", "--languages xx: no data set has them"),
        ("--teacher teacher --data none", "--data none: no such folder"),
        ("--teacher teacher", "nothing to score"),
        ("--teacher teacher --data data --output mine", "not empty and not written by metaxlm"),
        ("--teacher none --data data", "none: no such folder"),
    ],
)
def test_mistakes_are_one_line(
    metaxlm: Command, folder: Path, arguments: str, expected: str
) -> None:
    (folder / "mine").mkdir()
    (folder / "mine" / "notes.txt").write_text("mine")
    assert expected in metaxlm.complaint("evaluate-sentences", *arguments.split())
    assert not (folder / "scores").exists()


def test_missing_data_sets_are_skipped(metaxlm: Command, folder: Path) -> None:
    shutil.copytree(folder / "data" / "tatoeba", folder / "few" / "tatoeba")
    command = "evaluate-sentences --teacher teacher --data few --device cpu"
    code, printed, _ = metaxlm(*command.split())
    assert code == 0
    assert "xnli: skipped, " in printed
    assert "reviews: skipped, " in printed
    assert set(read_table((folder / "scores" / "scores.md").read_text())) >= {"teacher (teacher)"}
    assert metaxlm(*command.split())[0] == 0  # an earlier result is replaced
