"""The examples of docs/finetuning.md give the labels of our own evaluation."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

from metaxlm.finetune.catalog import TASKS
from metaxlm.finetune.scoring import FileScores, evaluate
from metaxlm.finetune.task import Dataset, load_data
from metaxlm.finetune.trainer import train_model
from metaxlm.model.any_encoder import AnyEncoder, save_finetuned
from tests.finetune.conftest import CPU, WORDS, MakeEncoder, make_tokenizer
from tests.finetune.test_trainer import FAST, SPLITS, write_udpos, write_xnli

GUIDE = Path(__file__).parents[2] / "docs" / "finetuning.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def write_squad(folder: Path, name: str, size: int) -> None:
    draw = random.Random(name)
    paragraphs = []
    for number in range(size):
        words = draw.choices(WORDS, k=12)
        answer = {"text": words[5], "answer_start": len(" ".join(words[:5])) + 1}
        entry = {"id": f"{number}", "question": " ".join(words[4:6]), "answers": [answer]}
        paragraphs.append({"context": " ".join(words), "qas": [entry]})
    (folder / name).write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasks")
    for name, size in (("train-v1.1", 64), ("dev-v1.1-minus-xquad", 10), ("xquad.en", 20)):
        write_squad(folder, f"{name}.json", size)
    return write_udpos(write_xnli(folder, SPLITS), SPLITS)


def finetune(
    name: str, data_dir: Path, make_encoder: MakeEncoder, folder: Path
) -> tuple[FileScores, Dataset]:
    """Finetune a tiny model, save it, and return the scores on the English test set."""
    task, tokenizer = TASKS[name], make_tokenizer("words")
    start = AnyEncoder("test", tokenizer, make_encoder(tokenizer, scale=3.0))
    config = start.encoder.config
    data = load_data(
        task, tokenizer, data_dir, source="en", languages=["en"], settings=FAST, config=config
    )
    model = train_model(task, start, data, FAST, 1, CPU).model
    options: dict[str, Any] = {"length": FAST.length, "stride": FAST.stride, "facts": {}}
    save_finetuned(model, start, folder, kind=task.kind, labels=task.labels, **options)
    return evaluate(task, model, data, config, CPU)[-1], data.scored[-1]


def run_example(number: int, folder: Path) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(re.sub(r"finetuned/\w+", str(folder), EXAMPLES[number]), names)
    return names


def test_classification(data_dir: Path, make_encoder: MakeEncoder, tmp_path: Path) -> None:
    scores, data = finetune("xnli", data_dir, make_encoder, tmp_path / "model")
    names = run_example(0, tmp_path / "model")
    assert names["labels"][0] in TASKS["xnli"].labels
    pairs = [{"text": pair.first, "text_pair": pair.second} for pair in data.examples]
    found = [names["classify"](pair)["label"] for pair in pairs]
    assert found == scores.submission.splitlines()
    assert len(set(found)) == 3


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
def test_tagging(data_dir: Path, make_encoder: MakeEncoder, tmp_path: Path) -> None:
    scores, data = finetune("udpos", data_dir, make_encoder, tmp_path / "model")
    names = run_example(1, tmp_path / "model")
    for sentence, block in zip(data.examples, scores.submission.split("\n\n"), strict=False):
        text = " ".join(sentence.words)
        tags = [
            span["entity_group"]
            for span in names["tag"](text)
            for _ in text[span["start"] : span["end"]].split()
        ]
        assert tags == block.split()
    assert len(set(scores.submission.split())) == 3


def test_questions(data_dir: Path, make_encoder: MakeEncoder, tmp_path: Path) -> None:
    scores, data = finetune("xquad", data_dir, make_encoder, tmp_path / "model")
    answer = run_example(2, tmp_path / "model")["answer"]
    found = {item.id: answer(item.question, item.context) for item in data.examples}
    assert found == json.loads(scores.submission)
    assert len(set(found.values())) > 5
