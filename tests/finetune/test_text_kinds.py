"""Own tasks with several labels or a number per text: learned, scored, saved, and bad input."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import f1_score
from transformers import AutoModelForSequenceClassification, ElectraConfig, ElectraModel, pipeline

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.classification import MultiLabelTask, RegressionTask
from metaxlm.finetune.custom import load_custom_task
from metaxlm.finetune.readers.texts import LabeledText
from metaxlm.finetune.task import IGNORED, AnyTask
from metaxlm.model.any_encoder import find_label_rows, load_encoder, save_finetuned
from metaxlm.model.huggingface import write_tokenizer
from tests.finetune.conftest import WORDS, MakeEncoder, Messages, make_tokenizer
from tests.finetune.test_custom import find
from tests.finetune.test_trainer import FAST, Outcome, Setting

MARKS = ("house", "river")
SIZES = {"train": 320, "dev": 60, "test": 80}
FILES = {split: f"{split}.jsonl" for split in SIZES}
YAML = "".join(f"{split}: {{en: {name}}}\n" for split, name in FILES.items())


def write_data(folder: Path, label: Callable[[list[str]], Any], is_pair: bool = False) -> None:
    """Write texts whose label is a function of the marks in them."""
    others = [word for word in WORDS[:20] if word not in MARKS]
    for split, size in SIZES.items():
        draw, lines = random.Random(split), []
        for _ in range(size):
            found = [mark for mark in MARKS if draw.random() < 0.5]
            words = draw.sample([draw.choice(others), *found], 1 + len(found))
            row = {"text": " ".join(words), "label": label(found)}
            lines.append(json.dumps(row | ({"second": "a hill"} if is_pair else {})) + "\n")
        (folder / FILES[split]).write_text("".join(lines), encoding="utf-8")


def load(folder: Path, text: str) -> AnyTask:
    (folder / "task.yaml").write_text(text, encoding="utf-8")
    return load_custom_task(folder / "task.yaml")


def save(task: AnyTask, learn: Setting, outcome: Outcome, folder: Path) -> Any:
    options: dict[str, Any] = {"kind": task.kind, "problem": task.problem, "labels": task.labels}
    options |= {"length": FAST.length, "stride": FAST.stride, "facts": {}}
    save_finetuned(outcome.trained.model, learn.start, folder, **options)
    return pipeline("text-classification", model=str(folder), top_k=None)


@pytest.fixture
def learn(make_encoder: MakeEncoder) -> Setting:
    return Setting(make_encoder(make_tokenizer("words"), scale=3.0), Path("nowhere"))


def test_learns_numbers_in_the_units_of_the_file(tmp_path: Path, learn: Setting) -> None:
    write_data(tmp_path, lambda found: 1000.0 + 250 * len(found), is_pair=True)
    columns = "columns: {second: second}\nmetric: spearman\n"
    task = load(tmp_path, f"name: sts\nkind: regression\n{columns}{YAML}")
    assert isinstance(task, RegressionTask)
    # Correlations ignore the scale, so they may choose an epoch that has not learned it yet.
    outcome = learn(task, ("en",), settings=replace(FAST, select_by="last"))
    scores = outcome.find("en")
    assert list(scores.values) == ["spearman", "pearson"]
    assert scores.values["spearman"] > 0.8 > 0.4 > abs(scores.chance["spearman"])
    assert scores.majority == {"pearson": 0.0, "spearman": 0.0}
    found = list(map(float, scores.submission.split()))
    gold = [float(item.label or "") for item in outcome.data.scored[-1].examples]
    assert np.abs(np.array(found) - gold).mean() < 150
    assert pearsonr(gold, found).statistic == pytest.approx(scores.values["pearson"], abs=1e-4)
    classify = save(task, learn, outcome, tmp_path / "model")
    examples = outcome.data.scored[-1].examples[:5]
    texts = [{"text": item.first, "text_pair": item.second} for item in examples]
    theirs = [classify(text)[0] for text in texts]
    assert [answer["label"] for answer in theirs] == ["score"] * 5
    assert [answer["score"] for answer in theirs] == pytest.approx(found[:5], rel=1e-4)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert (model.config.problem_type, model.config.num_labels) == ("regression", 1)
    # Its own head is scored as it is.
    again = Setting(learn.encoder, Path("nowhere"))
    again.start = load_encoder(tmp_path / "model")
    unchanged = again(task, ("en",), settings=replace(FAST, epochs=0))
    assert unchanged.find("en").values == pytest.approx(scores.values, abs=1e-4)


def test_learns_several_labels(tmp_path: Path, learn: Setting) -> None:
    write_data(tmp_path, lambda found: found)
    task = load(tmp_path, f"name: topics\nkind: multi_label\nseparator: '|'\n{YAML}")
    assert isinstance(task, MultiLabelTask)
    assert task.labels == tuple(sorted(MARKS))
    outcome = learn(task, ("en",), settings=FAST)
    scores = outcome.find("en")
    assert list(scores.values) == ["micro_f1", "macro_f1"]
    assert scores.values["micro_f1"] > 0.9 > scores.majority["micro_f1"]
    lines = scores.submission.split("\n")[:-1]
    gold = [item.label for item in outcome.data.scored[-1].examples]
    assert "" in gold and "house|river" in lines
    assert sum(a == "|".join(sorted(b.split("|"))) for a, b in zip(lines, gold, strict=True)) > 60
    classify = save(task, learn, outcome, tmp_path / "model")
    for item, line in zip(outcome.data.scored[-1].examples[:5], lines, strict=False):
        found = {one["label"] for one in classify([item.first])[0] if one["score"] > 0.5}
        assert found == set(filter(None, line.split("|")))
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    assert model.config.problem_type == "multi_label_classification"
    assert model.config.id2label == dict(enumerate(sorted(MARKS)))


def test_the_last_layer_of_another_architecture_is_converted(tmp_path: Path) -> None:
    """Transformers' own heads have their last layer elsewhere."""
    tokenizer = make_tokenizer("bert")
    torch.manual_seed(0)
    sizes = {"embedding_size": 16, "hidden_size": 16, "num_hidden_layers": 1}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 32, "vocab_size": len(tokenizer)}
    ElectraModel(ElectraConfig(**sizes)).save_pretrained(tmp_path / "electra")
    write_tokenizer(tmp_path / "electra", tokenizer, 64, has_token_types=True)
    learn = Setting.__new__(Setting)
    learn.start, learn.data_dir = load_encoder(tmp_path / "electra"), Path("nowhere")
    learn.encoder = learn.start.encoder
    write_data(tmp_path, lambda found: 500.0 + len(found))
    task = load(tmp_path, f"name: sts\nkind: regression\n{YAML}")
    outcome = learn(task, ("en",), settings=replace(FAST, epochs=1), limit=32)
    found = list(map(float, outcome.find("en").submission.split()))
    assert 495 < min(found) <= max(found) < 508
    answers = save(task, learn, outcome, tmp_path / "model")(
        [item.first for item in outcome.data.scored[-1].examples[:3]]
    )
    assert [row[0]["score"] for row in answers] == pytest.approx(found[:3], rel=1e-4)
    assert find_label_rows(load_encoder(tmp_path / "model"), task.kind, task.labels) == [0]


def make_regression(**more: Any) -> RegressionTask:
    facts: dict[str, Any] = {"name": "t", "title": "t", "languages": ("en",), "settings": FAST}
    return RegressionTask(**facts, list_files=lambda _: [], reader=lambda _: None, **more)


@pytest.mark.parametrize("size", [2, 3, 50])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_correlations_are_scipys(size: int, shift: float) -> None:
    task, draw = make_regression(), np.random.default_rng(size)
    gold = draw.integers(0, 5, size=size) + shift
    gold[:2] = [shift, shift + 1]
    found = gold + draw.normal(size=size)
    scores = task.score([LabeledText("a", None, str(x)) for x in gold], list(found), "en")
    assert scores["pearson"] == pytest.approx(pearsonr(gold, found).statistic, abs=1e-6)
    assert scores["spearman"] == pytest.approx(spearmanr(gold, found).statistic, abs=1e-9)


def make_multi_label(*labels: str) -> MultiLabelTask:
    facts: dict[str, Any] = {"name": "t", "title": "t", "languages": ("en",), "settings": FAST}
    facts |= {"list_files": lambda _: [], "reader": lambda _: None}
    return MultiLabelTask(**facts, labels=labels)


def test_labels_above_one_half_are_predicted_and_the_majority_is_a_set() -> None:
    task = make_multi_label("a", "b", "c")
    logits = [np.array([0.01, -0.01, 3.0]), np.array([-1.0, 0.0, -0.5])]
    assert task.decode((), (), logits) == [("a", "c"), ()]
    train = [LabeledText("t", None, label) for label in ("a,c", "b", "a,c", "")]
    assert task.answer_majority(train, train[:2]) == [("a", "c")] * 2


def test_f1_of_several_labels_is_scikit_learns() -> None:
    task = make_multi_label("a", "b", "c", "d")
    draw = np.random.default_rng(0)
    for size in (1, 5, 40):
        gold, found = draw.random((2, size, 4)) < [0.5, 0.5, 0.2, 0.0]
        names = [tuple(np.array(task.labels)[row]) for row in (*gold, *found)]
        texts = [LabeledText("t", None, ",".join(row)) for row in names[:size]]
        scores = task.score(texts, names[size:], "en")
        if gold.any() or found.any():
            for average in ("micro", "macro"):
                expected = f1_score(gold, found, average=average, zero_division=np.nan)
                assert scores[f"{average}_f1"] == pytest.approx(expected)
    assert task.score([LabeledText("t", None, "")], [()], "en") == {"micro_f1": 0, "macro_f1": 0}


def test_losses_leave_out_texts_without_a_label() -> None:
    logits = torch.randn(3, 1)
    labels = torch.tensor([[0.5], [IGNORED], [2.0]])
    loss = make_regression().compute_loss(logits, labels, torch.ones(3))
    expected = torch.nn.functional.mse_loss(logits[[0, 2]], labels[[0, 2]])
    assert loss == pytest.approx(expected)
    task = make_multi_label("a", "b")
    texts = [LabeledText("t", None, label) for label in ("a", None, "")]
    targets = task.encode_labels(texts)
    assert targets.tolist() == [[1, 0], [IGNORED, IGNORED], [0, 0]]
    logits = torch.randn(3, 2)
    loss = task.compute_loss(logits, torch.from_numpy(targets), torch.ones(3))
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        logits[[0, 2]], torch.from_numpy(targets)[[0, 2]]
    )
    assert loss == pytest.approx(expected)


def test_an_empty_cell_has_none_of_the_classes_and_a_blank_test_set_is_not_scored(
    tmp_path: Path, messages: Messages
) -> None:
    for split in SIZES:
        rows = "x\ta, b\ny\t\nz\tb\n" if split != "test" else "x\t\ny\t\n"
        (tmp_path / f"{split}.tsv").write_text(f"text\tlabel\n{rows}", encoding="utf-8")
    task = load(tmp_path, f"name: t\nkind: multi_label\n{YAML.replace('jsonl', 'tsv')}")
    assert task.labels == ("a", "b")
    labels = [item.label for item in task.read(find(task, "train", "en")).items]
    assert labels == ["a, b", "", "b"]
    assert not any(item.is_labeled for item in task.read(find(task, "test", "en")).items)


@pytest.mark.parametrize(
    ("kind", "rows", "expected"),
    [
        ("regression", ["1", "two"], "dev.tsv:3: the label 'two' is not a finite number"),
        ("regression", ["1", "nan"], "dev.tsv:3: the label 'nan' is not a finite number"),
        ("regression", ["1", ""], "dev.tsv:3: no label, in a dev file"),
        ("multi_label", ["a", "a, x"], "dev.tsv:3: unknown label 'x', training does not have it"),
    ],
)
def test_bad_labels_have_their_line(
    tmp_path: Path, kind: str, rows: list[str], expected: str
) -> None:
    good = ["1", "2"] if kind == "regression" else ["a", "b"]
    for split, labels in (("train", good), ("dev", rows), ("test", good)):
        text = "".join(f"t\t{label}\n" for label in labels)
        (tmp_path / f"{split}.tsv").write_text(f"text\tlabel\n{text}", encoding="utf-8")
    task = load(tmp_path, f"name: t\nkind: {kind}\n{YAML.replace('jsonl', 'tsv')}")
    with pytest.raises(MetaXLMError) as caught:
        task.read(find(task, "dev", "en"))
    assert str(caught.value).startswith(f"{tmp_path}/{expected}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: regression\nmetric: accuracy\n", "regression is scored by pearson or spearman"),
        ("kind: regression\nlabels: [a, b]\n", "labels: regression has no use for it"),
        ("kind: regression\nseparator: ';'\n", "separator: regression has no use for it"),
        ("kind: classification\n", "'label' is a list, expected text; several labels need"),
        ("kind: multi_label\nseparator: u\n", "the label 'house' is empty or has the separator"),
        ("kind: ranking\n", "kind: "),
    ],
)
def test_bad_keys(tmp_path: Path, text: str, expected: str) -> None:
    write_data(tmp_path, lambda found: found)
    with pytest.raises(MetaXLMError) as caught:
        load(tmp_path, f"name: t\n{text}{YAML}")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_equal_numbers_cannot_be_learned(tmp_path: Path) -> None:
    write_data(tmp_path, lambda found: 2.5 if found is not None else 0)
    with pytest.raises(MetaXLMError, match="training needs at least two different numbers"):
        load(tmp_path, f"name: t\nkind: regression\n{YAML}")
