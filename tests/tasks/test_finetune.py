from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.model.encoder import Encoder
from metaxlm.model.heads import TaskModel
from metaxlm.randomness import derive_seed
from metaxlm.tasks.batches import shuffle_batches
from metaxlm.tasks.finetune import TransferScores, finetune
from metaxlm.tasks.registry import TASKS
from metaxlm.tasks.task import FinetuneSettings
from metaxlm.tasks.xnli import XnliTask
from tests.tasks.conftest import CPU, WORDS, MakeEncoder, make_tokenizer

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


class Setting:
    """One small encoder, and a short way to finetune it."""

    def __init__(self, encoder: Encoder, data_dir: Path) -> None:
        self.encoder, self.data_dir = encoder, data_dir

    def __call__(
        self,
        name: str,
        languages: tuple[str, ...] = ("en", "de"),
        seed: int = 1,
        settings: FinetuneSettings = FAST,
        **changes: Any,
    ) -> TransferScores:
        options = {"data_dir": self.data_dir, "task": TASKS[name], "source": "en", **changes}
        return finetune(
            options["task"],
            self.encoder,
            make_tokenizer("words"),
            options["data_dir"],
            languages,
            settings,
            seed,
            CPU,
            source=options["source"],
        )


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
    scores = learn(name)
    assert (scores.task, scores.seed, scores.source) == (name, 1, "en")
    assert [(s.language, s.split, s.num_examples) for s in scores.scores] == [
        ("en", "dev", 60),
        ("en", "test", 90),
        ("de", "dev", 40),
        ("de", "test", 50),
    ]
    for score in scores.scores:
        assert score.values[scores.metric] > 0.9
        assert score.values[scores.metric] > score.majority[scores.metric]
    assert scores.epochs[-1].loss < scores.epochs[0].loss / 2
    # Neither the encoder nor the caller's random numbers are touched.
    assert torch.equal(random_state, torch.get_rng_state())
    for key, value in learn.encoder.state_dict().items():
        assert torch.equal(value, before[key])
    torch.manual_seed(99)
    assert learn(name) == scores


def test_seeds_differ(run: Setting) -> None:
    settings = replace(FAST, epochs=1)
    losses = {run("xnli", seed=seed, settings=settings).epochs[0].loss for seed in (1, 2, 3)}
    assert len(losses) == 3


def test_best_epoch_is_kept(run: Setting) -> None:
    scores = run("xnli", settings=replace(FAST, epochs=3))
    best = max(record.dev for record in scores.epochs)
    assert scores.best_epoch == next(r.epoch for r in scores.epochs if r.dev == best)
    assert scores.find("en", "dev").values["accuracy"] == best


class Ruined(XnliTask):
    """Learns for half of the epochs and unlearns in the rest."""

    def __init__(self, good_steps: int) -> None:
        self.good_steps = good_steps

    def compute_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        self.good_steps -= 1
        loss = super().compute_loss(logits, labels)
        return loss if self.good_steps >= 0 else -loss


def test_weights_of_the_best_epoch_come_back(learn: Setting) -> None:
    scores = learn("xnli", task=Ruined(good_steps=4 * 25), settings=replace(FAST, epochs=6))
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


def test_source_dev_selects_even_when_not_evaluated(run: Setting) -> None:
    settings = replace(FAST, epochs=1)
    both = run("xnli", settings=settings)
    alone = run("xnli", languages=("de",), settings=settings)
    assert alone.epochs == both.epochs
    assert alone.scores == both.scores[2:]


class Distracted(XnliTask):
    """Draws random numbers of its own in every step."""

    def compute_loss(self, logits: Tensor, labels: Tensor) -> Tensor:
        torch.rand(7)
        return super().compute_loss(logits, labels)


def test_dropout_of_a_step_depends_on_nothing_before_it(run: Setting) -> None:
    settings = replace(FAST, epochs=1)
    assert run("xnli", task=Distracted(), settings=settings) == run("xnli", settings=settings)


def test_other_source_language(run: Setting, tmp_path: Path) -> None:
    write_xnli(tmp_path, {"train-de": 40, "dev-de": 20, "test-en": 20})
    scores = run("xnli", data_dir=tmp_path, source="de", settings=replace(FAST, epochs=1))
    assert scores.source == "de"
    assert [(s.language, s.split) for s in scores.scores] == [("en", "test"), ("de", "dev")]


def test_majority_comes_from_the_training_set(run: Setting, tmp_path: Path) -> None:
    write_xnli(tmp_path, {"dev-en": 10, "test-en": 10})
    folder = tmp_path / "xnli"
    (folder / "train-en.tsv").write_text("a\tb\tneutral\n" * 3 + "a\tb\tentailment\n" * 2)
    (folder / "test-en.tsv").write_text("a\tb\tentailment\n" * 3 + "a\tb\tneutral\n")
    scores = run("xnli", ("en",), data_dir=tmp_path, settings=replace(FAST, epochs=1))
    assert scores.find("en").majority == {"accuracy": 0.25}


def test_dropout_and_training_mode_are_on(make_encoder: MakeEncoder, few: Path) -> None:
    """Without dropout the loss of the same seed is another one."""
    settings = replace(FAST, epochs=1)
    encoder = make_encoder(make_tokenizer("words"))
    still = make_encoder(make_tokenizer("words"), dropout=0.0, attention_dropout=0.0)
    encoder.eval()
    assert (
        Setting(encoder, few)("xnli", settings=settings).epochs
        != Setting(still, few)("xnli", settings=settings).epochs
    )


def test_frozen_encoders_are_trained(run: Setting) -> None:
    scores = run("xnli", settings=replace(FAST, epochs=1))
    run.encoder.requires_grad_(False)
    assert run("xnli", settings=replace(FAST, epochs=1)) == scores


def test_bert_knows_the_two_sides(make_encoder: MakeEncoder, few: Path) -> None:
    """Token types reach an encoder that has two of them."""
    tokenizer = make_tokenizer("bert")
    settings = replace(FAST, epochs=1, length=200)

    def tune(encoder: Encoder) -> TransferScores:
        return finetune(TASKS["xnli"], encoder, tokenizer, few, ["en"], settings, 1, CPU)

    encoder = make_encoder(tokenizer, max_positions=200)
    usual = tune(encoder)
    with torch.no_grad():
        encoder.embeddings.token_types.weight[1, 0] += 5.0
    assert tune(encoder).epochs != usual.epochs


def test_missing_splits_are_said(run: Setting, messages: Callable[[], str]) -> None:
    scores = run("udpos", ("en", "yo"), settings=replace(FAST, epochs=1))
    assert [(s.language, s.split) for s in scores.scores][2:] == [("yo", "test")]
    assert "udpos: no dev file for yo; no dev score there\n" in messages()
    with pytest.raises(MetaXLMError, match=r"^udpos: no dev score for yo; it was not evaluated$"):
        scores.find("yo", "dev")


def test_cut_and_split_inputs_are_said(run: Setting, messages: Callable[[], str]) -> None:
    run("udpos", ("en",), settings=replace(FAST, epochs=1, length=10))
    said = messages()
    assert "sentences are longer than 10 tokens; split\n" in said
    assert "udpos train-en: " in said
    assert "udpos test-en: " in said


def test_languages_without_any_file(run: Setting) -> None:
    with pytest.raises(
        MetaXLMError, match=r"udpos: no dev or test file for 'fr'; found here: de en yo$"
    ):
        run("udpos", ("en", "fr"))


def test_missing_training_or_dev_file(run: Setting, tmp_path: Path) -> None:
    write_xnli(tmp_path, {"test-en": 5})
    with pytest.raises(MetaXLMError, match=r"train-en.tsv: no such file; found here: nothing$"):
        run("xnli", ("en",), data_dir=tmp_path)
    write_xnli(tmp_path, {"train-en": 5})
    with pytest.raises(MetaXLMError, match=r"dev-en.tsv: no such file; found here: nothing$"):
        run("xnli", ("en",), data_dir=tmp_path)
    with pytest.raises(MetaXLMError, match=r"^xnli: no dev file in .*; one is needed to pick"):
        run("xnli", ("en",), data_dir=tmp_path, settings=replace(FAST, select_by="all"))


def test_length_that_does_not_fit(run: Setting) -> None:
    for length in (2, 65):
        with pytest.raises(
            MetaXLMError,
            match=f"^xnli: length {length} does not fit the encoder's 64 positions; choose one",
        ):
            run("xnli", settings=replace(FAST, length=length))


def test_diverging_is_an_error(run: Setting) -> None:
    with torch.no_grad():
        run.encoder.layers[0].ffn_in.weight[0, 0] = float("nan")
    with pytest.raises(
        MetaXLMError, match=r"^xnli: the loss is nan at step .*; lower the learning"
    ):
        run("xnli")


def test_the_papers_hyperparameters() -> None:
    settings = {name: task.settings for name, task in TASKS.items()}
    assert settings["xnli"] == FinetuneSettings(6, 1e-5, 32, 0.01, 256, 0.1, "source", 1.0)
    assert settings["udpos"] == FinetuneSettings(10, 1e-5, 32, 0.0, 128, 0.1, "source", 1.0)
    assert [len(TASKS[name].languages) for name in ("xnli", "udpos")] == [15, 33]


def test_steps_are_those_of_adamw_written_out(make_encoder: MakeEncoder, few: Path) -> None:
    """Clipping, schedule, decay and Adam by hand, on the same batches, give the same losses."""
    tokenizer, task = make_tokenizer("words"), TASKS["xnli"]
    encoder = make_encoder(tokenizer, dropout=0.0, attention_dropout=0.0)
    settings = FinetuneSettings(2, 0.02, 16, 0.5, 48, warmup=0.25, clip=0.3, adam_epsilon=1e-2)
    records = finetune(task, encoder, tokenizer, few, ["en"], settings, 3, CPU).epochs

    features = task.featurize(task.read(few, "train", "en"), tokenizer, 48).features
    lengths = [len(sequence.ids) for sequence in features]
    torch.manual_seed(derive_seed(3, "xnli head"))
    model = TaskModel(encoder, task.make_head(encoder.config)).train()
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
