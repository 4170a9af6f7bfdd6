"""Multiple choice: learned, scored by question, saved; own files, Belebele's, and bad input."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from transformers import PreTrainedTokenizerBase, pipeline

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.multiple_choice import MultipleChoiceTask
from metaxlm.finetune.readers.choices import Choices
from metaxlm.finetune.task import IGNORED, AnyTask, load_data
from metaxlm.finetune.trainer import evaluate, train_model
from metaxlm.model.any_encoder import load_encoder, save_finetuned
from metaxlm.run.task_plans import TaskOverrides, plan_task
from tests.finetune.conftest import (
    CPU,
    TEXT,
    WORDS,
    MakeEncoder,
    Messages,
    make_tokenizer,
    write,
)
from tests.finetune.test_custom import find
from tests.finetune.test_layouts import load, problem, save_dataset
from tests.finetune.test_trainer import FAST, Outcome, Setting

SIZES = {"train": 400, "dev": 60, "test": 100}
YAML = "name: t\nkind: multiple_choice\n" + "".join(
    f"{split}: {{en: {split}.jsonl}}\n" for split in SIZES
)
ROW = {"context": "the hill", "question": "what ?", "choices": ["house", "hill"], "answer": 2}
TRAINING = ["dataset", "split", "passage_id", "question_id", "passage", "question"]
TRAINING += [*(f"answer{k}" for k in range(1, 5)), "correct_answer", "correct_answer_num"]


def dump(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def read(folder: Path, columns: str = "", suffix: str = "jsonl") -> list[Choices]:
    task = load(folder, YAML.replace("jsonl", suffix) + columns)
    items: list[Choices] = task.read(find(task, "test", "en")).items
    return items


def write_rows(folder: Path, **changes: Any) -> None:
    """Write two rows to each file, the second of the test file with changes."""
    for split in SIZES:
        write(folder / f"{split}.jsonl", dump(ROW, ROW))
    row = {key: value for key, value in {**ROW, **changes}.items() if value is not ...}
    write(folder / "test.jsonl", dump(ROW, row))


@pytest.fixture(scope="module")
def learned(
    make_encoder: MakeEncoder, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, AnyTask, Setting, Outcome]:
    """A task that only the pair solves: the right choice is the word of the context."""
    folder = tmp_path_factory.mktemp("choices")
    words = sorted(set(WORDS))[:6]
    for split, size in SIZES.items():
        draw, rows = random.Random(split), []
        for _ in range(size):
            choices = draw.sample(words, draw.choice([2, 3, 3, 4]))
            right = draw.randrange(len(choices))
            row = {"context": choices[right], "question": "is it", "choices": choices}
            rows.append({**row, "answer": right + 1})
        write(folder / f"{split}.jsonl", dump(*rows))
    task = load(folder, YAML)
    learn = Setting(make_encoder(make_tokenizer("words")), folder)
    settings = replace(FAST, epochs=6, batch_size=32)
    return folder, task, learn, learn(task, ("en",), settings=settings)


def test_a_small_encoder_learns_to_choose(
    learned: tuple[Path, AnyTask, Setting, Outcome],
) -> None:
    _, task, _, outcome = learned
    test = outcome.find("en")
    assert test.values["accuracy"] > 0.6
    assert test.chance["accuracy"] < 0.5
    assert test.majority["accuracy"] < 0.5
    questions = outcome.data.scored[-1].examples
    assert test.num_examples == len(test.tally) == len(questions) == SIZES["test"]
    answers = list(map(int, test.submission.split()))
    right = [question.answer == answer for question, answer in zip(questions, answers, strict=True)]
    assert test.tally.tolist() == [[float(r), 1.0] for r in right]
    assert np.mean(right) == test.values["accuracy"]
    assert len(outcome.data.scored[-1].features) == sum(len(q.choices) for q in questions)
    assert task.settings.select_by == "source"


def test_a_kept_model_scores_without_training_files(
    learned: tuple[Path, AnyTask, Setting, Outcome], tmp_path: Path
) -> None:
    folder, task, learn, outcome = learned
    facts = {"task": task.name}
    about: dict[str, Any] = {"kind": task.kind, "labels": task.labels, "length": 48, "stride": 1}
    model = outcome.trained.model
    save_finetuned(model, learn.start, tmp_path / "model", facts=facts, **about)
    start = load_encoder(tmp_path / "model")
    write_belebele(tmp_path / "data", has_training=False)
    for name in ("eng_Latn", "deu_Latn"):
        rows = [json.loads(line) for line in (folder / "test.jsonl").read_text().splitlines()]
        rows = [row for row in rows if len(row["choices"]) == 4]
        write(tmp_path / f"data/{name}.jsonl", dump(*map(as_belebele, rows)))
    task = load(tmp_path, "name: b\nfolder: data\nlength: 48\n")
    plan = plan_task(task, tmp_path, TaskOverrides(values={"": {"epochs": 0}}))
    assert (plan.sources, set(plan.languages)) == (("en",), {"en", "de", "arb_Latn"})
    config = start.encoder.config
    options: dict[str, Any] = {"source": "en", "languages": ("de",), "config": config}
    data = load_data(task, start.tokenizer, tmp_path, settings=plan.settings, **options)
    trained = train_model(task, start, data, plan.settings, 1, CPU)
    (test,) = evaluate(task, trained.model, data, config, CPU)
    asked = outcome.data.scored[-1].examples
    pairs = zip(asked, outcome.find("en").submission.split(), strict=True)
    expected = [answer for question, answer in pairs if len(question.choices) == 4]
    assert test.submission.split() == expected
    assert set(test.values) == set(test.majority) == set(test.chance) == {"accuracy"}
    classify = pipeline("text-classification", str(tmp_path / "model"), top_k=None)
    first = data.scored[0].examples[0]
    inputs = [{"text": first.context, "text_pair": f"{first.question} {c}"} for c in first.choices]
    scores = [{row["label"]: row["score"] for row in classify(each)} for each in inputs]
    assert int(np.argmax([score["right"] for score in scores])) + 1 == int(expected[0])
    with pytest.raises(MetaXLMError, match="no training file of b for en"):
        plan_task(task, tmp_path, TaskOverrides())


def make_task() -> MultipleChoiceTask:
    facts: dict[str, Any] = {"name": "t", "title": "t", "languages": ("en",), "settings": FAST}
    facts |= {"list_files": lambda _: [], "reader": lambda _: None}
    return MultipleChoiceTask(**facts)


def test_the_most_probable_choice_of_each_question() -> None:
    task = make_task()
    questions = [
        Choices("a", "b", ("x", "y", "z"), 3),
        Choices(None, "b", ("x", "y"), None),
        Choices("a", "b", ("x", "y"), 1),
    ]
    settings = replace(FAST, length=64)
    features = task.featurize(questions, make_tokenizer("words"), settings).features
    labels = [int(pair.labels[0]) for pair in features]
    assert labels == [0, 0, 1, IGNORED, IGNORED, 1, 0]
    # The third has the highest logit of `right`, and a higher one of `wrong`.
    logits = [[0, 1], [-5, -3], [9, 9], [0, 0], [0, 2], [1, 0], [1, 0]]
    rows = [np.array(row, dtype=np.float32) for row in logits]
    assert task.decode(questions, features, rows) == [2, 2, 1]
    assert task.score(questions[::2], [2, 1], "en") == {"accuracy": 0.5}
    assert task.answer_majority([questions[0], questions[0], questions[2]], questions) == [3] * 3
    draws = task.answer_randomly([], questions * 200, np.random.default_rng(0))
    assert [set(draws[k::3]) for k in range(3)] == [{1, 2, 3}, {1, 2}, {1, 2}]
    assert task.format_predictions(questions, [2, 2, 1]) == "2\n2\n1\n"


@pytest.mark.parametrize("length", [24, 40, 4])
def test_a_long_context_is_cut_and_the_choice_is_kept(
    any_tokenizer: PreTrainedTokenizerBase, length: int
) -> None:
    context, question, choice = " ".join(TEXT[:3] * 3), "not what ?", "the house"
    asked = [Choices(context, question, (choice, "it"), 1), Choices("We", "it ?", ("a", "b"), 1)]
    encoded = make_task().featurize(asked, any_tokenizer, replace(FAST, length=length))
    found = encoded.features[0].ids.tolist()
    full = any_tokenizer(context, f"{question} {choice}")
    ids = full["input_ids"]
    second = [k for k, side in enumerate(full.sequence_ids()) if side == 1]
    specials = len(ids) - sum(side is not None for side in full.sequence_ids())
    assert len(found) == max(length, specials)
    kept = length - specials - len(second)
    if kept >= 0:
        assert found[-len(ids[second[0] :]) :] == ids[second[0] :]
        assert found[: kept + 1] == ids[: kept + 1]
    elif length > specials:
        last = found[:-1] if found[-1] == ids[-1] else found
        assert last[-(length - specials) :] == [ids[k] for k in second[specials - length :]]
    assert encoded.notice.endswith(f"{length} tokens; their contexts are truncated")
    types = encoded.features[0].token_types
    assert types is not None
    assert len(types) == len(found)
    unchanged = any_tokenizer("We", "it ? a")["input_ids"]
    if len(unchanged) <= length:
        assert encoded.features[2].ids.tolist() == unchanged


def test_own_files_have_lists_or_columns(tmp_path: Path) -> None:
    expected = Choices("the hill", "what ?", ("house", "hill"), 2)
    write_rows(tmp_path)
    assert read(tmp_path) == [expected] * 2
    for answer in ("2", "B", "hill", "2.0"):
        write_rows(tmp_path, answer=answer)
        assert read(tmp_path)[1] == expected
    write_rows(tmp_path, answer=..., context=...)
    assert read(tmp_path)[1] == Choices(None, "what ?", ("house", "hill"), None)
    for split in SIZES:
        rows = 'q,one,two,right\n"what, ?",house,hill,hill\n'
        write(tmp_path / f"{split}.csv", rows)
        write(tmp_path / f"{split}.tsv", 'what ?\t["house", "hill"]\t1\n')
        table = pa.table({key: [value] for key, value in ROW.items()})
        parquet.write_table(table, tmp_path / f"{split}.parquet")
    columns = "columns: {question: q, choices: [one, two], answer: right}\n"
    assert read(tmp_path, columns, "csv") == [Choices(None, "what, ?", ("house", "hill"), 2)]
    columns = "columns: {question: 1, choices: 2, answer: 3}\n"
    assert read(tmp_path, columns, "tsv") == [Choices(None, "what ?", ("house", "hill"), 1)]
    assert read(tmp_path, "", "parquet") == [expected]
    save_dataset(tmp_path / "saved", {key: [value] for key, value in ROW.items()}, {})
    task = load(tmp_path, YAML.replace("test: {en: test.jsonl}", "test: {en: saved}"))
    assert task.read(find(task, "test", "en")).items == [expected]


def test_numbers_that_are_choices(tmp_path: Path) -> None:
    """A number counts the choices, unless all answers of the file are texts of choices."""
    numbers = {"choices": ["2", "1"], "question": "how many ?"}
    write_rows(tmp_path)
    write(tmp_path / "test.jsonl", dump({**numbers, "answer": 2}, {**numbers, "answer": "1"}))
    assert [item.answer for item in read(tmp_path)] == [1, 2]
    write(tmp_path / "test.jsonl", dump({**numbers, "answer": 2}, {**ROW, "answer": 1}))
    assert [item.answer for item in read(tmp_path)] == [2, 1]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"answer": 3}, "test.jsonl:2: the answer is 3, but there are 2 choices; count them from"),
        ({"answer": 0}, "test.jsonl:2: the answer is 0, but there are 2 choices; count them from"),
        ({"answer": "C"}, "test.jsonl:2: the answer 'C' is none of the choices (house, hill); "),
        ({"choices": ["house"]}, "test.jsonl:2: at least 2 choices are needed, found 1; add"),
        ({"choices": ["house", " "]}, "test.jsonl:2: choice 2 is empty; fill it or delete the row"),
        ({"choices": ...}, "test.jsonl:2: no key 'choices'; found: context, question, answer"),
        ({"choices": "house"}, "test.jsonl:2: the choices are 'house', expected a list of texts"),
        ({"context": " "}, "test.jsonl:2: the context is empty; fill it or delete the row"),
        ({"question": ""}, "test.jsonl:2: the question is empty; fill it or delete the row"),
        ({"question": ["x"]}, "test.jsonl:2: 'question' is a list, expected text"),
    ],
)
def test_bad_rows_have_their_line(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    write_rows(tmp_path, **changes)
    assert problem(tmp_path, YAML).startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("metric: macro_f1\n", "task.yaml:6: metric: multiple_choice is scored by accuracy"),
        ("columns: {text: a}\n", "task.yaml:6: columns.text: multiple_choice does not read it"),
        ("columns: {choices: [a, 2]}\n", "task.yaml:6: columns: give names for files with a head"),
        ("columns: {choices: [a]}\n", "task.yaml:6: columns.choices"),
        ("columns: {context: text}\n", "train.jsonl:1: no key 'text'; found: context, question"),
        ("labels: [a, b]\n", "task.yaml:6: labels: multiple_choice has no use for it"),
    ],
)
def test_bad_keys(tmp_path: Path, text: str, expected: str) -> None:
    write_rows(tmp_path)
    assert problem(tmp_path, YAML + text).startswith(expected)


def test_only_test_files_may_lack_answers(tmp_path: Path) -> None:
    write_rows(tmp_path)
    write(tmp_path / "dev.jsonl", dump({**ROW, "answer": ""}))
    assert (
        problem(tmp_path, YAML)
        == "dev.jsonl:1: no answer, in a dev file; fill it or delete the row"
    )


def as_belebele(row: dict[str, Any]) -> dict[str, Any]:
    named = {f"mc_answer{k}": text for k, text in enumerate(row["choices"], start=1)}
    more = {"link": "https://en.wikinews.org/x", "question_number": 1, "dialect": "x", "ds": "y"}
    named |= {"flores_passage": row["context"], "question": row["question"]}
    return {**more, **named, "correct_answer_num": str(row["answer"])}


def write_belebele(folder: Path, has_training: bool = True) -> None:
    row = {**ROW, "choices": ["house", "hill", "1", "2"]}
    for name in ("eng_Latn", "deu_Latn", "arb_Latn"):
        write(folder / f"{name}.jsonl", dump(*map(as_belebele, [row, {**row, "answer": 4}])))
    write(folder / "README.md", "about")
    if not has_training:
        return
    table = [["", *TRAINING]]
    for k, split in enumerate(["train", "dev", "train", "test", "train"]):
        passage = f'He said "{split}",\n\ton the hill.' if k < 4 else ""
        number = "3.0" if k == 0 else "3"
        table.append([str(k), "RACE", split, "1", "0", passage, "Who ?", *"abcd", "c", number])
    with (folder / "belebele_training_set.tsv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(table)


@pytest.mark.parametrize("is_named", [True, False])
def test_belebele_trains_in_english_and_tests_in_all_languages(
    tmp_path: Path, messages: Messages, is_named: bool
) -> None:
    write_belebele(tmp_path / "data")
    task = load(tmp_path, "name: b\nfolder: data\n" + ("layout: belebele\n" if is_named else ""))
    assert isinstance(task, MultipleChoiceTask)
    assert set(task.languages) == {"en", "de", "arb_Latn"}
    assert (task.sources, task.settings.select_by) == (("en",), "source")
    test = task.read(find(task, "test", "de")).items
    asked = Choices("the hill", "what ?", ("house", "hill", "1", "2"), 2)
    assert test == [asked, replace(asked, answer=4)]
    train = task.read(find(task, "train", "en"))
    said = Choices('He said "train",\n\ton the hill.', "Who ?", tuple("abcd"), 3)
    assert train.items == [said] * 2
    assert train.notices[0].endswith("1 questions of train have an empty cell; left out")
    assert len(task.read(find(task, "dev", "en")).items) == 1
    assert len(task.list_files(tmp_path)) == 5


def test_other_files_of_belebele(tmp_path: Path) -> None:
    write_belebele(tmp_path / "data")
    (tmp_path / "data/deu_Latn.jsonl").unlink()
    rows = [as_belebele({**ROW, "choices": list("abcd")})]
    folder = tmp_path / "data/deu_Latn"
    folder.mkdir()
    parquet.write_table(pa.Table.from_pylist(rows), folder / "test-00000-of-00001.parquet")
    with (tmp_path / "data/fra_Latn.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    task = load(tmp_path, "name: b\nfolder: data\n")
    for language in ("de", "fr"):
        expected = Choices("the hill", "what ?", tuple("abcd"), 2)
        assert task.read(find(task, "test", language)).items == [expected]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mc_answer3": None}, "no key 'mc_answer3'; found: "),
        ({"correct_answer_num": "5"}, "the answer is 5, but there are 4 choices; count them from"),
        ({"flores_passage": ""}, "the context is empty; fill it or delete the row"),
    ],
)
def test_bad_rows_of_belebele(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    write_belebele(tmp_path / "data")
    row = as_belebele({**ROW, "choices": list("abcd")})
    write(tmp_path / "data/deu_Latn.jsonl", dump(row, {**row, **changes}))
    where = "data/deu_Latn.jsonl:2: "
    assert problem(tmp_path, "name: b\nfolder: data\n").startswith(where + expected)


def test_mistakes_about_belebele(tmp_path: Path, messages: Messages) -> None:
    write_belebele(tmp_path / "data")
    text = "name: b\nfolder: data\n"
    found = problem(tmp_path, f"{text}kind: classification\n")
    assert found.startswith("task.yaml:3: kind: belebele is multiple_choice, found classification")
    found = problem(tmp_path, f"{text}metric: macro_f1\n")
    assert found.startswith("task.yaml:3: metric: multiple_choice is scored by accuracy")
    write(tmp_path / "data/belebele_training_set.tsv", "\t".join(TRAINING) + "\n")
    assert "belebele_training_set.tsv:1: a header and nothing else" in problem(tmp_path, text)
    (tmp_path / "data/belebele_training_set.tsv").unlink()
    load(tmp_path, text)
    assert "no belebele_training_set.tsv; only models with a trained task head" in messages()
