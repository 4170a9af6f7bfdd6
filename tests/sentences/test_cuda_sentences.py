"""Training of sentence encoders on a GPU: fused kernels and recorded steps change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.pretrain.distributed import DistributedContext
from metaxlm.recipe import ExecutionRecipe, TrainingRecipe
from metaxlm.recipe.sentences_schema import SentencesRecipe
from metaxlm.sentences.sentence_step import SentenceObjective, SentenceStep
from tests.sentences.encoder_trainings import (
    SETTINGS,
    SentenceTrainings,
    make_student,
)
from tests.sentences.test_sentence_step import make_source, make_vectors
from tests.sentences.test_student import crash_at
from tests.trainings import ending, rows

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_fused_gradients_are_those_of_plain_torch(tokenizer: Tokenizer, pooling: str) -> None:
    batch = make_source(tokenizer, device=CUDA).micro_batch(0).to(CUDA)
    weights_BD = torch.randn(8, 64, device=CUDA)
    gradients, vectors = [], []
    for kernels in ("auto", "plain"):
        model = make_student(tokenizer, 0.0, width=64, num_heads=2).to(CUDA)
        objective = SentenceObjective(model, pooling, predicts_tokens=False, kernels=kernels)  # type: ignore[arg-type]
        with torch.autocast("cuda", torch.bfloat16):
            assert objective.uses_fused_kernels(CUDA) == (kernels == "auto")
            vectors_BD = objective([batch], None, torch.zeros(1, 1, dtype=torch.int64, device=CUDA))
        (vectors_BD * weights_BD).sum().backward()
        vectors.append(vectors_BD.detach())
        gradients.append({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
    torch.testing.assert_close(*vectors, atol=0.03, rtol=0.03)
    assert gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        expected = gradients[1][name]
        assert float((gradient - expected).norm() / expected.norm().clamp_min(1e-3)) < 0.05, name


def take_steps(tokenizer: Tokenizer, settings: SentencesRecipe, captured: bool) -> SentenceStep:
    world = DistributedContext.alone(CUDA)
    model = make_student(tokenizer, 0.1, width=64, num_heads=2)
    vectors_AD = torch.cat([make_vectors()] * 4, dim=1)
    step = SentenceStep(model, vectors_AD, "mean", settings, ExecutionRecipe(), world)
    if not captured:
        step._can_be_captured = lambda: False  # type: ignore[method-assign]
    source = make_source(tokenizer, device=CUDA, num_negatives=4)
    for number in range(12):
        step([source.micro_batch(number)], 1e-4, 0)
    assert bool(step._graphs) == captured
    return step


@pytest.mark.parametrize("body_rate", [1.0, 0.25])
def test_recorded_steps_are_those_of_the_host(tokenizer: Tokenizer, body_rate: float) -> None:
    settings = SETTINGS.model_copy(update={"body_rate": body_rate, "negatives": 4})
    one, other, again = (take_steps(tokenizer, settings, flag) for flag in (True, False, True))
    start = make_student(tokenizer, 0.1, width=64, num_heads=2).state_dict()
    assert float(one.totals.loss) == pytest.approx(float(other.totals.loss), rel=1e-3)
    for name, tensor in one.model.state_dict().items():
        moved, expected = tensor.cpu() - start[name], other.model.state_dict()[name].cpu()
        if moved.norm() > 0:
            difference = (tensor.cpu() - expected).norm() / moved.norm()
            assert float(difference) < 0.1, name
        assert torch.equal(tensor, again.model.state_dict()[name]), name


def test_an_older_gpu_trains_in_float16(
    tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SETTINGS.model_copy(update={"negatives": 4})
    expected = take_steps(tokenizer, settings, captured=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    found = take_steps(tokenizer, settings, captured=False)
    assert expected.scale is None and found.scale is not None
    means = [float(step.totals.loss / step.totals.steps) for step in (found, expected)]
    assert means[0] == pytest.approx(means[1], rel=0.2)  # over other steps: the first overflow
    assert int(found.totals.bad) == int(found.totals.overflows) < 10


class Anchored(SentencesRecipe):
    """Settings of a training whose embeddings are pulled back to their start."""

    anchor: float

    def make_training(self) -> TrainingRecipe:
        return super().make_training().model_copy(update={"anchor": self.anchor})


def test_recorded_steps_are_anchored(tokenizer: Tokenizer) -> None:
    start = make_student(tokenizer, 0.1, width=64, num_heads=2).encoder.words.weight.detach()

    def measure(anchor: float, captured: bool) -> float:
        settings = Anchored(**SETTINGS.model_dump() | {"anchor": anchor, "negatives": 4})
        step = take_steps(tokenizer, settings, captured)
        return float((step.model.encoder.words.weight.detach().cpu() - start).norm())

    recorded, host = measure(2_000.0, True), measure(2_000.0, False)
    assert recorded == pytest.approx(host, rel=0.1)
    assert recorded < 0.7 * measure(0.0, True)


def test_crashes_do_not_change_the_result(trainings: SentenceTrainings, tmp_path: Path) -> None:
    world = DistributedContext.alone(CUDA)
    trainings.run(tmp_path / "whole", world=world)
    for workers, step in enumerate((3, 8)):
        with pytest.raises(RuntimeError, match="crash"):
            trainings.run(tmp_path / "parts", world=world, act=crash_at(step), workers=workers)
    trainings.run(tmp_path / "parts", world=world, workers=1)
    assert ending(tmp_path / "parts" / "work") == ending(tmp_path / "whole" / "work")
    assert len(rows(tmp_path / "parts" / "work")) == 3
