"""Finetuning from files to scores, and the saved folder in the examples of docs/finetuning.md."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from metaxlm.errors import MetaXLMError
from metaxlm.finetune import batches as batches_module
from metaxlm.finetune import trainer
from metaxlm.finetune.batches import shuffle_batches
from metaxlm.finetune.catalog import TASKS
from metaxlm.finetune.classification import ClassificationTask
from metaxlm.finetune.task import (
    AnyTask,
    DataFile,
    Dataset,
    Features,
    FinetuneSettings,
    TaskData,
    load_data,
)
from metaxlm.finetune.trainer import (
    EpochRecord,
    FileScores,
    Finetuned,
    SwitchedText,
    evaluate,
    train_model,
)
from metaxlm.model.any_encoder import AnyEncoder, make_task_model, save_finetuned
from metaxlm.model.encoder import Encoder
from metaxlm.model.heads import TaskModel, make_head
from metaxlm.pretrain import optimizer
from metaxlm.pretrain.code_switching import Switching, make_switch_table
from metaxlm.pretrain.distributed import own_products
from metaxlm.randomness import derive_seed
from tests.finetune.conftest import CPU, WORDS, MakeEncoder, make_tokenizer

FAST = FinetuneSettings(epochs=5, learning_rate=3e-3, batch_size=16, length=48)
BRIEF = replace(FAST, epochs=1)
KEYWORDS = {"entailment": "house", "neutral": "river", "contradiction": "grünen"}
GUIDE = Path(__file__).parents[2] / "docs" / "finetuning.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def write_xnli(folder: Path, splits: dict[str, int]) -> Path:
    """A task that can be learned: one word of the hypothesis gives the label away."""
    (folder / "xnli").mkdir(parents=True, exist_ok=True)
    for name, size in splits.items():
        draw = random.Random(name)
        lines = []
        for _ in range(size):
            label = draw.choice(list(KEYWORDS))
            first, second = (draw.choices(WORDS[:20], k=draw.randint(1, 6)) for _ in range(2))
            second.insert(draw.randint(0, len(second)), KEYWORDS[label])
            lines.append(f"{' '.join(first)}\t{' '.join(second)}\t{label}\n")
        (folder / "xnli" / f"{name}.tsv").write_text("".join(lines))
    return folder


def write_udpos(folder: Path, splits: dict[str, int]) -> Path:
    """A task that can be learned: each word has its tag; nouns are the most frequent."""
    tags = {w: ("NOUN", "VERB", "DET", "NOUN")[k % 4] for k, w in enumerate(sorted(set(WORDS)))}
    (folder / "udpos").mkdir(parents=True, exist_ok=True)
    for name, size in splits.items():
        draw = random.Random(name)
        sentences = []
        for _ in range(size):
            words = draw.choices(sorted(tags), k=draw.randint(2, 12))
            sentences.append("".join(f"{word}\t{tags[word]}\n" for word in words))
        (folder / "udpos" / f"{name}.tsv").write_text("\n".join(sentences))
    return folder


def write_squad(folder: Path, name: str, size: int) -> None:
    draw = random.Random(name)
    paragraphs = []
    for number in range(size):
        words = draw.choices(WORDS, k=12)
        answer = {"text": words[5], "answer_start": len(" ".join(words[:5])) + 1}
        entry = {"id": f"{number}", "question": " ".join(words[4:6]), "answers": [answer]}
        paragraphs.append({"context": " ".join(words), "qas": [entry]})
    (folder / name).write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))


SPLITS = {"train-en": 400, "dev-en": 60, "test-en": 90, "dev-de": 40, "test-de": 50}
FEW = {"train-en": 64, "dev-en": 30, "test-en": 20, "dev-de": 15, "test-de": 10}


@dataclass(frozen=True)
class Outcome:
    """A training, its data and its scores."""

    trained: Finetuned
    data: TaskData
    scores: tuple[FileScores, ...]

    @property
    def epochs(self) -> tuple[EpochRecord, ...]:
        return self.trained.epochs

    def find(self, language: str, split: str = "test") -> FileScores:
        (score,) = (s for s in self.scores if (s.file.language, s.file.split) == (language, split))
        return score

    def list_files(self) -> list[tuple[str, str]]:
        return [(score.file.language, score.file.split) for score in self.scores]

    def values(self) -> list[dict[str, float]]:
        return [score.values for score in self.scores]


class Setting:
    """One small encoder, and a short way to finetune it."""

    def __init__(self, encoder: Encoder, data_dir: Path, kind: str = "words") -> None:
        self.encoder, self.data_dir = encoder, data_dir
        self.start = AnyEncoder("test", make_tokenizer(kind), encoder)

    def __call__(
        self,
        task: str | AnyTask,
        languages: tuple[str, ...] = ("en", "de"),
        seed: int = 1,
        settings: FinetuneSettings = FAST,
        device: torch.device = CPU,
        *,
        data_dir: Path | None = None,
        source: str = "en",
        limit: int | None = None,
        switching: Switching | None = None,
    ) -> Outcome:
        task = TASKS[task] if isinstance(task, str) else task
        config = self.encoder.config
        options: dict[str, Any] = {"source": source, "languages": languages, "limit": limit}
        options |= {"settings": settings, "config": config}
        data = load_data(task, self.start.tokenizer, data_dir or self.data_dir, **options)
        trained = train_model(task, self.start, data, settings, seed, device, switching)
        return Outcome(trained, data, evaluate(task, trained.model, data, config, device))


@pytest.fixture(scope="module")
def learned(
    make_encoder: MakeEncoder, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Setting, Outcome]]:
    """Return a function that finetunes once for a task with enough data to learn from."""
    folder = tmp_path_factory.mktemp("tasks")
    for name, size in (("train-v1.1", 64), ("dev-v1.1-minus-xquad", 10), ("xquad.en", 20)):
        write_squad(folder, f"{name}.json", size)
    write_udpos(write_xnli(folder, SPLITS), SPLITS)
    learn = Setting(make_encoder(make_tokenizer("words"), scale=3.0), folder)
    return cache(lambda name: (learn, learn(name, ("en",) if name == "xquad" else ("en", "de"))))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with enough data to run."""
    folder = tmp_path_factory.mktemp("few")
    return write_udpos(write_xnli(folder, FEW), {**FEW, "test-yo": 5})


@pytest.fixture
def run(make_encoder: MakeEncoder, few: Path) -> Setting:
    return Setting(make_encoder(make_tokenizer("words")), few)


Learned = Callable[[str], tuple[Setting, Outcome]]


@pytest.mark.parametrize("name", ["xnli", "udpos"])
def test_learns_a_separable_task(learned: Learned, name: str) -> None:
    _, outcome = learned(name)
    metric = TASKS[name].metric
    found = [(s.file.language, s.file.split, s.num_examples) for s in outcome.scores]
    assert found == [("en", "dev", 60), ("en", "test", 90), ("de", "dev", 40), ("de", "test", 50)]
    for score in outcome.scores:
        assert score.values[metric] > 0.9 > max(score.majority[metric], score.chance[metric])
    assert outcome.epochs[-1].loss < outcome.epochs[0].loss / 2


def test_majority_baseline_by_hand(learned: Learned) -> None:
    _, outcome = learned("xnli")
    labels = {data.file: [e.label for e in data.examples] for data in outcome.data.scored}
    (common, _), *_ = Counter(e.label for e in outcome.data.train.examples).most_common()
    for score in outcome.scores:
        gold = labels[score.file]
        assert score.majority == {"accuracy": gold.count(common) / len(gold)}
    _, outcome = learned("udpos")
    for data, score in zip(outcome.data.scored, outcome.scores, strict=True):
        tags = [tag for sentence in data.examples for tag in sentence.tags]
        assert score.majority["f1_token"] == tags.count("NOUN") / len(tags)


def test_repeats_bit_for_bit_and_changes_nothing_else(run: Setting) -> None:
    before = {key: value.clone() for key, value in run.encoder.state_dict().items()}
    state = torch.get_rng_state()
    first = run("xnli", settings=BRIEF)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(v, before[key]) for key, v in run.encoder.state_dict().items())
    torch.manual_seed(99)
    again = run("xnli", settings=BRIEF)
    assert (again.epochs, again.values()) == (first.epochs, first.values())
    assert [s.submission for s in again.scores] == [s.submission for s in first.scores]


def save_and_run(learned: Learned, name: str, folder: Path) -> tuple[FileScores, Dataset, Any]:
    """Save the model, run the guide's example with it, and return our scores on English too."""
    task, (learn, outcome) = TASKS[name], learned(name)
    options: dict[str, Any] = {"length": FAST.length, "stride": FAST.stride, "facts": {}}
    options |= {"kind": task.kind, "labels": task.labels}
    save_finetuned(outcome.trained.model, learn.start, folder, **options)
    names: dict[str, Any] = {}
    number = ["xnli", "udpos", "xquad"].index(name)
    exec(re.sub(r"finetuned/\w+", str(folder), EXAMPLES[number]), names)
    scores = outcome.find("en")
    (data,) = (data for data in outcome.data.scored if data.file == scores.file)
    return scores, data, names


def test_saved_classifier(learned: Learned, tmp_path: Path) -> None:
    scores, data, names = save_and_run(learned, "xnli", tmp_path / "model")
    assert names["labels"][0] in TASKS["xnli"].labels
    pairs = [{"text": pair.first, "text_pair": pair.second} for pair in data.examples]
    found = [names["classify"](pair)["label"] for pair in pairs]
    assert found == scores.submission.splitlines()
    assert len(set(found)) == 3


@pytest.mark.filterwarnings("ignore:Tokenizer does not support real words")
def test_saved_tagger(learned: Learned, tmp_path: Path) -> None:
    scores, data, names = save_and_run(learned, "udpos", tmp_path / "model")
    for sentence, block in zip(data.examples, scores.submission.split("\n\n"), strict=False):
        text = " ".join(sentence.words)
        tags = [
            span["entity_group"]
            for span in names["tag"](text)
            for _ in text[span["start"] : span["end"]].split()
        ]
        assert tags == block.split()
    assert len(set(scores.submission.split())) == 3


def test_saved_reader_of_questions(learned: Learned, tmp_path: Path) -> None:
    scores, data, names = save_and_run(learned, "xquad", tmp_path / "model")
    found = {item.id: names["answer"](item.question, item.context) for item in data.examples}
    assert found == json.loads(scores.submission)
    assert len(set(found.values())) > 5


def copy_xnli(kind: type[ClassificationTask], **changes: Any) -> Any:
    """Return XNLI with another class or other attributes."""
    task = kind.__new__(kind)
    task.__dict__.update({**vars(TASKS["xnli"]), **changes})
    return task


class Ruined(ClassificationTask):
    """Learns for some steps and unlearns in the rest."""

    good_steps: int

    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:
        self.good_steps -= 1
        loss = super().compute_loss(logits, labels, lengths_B)
        return loss if self.good_steps >= 0 else -loss


def test_weights_of_the_best_epoch_are_restored(learned: Learned) -> None:
    learn, _ = learned("xnli")
    ruined = learn(copy_xnli(Ruined, good_steps=39), ("en",), limit=200)
    dev = [record.dev or 0.0 for record in ruined.epochs]
    assert ruined.trained.best_epoch == dev.index(max(dev)) + 1 < 5
    assert dev[-1] < max(dev) - 0.1
    assert ruined.find("en", "dev").values["accuracy"] == max(dev)


def test_selection_by_all_languages(run: Setting, tmp_path: Path) -> None:
    write_xnli(tmp_path, {"train-en": 16, "dev-en": 9})
    # An untrained model answers one label for everything: right in a third or in all or none.
    for language, label in (("de", "neutral"), ("fr", "entailment"), ("ru", "contradiction")):
        (tmp_path / "xnli" / f"dev-{language}.tsv").write_text(f"we\tdo\t{label}\n" * 4)
    settings = replace(BRIEF, learning_rate=0.0)
    languages = ("en", "de", "fr", "ru")
    scores = run("xnli", languages, data_dir=tmp_path, settings=settings)
    dev = [scores.find(language, "dev").values["accuracy"] for language in languages]
    assert sorted(dev[1:]) == [0.0, 0.0, 1.0]
    assert scores.epochs[0].dev == dev[0]
    settings = replace(settings, select_by="all")
    scores = run("xnli", languages, data_dir=tmp_path, settings=settings)
    assert scores.epochs[0].dev == pytest.approx(sum(dev) / 4)


def test_missing_files(run: Setting, tmp_path: Path) -> None:
    message = r"^.*: no dev or test file of udpos for 'fr'; found here: de en yo"
    with pytest.raises(MetaXLMError, match=message):
        run("udpos", ("en", "fr"))
    write_xnli(tmp_path, {"test-en": 5})
    with pytest.raises(MetaXLMError, match=r"no train file of xnli for 'en'; found here: nothing"):
        run("xnli", ("en",), data_dir=tmp_path)
    write_xnli(tmp_path, {"train-en": 5})
    with pytest.raises(MetaXLMError, match=r"no dev file of xnli for 'en'; found here: nothing"):
        run("xnli", ("en",), data_dir=tmp_path)
    with pytest.raises(MetaXLMError, match=r": no dev file of xnli; one is needed to choose"):
        run("xnli", ("en",), data_dir=tmp_path, settings=replace(FAST, select_by="all"))
    settings = replace(FAST, epochs=2, select_by="last")
    last = run("xnli", ("en",), data_dir=tmp_path, settings=settings)
    assert [record.dev for record in last.epochs] == [None] * 2
    assert (last.trained.best_epoch, last.list_files()) == (2, [("en", "test")])


def test_blanked_labels_are_predicted_not_scored(
    run: Setting, tmp_path: Path, messages: Callable[[], str]
) -> None:
    write_xnli(tmp_path, {"train-en": 16, "dev-en": 9, "test-en": 6, "test-de": 6})
    path = tmp_path / "xnli" / "test-de.tsv"
    blank = ["\t".join(line.split("\t")[:2]) for line in path.read_text().splitlines()]
    path.write_text("\n".join(blank) + "\n")
    scores = run("xnli", data_dir=tmp_path, settings=BRIEF)
    german = scores.find("de")
    assert scores.list_files() == [("en", "dev"), ("en", "test"), ("de", "test")]
    assert (german.num_examples, german.num_unlabeled, german.values) == (0, 6, {})
    assert (german.majority, german.chance, len(german.tally)) == ({}, {}, 0)
    assert len(german.submission.splitlines()) == 6
    assert f"xnli: {path}: no example has a label; predicted, not scored" in messages()
    assert scores.find("en").num_examples == 6


@pytest.mark.parametrize("split", ["train", "dev"])
def test_blanked_labels_cannot_train_or_select(run: Setting, tmp_path: Path, split: str) -> None:
    write_xnli(tmp_path, {"train-en": 16, "dev-en": 9, "test-en": 6})
    path = tmp_path / "xnli" / f"{split}-en.tsv"
    path.write_text("".join("a\tb\n" for _ in path.read_text().splitlines()))
    with pytest.raises(MetaXLMError, match=rf"^{path}.*(no|blanked)"):
        run("xnli", data_dir=tmp_path, languages=("en",))


def test_partly_labeled_files_are_scored_where_they_can(run: Setting, tmp_path: Path) -> None:
    """The scores of the labeled examples do not depend on the others."""
    sizes = {"train-en": 64, "dev-en": 9, "test-en": 12}
    write_xnli(tmp_path / "all", sizes)
    write_xnli(tmp_path / "some", sizes)
    path = tmp_path / "some" / "xnli" / "test-en.tsv"
    lines = path.read_text().splitlines()
    half = [line if k % 2 else line.rsplit("\t", 1)[0] + "\t" for k, line in enumerate(lines)]
    path.write_text("\n".join(half) + "\n")
    whole = run("xnli", ("en",), data_dir=tmp_path / "all", settings=BRIEF).find("en")
    part = run("xnli", ("en",), data_dir=tmp_path / "some", settings=BRIEF).find("en")
    assert (part.num_examples, part.num_unlabeled) == (6, 6)
    assert part.tally.tolist() == whole.tally[1::2].tolist()
    assert part.submission == whole.submission


def test_limit_takes_the_first_examples(run: Setting) -> None:
    scores = run("xnli", settings=BRIEF, limit=7).scores
    assert [score.num_examples for score in scores] == [7] * 4


def test_tasks_that_share_a_training_set_train_alike(run: Setting) -> None:
    first, second, own = (
        run(copy_xnli(ClassificationTask, name=name, training=training), settings=BRIEF).epochs
        for name, training in (("a", "shared"), ("b", "shared"), ("a", "a"))
    )
    assert first == second != own


def test_a_length_that_does_not_fit_and_diverging_are_errors(run: Setting) -> None:
    message = "^xnli: length 65 does not fit the encoder's 64 positions; choose one"
    with pytest.raises(MetaXLMError, match=message):
        run("xnli", settings=replace(FAST, length=65))
    with torch.no_grad():
        run.encoder.layers[0].ffn_in.weight[0, 0] = float("nan")
    with pytest.raises(
        MetaXLMError, match=r"^xnli: the loss or its gradient was not finite in 4 of 4 .*; lower"
    ):
        run("xnli")


def test_overflows_of_float16_are_not_diverging(
    run: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = run("xnli", settings=BRIEF)
    for module in (trainer, batches_module):
        monkeypatch.setattr(module, "choose_dtype", lambda *_: torch.float16)
    with own_products(CPU, torch.float16):
        same = run("xnli", settings=BRIEF)
        monkeypatch.setattr(optimizer, "_FIRST_SCALE", 2.0**32)
        skipped = run("xnli", settings=replace(FAST, epochs=8))
    assert exact.epochs[0].loss != same.epochs[0].loss
    assert same.epochs[0].loss == pytest.approx(exact.epochs[0].loss, rel=0.01)
    assert skipped.epochs[0].loss == 0.0  # no step of the first epoch was good
    assert 0.0 < skipped.epochs[-1].loss < 1.5


@pytest.mark.parametrize(("name", "kind"), [("xnli", "bert"), ("udpos", "words")])
def test_packed_and_grouped_sequences_make_the_same_step(
    make_encoder: MakeEncoder, few: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    """Without dropout, a step is the same packed, in one group, and in many."""
    encoder = make_encoder(make_tokenizer(kind), dropout=0.0, attention_dropout=0.0)
    run, settings = Setting(encoder, few, kind), replace(BRIEF, length=64)
    packed = run(name, ("en",), 3, settings)
    monkeypatch.setattr(trainer, "takes_packed", lambda model, device: False)
    for cost, count in ((32, 2), (10**6, 1), (0, 4)):
        monkeypatch.setattr(trainer, "_GROUP_COST", cost)
        assert len(trainer.make_groups([20, 20, 11, 9, 9, 9, 3], CPU)) == count
        if cost == 32:
            continue
        padded = run(name, ("en",), 3, settings)
        assert padded.epochs[0].loss == pytest.approx(packed.epochs[0].loss, abs=1e-5)
        assert padded.values() == packed.values()


def test_only_the_embeddings_of_the_training_set_are_trained(run: Setting) -> None:
    """The result is that of AdamW over all rows, which a decay too small to count makes."""
    settings = replace(FAST, epochs=2, clip=1e9)
    ours = run("xnli", settings=settings)
    whole = run("xnli", settings=replace(settings, weight_decay=1e-30))
    assert ours.values() == whole.values()
    assert ours.epochs == whole.epochs
    for (name, weight), expected in zip(
        ours.trained.model.named_parameters(), whole.trained.model.parameters(), strict=True
    ):
        assert torch.equal(weight, expected), name
    before, after = run.encoder.words.weight, ours.trained.model.encoder.words.weight
    used = {int(token) for f in read_features(run, settings) for token in f.ids}
    changed = set((before != after).any(dim=1).nonzero().flatten().tolist())
    assert changed == used
    assert len(used) < len(before)


GERMAN = {"house": "Haus", "river": "Fluss", "grünen": "steht", "small": "kleine", "The": "Das"}
"""Translations of some words, among them all that decide a label."""


def make_switching(kind: str, probability: float) -> Switching:
    tokenizer = make_tokenizer(kind)
    ids = {
        word: tokenizer.convert_tokens_to_ids(f"▁{word}")
        for pair in GERMAN.items()
        for word in pair
    }
    translations = {"en": {ids[a]: [[ids[b]]] for a, b in GERMAN.items()}, "de": {}}
    return Switching(make_switch_table(translations, len(tokenizer)), tokenizer, probability)


def write_german(folder: Path, splits: dict[str, int]) -> Path:
    """XNLI's files, with the translated words in German test data."""
    write_xnli(folder, splits)
    path = folder / "xnli" / "test-de.tsv"
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    text = [
        "\t".join([*(" ".join(GERMAN.get(w, w) for w in s.split()) for s in sides), label])
        for *sides, label in lines
    ]
    path.write_text("\n".join(text) + "\n")
    return folder


def test_switched_words_teach_another_language(make_encoder: MakeEncoder, tmp_path: Path) -> None:
    """Only words of the dictionary decide the label, so German is learned by switching alone."""
    learn = Setting(
        make_encoder(make_tokenizer("words"), scale=3.0), write_german(tmp_path, SPLITS)
    )
    switched = learn("xnli", settings=FAST, switching=make_switching("words", 0.5))
    english, german = (switched.find(language).values["accuracy"] for language in ("en", "de"))
    assert english > 0.9
    assert german > 0.9
    plain = learn("xnli", settings=FAST)
    assert plain.find("de").values["accuracy"] < 0.6
    again = learn("xnli", settings=FAST, switching=make_switching("words", 0.5))
    assert again.epochs == switched.epochs
    assert again.values() == switched.values()


def test_switched_and_all_rows_make_the_same_step(run: Setting) -> None:
    """The result is that of AdamW over all rows; translations are among the trained ones."""
    settings, switching = replace(FAST, epochs=2, clip=1e9), make_switching("words", 1.0)
    ours = run("xnli", settings=settings, switching=switching)
    whole = run("xnli", settings=replace(settings, weight_decay=1e-30), switching=switching)
    assert ours.values() == whole.values()
    assert ours.epochs == whole.epochs
    weights = ours.trained.model.encoder.words.weight
    assert torch.equal(weights, whole.trained.model.encoder.words.weight)
    changed = (run.encoder.words.weight != weights).any(dim=1)
    ids = {word: run.start.tokenizer.convert_tokens_to_ids(f"▁{word}") for word in GERMAN}
    assert all(changed[switching.list_translations("en").tolist()])
    assert not any(changed[row] for row in ids.values())  # every one was replaced


@pytest.mark.parametrize("name", ["xnli", "udpos", "xquad"])
def test_words_are_drawn_again_in_each_epoch(learned: Learned, name: str) -> None:
    """Lengths, borders and all other tokens stay; so labels need no change."""
    _, outcome = learned(name)
    features, switching = outcome.data.train.features, make_switching("words", 0.5)
    text = SwitchedText(outcome.data.train, switching, 1)
    plain = np.concatenate([f.ids for f in features])
    tokenizer = make_tokenizer("words")
    pairs = {
        tuple(tokenizer.convert_tokens_to_ids([f"▁{w}" for w in pair])) for pair in GERMAN.items()
    }
    drawn = [text.draw(epoch) for epoch in (1, 2, 1)]
    assert np.array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0], drawn[1])
    for ids in drawn:
        assert ids.shape == plain.shape
        changed = np.flatnonzero(ids != plain)
        assert set(zip(plain[changed].tolist(), ids[changed].tolist(), strict=True)) <= pairs
    could = np.isin(plain, [first for first, _ in pairs]).sum()
    share = np.mean([(ids != plain).sum() for ids in drawn]) / could
    assert 0.3 < share < 0.6
    other = SwitchedText(outcome.data.train, switching, 2)
    assert not np.array_equal(other.draw(1), drawn[0])


def make_model(encoder: Encoder, seed: int) -> TaskModel:
    """Return XNLI's model before the first step."""
    torch.manual_seed(derive_seed(seed, "xnli head"))
    return TaskModel(encoder, make_head("classification", encoder.config, 3)).train()


def read_features(run: Setting, settings: FinetuneSettings) -> list[Features]:
    task = TASKS["xnli"]
    file = DataFile("en", "train", run.data_dir / "xnli" / "train-en.tsv", "train")
    return task.featurize(task.read(file).items, run.start.tokenizer, settings).features


def collate(rows: list[Any], filler: int) -> Tensor:
    return pad_sequence([torch.tensor(row).long() for row in rows], True, filler)


def test_token_types_of_bert_are_used(make_encoder: MakeEncoder, few: Path) -> None:
    """At rate 0 the mean loss is that of the whole training set, with the types of its pairs."""
    encoder = make_encoder(make_tokenizer("bert"), dropout=0.0, attention_dropout=0.0)
    run, settings = Setting(encoder, few, "bert"), replace(BRIEF, learning_rate=0.0, length=64)
    loss = run("xnli", ("en",), 3, settings).epochs[0].loss
    features = read_features(run, settings)
    ids, types = (
        collate([f.ids for f in features], 0),
        collate([f.token_types for f in features], 0),
    )
    labels = torch.tensor([int(f.labels[0]) for f in features])
    model = make_model(encoder, 3)
    with torch.no_grad():
        ours, untyped = (
            float(torch.nn.functional.cross_entropy(model(ids, ids != 0, given), labels))
            for given in (types, torch.zeros_like(types))
        )
    assert loss == pytest.approx(ours, abs=1e-5) != pytest.approx(untyped, abs=1e-3)


def test_steps_are_those_of_adamw_written_out(make_encoder: MakeEncoder, few: Path) -> None:
    """Clipping, schedule, decay and Adam by hand, on the same batches, give the same losses."""
    encoder = make_encoder(make_tokenizer("words"), dropout=0.0, attention_dropout=0.0)
    settings = FinetuneSettings(2, 0.02, 16, 0.5, 48, warmup=0.25, clip=0.3, adam_epsilon=1e-2)
    run = Setting(encoder, few)
    records = run("xnli", ("en",), 3, settings).epochs
    features = read_features(run, settings)
    lengths = [len(sequence.ids) for sequence in features]
    model = make_model(encoder, 3)
    means, squares = ([torch.zeros_like(p) for p in model.parameters()] for _ in range(2))
    step = 0
    for record in records:
        losses = []
        for batch in shuffle_batches(lengths, 16, 3, record.epoch):
            labels = torch.tensor([int(features[k].labels[0]) for k in batch])
            padded = collate([features[k].ids for k in batch], 1)
            loss = torch.nn.functional.cross_entropy(model(padded, padded != 1), labels)
            model.zero_grad()
            loss.backward()
            losses.append(loss.item())
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            norm = sum(float(g.square().sum()) for g in gradients) ** 0.5
            step += 1
            rate = 0.02 * (step / 2 if step <= 2 else (9 - step) / 6)
            with torch.no_grad():
                for p, gradient, mean, square in zip(
                    model.parameters(), gradients, means, squares, strict=True
                ):
                    gradient = gradient * min(1.0, 0.3 / norm)
                    mean += 0.1 * (gradient - mean)
                    square += 0.001 * (gradient.square() - square)
                    p -= rate * (0.5 if p.ndim > 1 else 0.0) * p
                    scale = (square / (1 - 0.999**step)).sqrt() + 1e-2
                    p -= rate * mean / (1 - 0.9**step) / scale
        assert record.loss == pytest.approx(sum(losses) / 4, abs=1e-5)
    assert step == 8


@pytest.mark.parametrize(("name", "writer"), [("xnli", write_xnli), ("udpos", write_udpos)])
def test_a_model_is_scored_without_training_files(
    tmp_path: Path, make_encoder: MakeEncoder, name: str, writer: Callable[..., Path]
) -> None:
    folder = writer(tmp_path, {"test-en": 20, "test-de": 10})
    learn = Setting(make_encoder(make_tokenizer("words")), folder)
    task, config = TASKS[name], learn.encoder.config
    options: dict[str, Any] = {"source": "en", "languages": ("de",), "config": config}
    settings = replace(FAST, epochs=0)
    data = load_data(task, learn.start.tokenizer, folder, settings=settings, **options)
    model = make_task_model(learn.start, task.kind, len(task.labels))
    (scores,) = evaluate(task, model, data, config, CPU)
    assert scores.num_examples == 10
    assert scores.values.keys() == scores.majority.keys() == scores.chance.keys()
    with pytest.raises(MetaXLMError, match="no train file"):
        load_data(task, learn.start.tokenizer, folder, settings=FAST, **options)
