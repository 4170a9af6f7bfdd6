from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.finetune import scoring as evaluation
from metaxlm.finetune import trainer
from metaxlm.finetune.batches import shuffle_batches
from metaxlm.finetune.catalog import TASKS
from metaxlm.finetune.classification import ClassificationTask
from metaxlm.finetune.scoring import FileScores, evaluate
from metaxlm.finetune.task import AnyTask, DataFile, FinetuneSettings, load_data
from metaxlm.finetune.trainer import EpochRecord, train_model
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.model.encoder import Encoder
from metaxlm.model.heads import TaskModel, make_head
from metaxlm.randomness import derive_seed
from tests.finetune.conftest import CPU, WORDS, MakeEncoder, make_tokenizer

FAST = FinetuneSettings(epochs=5, learning_rate=3e-3, batch_size=16, length=48)
KEYWORDS = {"entailment": "house", "neutral": "river", "contradiction": "grünen"}


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


SPLITS = {"train-en": 400, "dev-en": 60, "test-en": 90, "dev-de": 40, "test-de": 50}
FEW = {"train-en": 64, "dev-en": 30, "test-en": 20, "dev-de": 15, "test-de": 10}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough to learn from."""
    folder = tmp_path_factory.mktemp("tasks")
    return write_udpos(write_xnli(folder, SPLITS), SPLITS)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Enough to run."""
    folder = tmp_path_factory.mktemp("few")
    return write_udpos(write_xnli(folder, FEW), {**FEW, "test-yo": 5})


@dataclass(frozen=True)
class Outcome:
    """A training and its scores; equal ones are equal bit by bit."""

    best_epoch: int
    epochs: tuple[EpochRecord, ...]
    scores: tuple[FileScores, ...]

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
        self.encoder, self.data_dir, self.tokenizer = encoder, data_dir, make_tokenizer(kind)

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
    ) -> Outcome:
        task = TASKS[task] if isinstance(task, str) else task
        config = self.encoder.config
        options: dict[str, Any] = {"source": source, "languages": languages, "limit": limit}
        folder = data_dir or self.data_dir
        data = load_data(task, self.tokenizer, folder, settings=settings, config=config, **options)
        start = AnyEncoder("test", self.tokenizer, self.encoder)
        trained = train_model(task, start, data, settings, seed, device)
        scores = evaluate(task, trained.model, data, config, device)
        return Outcome(trained.best_epoch, trained.epochs, scores)


@pytest.fixture
def learn(make_encoder: MakeEncoder, data_dir: Path) -> Setting:
    return Setting(make_encoder(make_tokenizer("words"), scale=3.0), data_dir)


@pytest.fixture
def run(make_encoder: MakeEncoder, few: Path) -> Setting:
    return Setting(make_encoder(make_tokenizer("words")), few)


@pytest.mark.parametrize("name", ["xnli", "udpos"])
def test_learns_a_separable_task_and_repeats_bit_for_bit(learn: Setting, name: str) -> None:
    before = {key: value.clone() for key, value in learn.encoder.state_dict().items()}
    random_state = torch.get_rng_state()
    scores, metric = learn(name), TASKS[name].metric
    assert [(s.file.language, s.file.split, s.num_examples) for s in scores.scores] == [
        ("en", "dev", 60),
        ("en", "test", 90),
        ("de", "dev", 40),
        ("de", "test", 50),
    ]
    for score in scores.scores:
        assert score.values[metric] > 0.9
        assert score.values[metric] > max(score.majority[metric], score.chance[metric])
    assert scores.epochs[-1].loss < scores.epochs[0].loss / 2
    # Neither the encoder nor the caller's random numbers are touched.
    assert torch.equal(random_state, torch.get_rng_state())
    for key, value in learn.encoder.state_dict().items():
        assert torch.equal(value, before[key])
    torch.manual_seed(99)
    again = learn(name)
    assert (again.epochs, again.values()) == (scores.epochs, scores.values())
    assert [s.submission for s in again.scores] == [s.submission for s in scores.scores]


def copy_xnli(kind: type[ClassificationTask], **changes: Any) -> Any:
    """XNLI with another class or other attributes."""
    task = kind.__new__(kind)
    task.__dict__.update({**vars(TASKS["xnli"]), **changes})
    return task


class Ruined(ClassificationTask):
    """Learns for half of the epochs and unlearns in the rest."""

    good_steps: int

    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:
        self.good_steps -= 1
        loss = super().compute_loss(logits, labels, lengths_B)
        return loss if self.good_steps >= 0 else -loss


def test_weights_of_the_best_epoch_come_back(learn: Setting) -> None:
    ruined = copy_xnli(Ruined, good_steps=4 * 25)
    scores = learn(ruined, settings=replace(FAST, epochs=6))
    assert scores.best_epoch <= 4
    assert scores.epochs[-1].dev < 0.8
    assert scores.find("en").values["accuracy"] > 0.9
    assert scores.find("en", "dev").values["accuracy"] == max(r.dev for r in scores.epochs)


def test_selection_by_all_languages(run: Setting, tmp_path: Path) -> None:
    write_xnli(tmp_path, {"train-en": 16, "dev-en": 9})
    # An untrained model answers one label for everything: right in a third or in all or none.
    for language, label in (("de", "neutral"), ("fr", "entailment"), ("ru", "contradiction")):
        (tmp_path / "xnli" / f"dev-{language}.tsv").write_text(f"we\tdo\t{label}\n" * 4)
    settings = replace(FAST, epochs=1, learning_rate=0.0)
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
    last = run("xnli", ("en",), data_dir=tmp_path, settings=replace(FAST, select_by="last"))
    assert [record.dev for record in last.epochs] == [None] * 5
    assert (last.best_epoch, last.list_files()) == (5, [("en", "test")])


def test_blanked_labels_are_predicted_not_scored(
    run: Setting, tmp_path: Path, messages: Callable[[], str]
) -> None:
    write_xnli(tmp_path, {"train-en": 16, "dev-en": 9, "test-en": 6, "test-de": 6})
    path = tmp_path / "xnli" / "test-de.tsv"
    blank = ["\t".join(line.split("\t")[:2]) for line in path.read_text().splitlines()]
    path.write_text("\n".join(blank) + "\n")
    scores = run("xnli", data_dir=tmp_path, settings=replace(FAST, epochs=1))
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
    settings = replace(FAST, epochs=2)
    whole = run("xnli", ("en",), data_dir=tmp_path / "all", settings=settings).find("en")
    part = run("xnli", ("en",), data_dir=tmp_path / "some", settings=settings).find("en")
    assert (part.num_examples, part.num_unlabeled) == (6, 6)
    assert part.tally.tolist() == whole.tally[1::2].tolist()
    assert part.submission == whole.submission


def test_limit_takes_the_first_examples(run: Setting) -> None:
    scores = run("xnli", settings=replace(FAST, epochs=1), limit=7).scores
    assert [score.num_examples for score in scores] == [7] * 4


def test_tasks_that_share_a_training_set_train_alike(run: Setting) -> None:
    settings = replace(FAST, epochs=1)
    first, second, own = (
        run(copy_xnli(ClassificationTask, name=name, training=training), settings=settings).epochs
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


@pytest.mark.parametrize("name", ["xnli", "udpos"])
def test_packed_and_grouped_sequences_make_the_same_step(
    make_encoder: MakeEncoder, few: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Without dropout, a step is the same packed, in one group, in a few, and in many."""
    encoder = make_encoder(make_tokenizer("words"), dropout=0.0, attention_dropout=0.0)
    settings = replace(FAST, epochs=2, batch_size=16)
    packed = Setting(encoder, few)(name, ("en",), 3, settings)
    for module in (trainer, evaluation):
        monkeypatch.setattr(module, "takes_packed", lambda model, device: False)
    for cost, count in ((10**6, 1), (32, 2), (0, 4)):
        monkeypatch.setattr(trainer, "_GROUP_COST", cost)
        assert len(trainer.make_groups([20, 20, 11, 9, 9, 9, 3], CPU)) == count
        padded = Setting(encoder, few)(name, ("en",), 3, settings)
        losses = [record.loss for record in padded.epochs]
        assert losses == pytest.approx([record.loss for record in packed.epochs], abs=1e-5)
        assert padded.values() == packed.values()


def test_steps_are_those_of_adamw_written_out(make_encoder: MakeEncoder, few: Path) -> None:
    """Clipping, schedule, decay and Adam by hand, on the same batches, give the same losses."""
    tokenizer, task = make_tokenizer("words"), TASKS["xnli"]
    encoder = make_encoder(tokenizer, dropout=0.0, attention_dropout=0.0)
    settings = FinetuneSettings(2, 0.02, 16, 0.5, 48, warmup=0.25, clip=0.3, adam_epsilon=1e-2)
    records = Setting(encoder, few)(task, ("en",), 3, settings).epochs

    file = DataFile("en", "train", few / "xnli" / "train-en.tsv", "train")
    features = task.featurize(task.read(file).items, tokenizer, settings).features
    lengths = [len(sequence.ids) for sequence in features]
    torch.manual_seed(derive_seed(3, "xnli head"))
    model = TaskModel(encoder, make_head("classification", encoder.config, 3)).train()
    means, squares = ([torch.zeros_like(p) for p in model.parameters()] for _ in range(2))
    step = 0
    for record in records:
        losses = []
        for batch in shuffle_batches(lengths, 16, 3, record.epoch):
            ids = [torch.tensor(features[k].ids) for k in batch]
            labels = torch.tensor([int(features[k].labels[0]) for k in batch])
            padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=1)
            loss = torch.nn.functional.cross_entropy(model(padded.long(), padded != 1), labels)
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
