"""Custom tasks: the examples of the guide, and every mistake with its line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import f1_score

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.custom import load_custom_task
from metaxlm.finetune.qa import SpanTask
from metaxlm.finetune.readers.conll import TaggedSentence
from metaxlm.finetune.readers.texts import LabeledText
from metaxlm.finetune.task import AnyTask, DataFile
from tests.finetune.conftest import MakeEncoder, Messages, make_tokenizer
from tests.finetune.test_trainer import Setting

GUIDE = Path(__file__).parents[2] / "docs" / "own_data.md"
EXAMPLES = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def squad(*questions: tuple[str, str, str]) -> str:
    """Return SQuAD's JSON of (id, context, answer)."""
    entries = []
    for name, context, answer in questions:
        answers = [{"text": answer, "answer_start": context.index(answer)}] if answer else []
        entry = {"id": name, "question": "Where ?", "answers": answers}
        entries.append({"context": context, "qas": [entry]})
    return json.dumps({"data": [{"title": "t", "paragraphs": entries}]}, indent=1)


TICKETS = "body\tteam\nthe house sits\tbilling\nwe do not believe\ttechnical\n"
CONLL = "The\tO\nhouse\tB-THING\nstands\tO\n\nthe\tO\ngreen\tB-THING\nhill\tI-THING\n"
CONTEXT = "The small house sits on the green hill near the river ."
FILES = {
    "data/train.tsv": TICKETS,
    "data/dev.tsv": "id\tteam\tbody\n1\tbilling\tthe hill\n",
    "data/test.de.tsv": "body\tteam\nDas kleine Haus\ttechnical\nWir glauben\t\n",
    "data/test.pl.jsonl": '{"body": "Das Haus", "team": "billing"}\n',
    "ner/train.conll": CONLL,
    "ner/train.fr.conll": "Nous\tO\nrivière\tS-PLACE\n",
    "ner/dev.conll": CONLL,
    "ner/test.conll": "-DOCSTART-\tO\n\nThe\tO\nriver\tI-PLACE\n",
    "ner/test.cs.conll": "The O\nhill S-THING\n",
    "squad/train.json": squad(("1", CONTEXT, "hill"), ("2", CONTEXT, "house")),
    "squad/dev.json": squad(("1", CONTEXT, "the river")),
    "squad/test.json": squad(("1", CONTEXT, "green hill"), ("2", CONTEXT, "")),
    "squad/test.tr.json": squad(("1", CONTEXT, "green hill")),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the guide's examples name."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def load(folder: Path, text: str) -> AnyTask:
    path = folder / "task.yaml"
    path.write_text(text, encoding="utf-8")
    return load_custom_task(path)


def problem(folder: Path, text: str, read: tuple[str, str] | None = None) -> str:
    with pytest.raises(MetaXLMError) as caught:
        task = load(folder, text)
        if read:
            task.read(find(task, *read))
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{folder}/", "")


def find(task: AnyTask, split: str, language: str) -> DataFile:
    (file,) = (
        f for f in task.list_files(Path("any")) if (f.split, f.language) == (split, language)
    )
    return file


def change(example: int, *changes: tuple[str, str]) -> str:
    text = EXAMPLES[example]
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("example", range(3))
def test_the_examples_of_the_guide_train_and_test(
    folder: Path, example: int, make_encoder: MakeEncoder, messages: Messages
) -> None:
    task = load(folder, change(example, ("name:", "epochs: 1\nname:")) if example else EXAMPLES[0])
    encoder = make_encoder(make_tokenizer("unigram"), max_positions=400)
    finetune = Setting(encoder, Path("nowhere"), "unigram")
    languages = tuple(task.languages)
    scores = finetune(task, languages, 0, task.settings, source=task.sources[0]).scores
    splits = {(score.file.split, score.file.language): score for score in scores}
    expected: list[Any] = [
        ({("dev", "de"), ("test", "de"), ("test", "pl")}, ("test", "de"), 1),
        ({("dev", "de"), ("test", "de"), ("test", "cs")}, ("test", "de"), 0),
        ({("dev", "en"), ("test", "en"), ("test", "tr")}, ("test", "en"), 1),
    ]
    files, place, num_unlabeled = expected[example]
    assert set(splits) == files
    assert splits[place].num_unlabeled == num_unlabeled
    assert ("predicted, not scored" in messages()) == bool(num_unlabeled)
    for score in scores:
        assert 0 <= score.values[task.metric] <= 1
        assert set(score.values) == set(score.chance) == set(score.majority)


def test_settings_texts_pairs_and_labels_are_read(folder: Path) -> None:
    task = load(folder, EXAMPLES[0] + "title: Tickets\nwarmup: 0.2\n")
    settings = task.settings
    assert (settings.epochs, settings.learning_rate, settings.warmup) == (8, 3e-5, 0.2)
    assert (task.name, task.title, task.metric) == ("tickets", "Tickets", "macro_f1")
    assert (task.sources, task.languages) == (("de",), ("de", "pl"))
    task = load(folder, change(0, ("labels: [billing, technical]\n", "")))
    assert task.labels == ("billing", "technical")
    assert task.reading == '{"text":"body","label":"team"}'
    assert task.read(find(task, "train", "de")).items == [
        LabeledText("the house sits", None, "billing"),
        LabeledText("we do not believe", None, "technical"),
    ]
    content = task.read(find(task, "test", "de"))
    assert content.items[1] == LabeledText("Wir glauben", None, None)
    text = change(0, ("{text: body, label: team}", "{text: 1, second: 2, label: -1}"))
    text = text.replace("labels: [billing, technical]", "labels: [0, 1]")
    for name in ("train", "dev", "test.de"):
        (folder / f"data/{name}.tsv").write_text("a\tb\t0\nc\td\t1\n", encoding="utf-8")
    task = load(folder, text)
    assert task.read(find(task, "dev", "de")).items[1] == LabeledText("c", "d", "1")


def test_span_tags_of_any_scheme_are_bio(folder: Path, messages: Messages) -> None:
    task = load(folder, change(1, ("metric: span_f1\n", "")))
    assert task.labels == ("O", "B-PLACE", "I-PLACE", "B-THING", "I-THING")
    assert task.metric == "span_f1"
    assert "products: scored by span_f1" in messages()
    assert task.read(find(task, "test", "de")).items == [
        TaggedSentence(("The", "river"), ("O", "B-PLACE"))
    ]
    by_types = load(folder, EXAMPLES[1] + "labels: [THING, PLACE]\n")
    by_tags = load(folder, EXAMPLES[1] + "labels: [O, B-THING, I-THING, B-PLACE]\n")
    assert task.labels == by_types.labels == by_tags.labels
    message = problem(folder, EXAMPLES[1] + "labels: [THING]\n")
    assert message.startswith("ner/train.fr.conll:2: the label 'B-PLACE' is not among")
    examples = [TaggedSentence(("a", "b", "c"), ("B-THING", "I-THING", "O"))]
    scores = task.score(examples, [("B-THING", "I-THING", "B-PLACE")], "de")
    assert scores == {"span_f1": pytest.approx(2 / 3), "precision": 0.5, "recall": 1.0}


def test_plain_tags_are_scored_by_accuracy(folder: Path) -> None:
    for path in (folder / "ner").iterdir():
        path.write_text("The\tDET\nhouse\tNOUN\n", encoding="utf-8")
    task = load(folder, change(1, ("metric: span_f1\n", "")))
    assert (task.metric, task.labels) == ("accuracy", ("DET", "NOUN"))
    examples = task.read(find(task, "test", "de")).items
    assert task.score(examples, [("DET", "DET")], "de") == {"accuracy": 0.5}
    assert "is neither O nor" in problem(folder, EXAMPLES[1])


def test_macro_f1_is_scikit_learns(folder: Path) -> None:
    task = load(
        folder, change(0, ("labels: [billing, technical]", "labels: [billing, technical, x, y]"))
    )
    random = np.random.default_rng(0)
    for num in (1, 3, 10, 100):
        gold, said = random.choice(task.labels[:3], size=(2, num)).tolist()
        scores = task.score([LabeledText("t", None, label) for label in gold], said, "de")
        expected = f1_score(gold, said, average="macro")
        assert scores == {
            "macro_f1": pytest.approx(expected),
            "accuracy": pytest.approx(np.mean(np.array(gold) == said)),
        }
    assert task.tally([], [], "de").shape == (0, 14)


def test_languages_train_together_or_separately(folder: Path, messages: Messages) -> None:
    task = load(folder, EXAMPLES[1])
    assert task.sources == ("de+fr",)
    train, select = find(task, "train", "de+fr"), find(task, "select", "de+fr")
    assert train.paths == (folder / "ner/train.conll", folder / "ner/train.fr.conll")
    assert [s.words[0] for s in task.read(train).items] == ["The", "the", "Nous"]
    assert len(task.read(select).items) == 2
    assert task.settings.select_by == "source"
    apart = load(folder, EXAMPLES[1] + "train_together: false\n")
    assert apart.sources == ("de", "fr")
    assert find(apart, "train", "fr").paths == (folder / "ner/train.fr.conll",)
    assert apart.settings.select_by == "all"
    assert "no dev file for fr; the mean over de chooses the epoch" in messages()


def test_without_dev_the_last_epoch_is_taken(folder: Path, messages: Messages) -> None:
    without = change(0, ("dev: {de: data/dev.tsv}\n", ""))
    assert load(folder, without).settings.select_by == "last"
    assert "tickets: no dev file, so the last epoch is taken" in messages()
    message = problem(folder, without + "select_by: all\n")
    assert message == "task.yaml:11: select_by: all, but there is no dev file"
    elsewhere = change(0, ("dev: {de:", "dev: {pl:"))
    assert load(folder, elsewhere).settings.select_by == "all"
    message = problem(folder, elsewhere + "select_by: source\n")
    assert message == "task.yaml:12: select_by: source, but dev has no file for de; found: pl"


@pytest.mark.parametrize(
    ("example", "changes", "expected"),
    [
        (0, ("label:", "lable:"), "task.yaml:6: unknown key 'columns.lable'; did you mean"),
        (0, ("kind: classification\n", ""), "task.yaml: key 'kind' is missing"),
        (0, ("{de: data/train.tsv}", "data/train.tsv"), "task.yaml:3: train: must say the lang"),
        (0, ("test.pl.jsonl", "no.tsv"), "task.yaml:5: test.pl: data/no.tsv: no such file"),
        (0, ("pl: data", "../x: data"), "task.yaml:5: test"),
        (0, ("[billing, technical]", "[billing, tech]"), "data/train.tsv:3: the label 'technical'"),
        (0, ("text: body", "text: 1"), "task.yaml:6: columns: give names"),
        (0, ("text: body", "word: 1"), "task.yaml:6: columns.word: classification does not"),
        (0, ("label: team", "label: group"), "data/train.tsv:1: no column 'group'; found: body, t"),
        (0, ("epochs: 8", "stride: 8"), "task.yaml:9: stride: classification has no use for it"),
        (0, ("name: tickets", "name: xnli"), "task.yaml:1: 'xnli' is a built-in task"),
        (0, ("name: tickets", "name: a/b"), "task.yaml:1: name: "),
        (2, ("stride: 128", "stride: 384"), "task.yaml:7: stride: windows of 384 tokens that"),
    ],
)
def test_mistakes_in_the_yaml(
    folder: Path, example: int, changes: tuple[str, str], expected: str
) -> None:
    assert problem(folder, change(example, changes)).startswith(expected)


def test_nothing_to_score_and_one_label(folder: Path) -> None:
    text = "".join(line for line in EXAMPLES[0].splitlines(True) if line[:3] not in ("dev", "tes"))
    assert problem(folder, text) == "task.yaml: nothing to score; name a file under test or dev"
    (folder / "data/train.tsv").write_text("body\tteam\na\tx\nb\tx\n", encoding="utf-8")
    message = problem(folder, change(0, ("labels: [billing, technical]\n", "")))
    assert message.startswith("tickets: at least two labels are needed, training has only 'x'")


@pytest.mark.parametrize(
    ("example", "name", "text", "place", "expected"),
    [
        (0, "data/test.de.tsv", "body\tteam\na\tBiling\n", ("test", "de"),
         "data/test.de.tsv:2: unknown label 'Biling', training does not have it; known: billing, "
         "technical; did you mean 'billing'?"),
        (0, "data/train.tsv", "body\tteam\na\tbilling\nb\ttechnical\nc\t \n", ("train", "de"),
         "data/train.tsv:4: no label, in a train file; label the row"),
        (0, "data/test.de.tsv", "body\tteam\n \tbilling\n", ("test", "de"),
         "data/test.de.tsv:2: the text is empty; fill it or delete the row"),
        (1, "ner/test.conll", "a\tO\nb\tB-FOO\n", ("test", "de"),
         "ner/test.conll:2: unknown label 'B-FOO', training does not have it; known: "),
        (1, "ner/dev.conll", "a\tO\n\nb\t_\n", ("dev", "de"),
         "ner/dev.conll:3: a sentence without tags, in a dev file; tag it"),
        (0, "data/dev.tsv", "body\nDas Haus\n", ("dev", "de"),
         "data/dev.tsv:1: no column 'team'; found: body"),
        (2, "squad/test.json", squad(("1", "a b", "a"), ("1", "a b", "b")), ("test", "en"),
         "squad/test.json: data[0].paragraphs[1].qas[0] (id '1'): this id was there before"),
    ],
)  # fmt: skip
def test_mistakes_in_files(
    folder: Path, example: int, name: str, text: str, place: tuple[str, str], expected: str
) -> None:
    (folder / name).write_text(text, encoding="utf-8")
    assert problem(folder, EXAMPLES[example], place).startswith(expected)


def test_answers_are_normalized_by_the_languages_rules(folder: Path) -> None:
    task = load(folder, EXAMPLES[2])
    assert isinstance(task, SpanTask)
    assert task.normalize("Das «Haus»", "de") == "haus"
    assert task.normalize("Das «Haus»", "tr") == "das «haus»"


LABELED = "name: mine\nkind: classification\ntrain: {de: train.tsv}\ntest: {de: train.tsv}\n"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (["a", "b", "a,b"], "train.tsv:4: the label 'a,b' looks like several, 'a' is a part of"),
        (["a;b", "c", "b; d"], "train.tsv:2: the label 'a;b' looks like several, 'b' is a part of"),
        (["1.5", "2", "0.25"], "train.tsv:2: the labels are 3 numbers such as 1.5; for numbers"),
        (["1.0", "0.0"], ""),
        (["New York, NY", "Boston, MA"], ""),
        (["v1.5", "v2"], ""),
    ],
)
def test_labels_that_do_not_name_classes(tmp_path: Path, labels: list[str], expected: str) -> None:
    rows = "".join(f"text {k}\t{label}\n" for k, label in enumerate(labels))
    (tmp_path / "train.tsv").write_text(f"text\tlabel\n{rows}", encoding="utf-8")
    if expected:
        assert expected in problem(tmp_path, LABELED)
    listed = LABELED + (f"labels: {json.dumps(labels)}\n" if expected else "")
    assert sorted(load(tmp_path, listed).labels) == sorted(labels)
