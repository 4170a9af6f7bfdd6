"""Whole trainings: they learn, resume to the bit, and write a folder that others load."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import yaml
from transformers import AutoModel
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.files import read_json
from metaxlm.model.any_encoder import load_encoder
from metaxlm.pretrain.batches.masking import Masking
from metaxlm.pretrain.batches.source import BatchSource
from metaxlm.pretrain.checkpoint import load_newest
from metaxlm.probe.embedding import embed_texts
from metaxlm.recipe import TrainingRecipe
from metaxlm.sentences.student import MaskedText
from metaxlm.sentences.teacher import load_teacher
from tests.conftest import Shards, sentences
from tests.rank_jobs import fork_ranks
from tests.sentences.encoder_trainings import CPU, SETTINGS, SentenceTrainings, save_student
from tests.trainings import ending, rows


def crash_at(step: int) -> Callable[[int], None]:
    def act(number: int) -> None:
        if number == step * SETTINGS.batch_size:
            raise RuntimeError("crash")

    return act


def embed(folder: Path, texts: list[str]) -> torch.Tensor:
    return embed_texts(load_encoder(folder), texts, CPU)[-1]


def retrieve(trainings: SentenceTrainings, folder: Path) -> float:
    """The share of German and Russian sentences whose English original is the nearest one."""
    teacher = load_teacher(trainings.teacher)
    english_ND = torch.from_numpy(teacher.embed(sentences("en"), CPU, lambda _: None)).float()
    hits = []
    for language in ("de", "ru"):
        vectors_ND = F.normalize(embed(folder, sentences(language)))
        hits += ((vectors_ND @ english_ND.t()).argmax(dim=1) == torch.arange(64)).tolist()
    return float(np.mean(hits))


@pytest.fixture(scope="module")
def whole(trainings: SentenceTrainings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    trainings.run(folder)
    return folder


def test_training_makes_translations_neighbors(
    trainings: SentenceTrainings, tmp_path: Path
) -> None:
    assert retrieve(trainings, trainings.student) < 0.1
    settings = {"steps": 80, "batch_size": 32, "log_every": 20, "negatives": 16}
    trainings.run(tmp_path, SETTINGS.model_copy(update=settings))
    losses = [row["loss"] for row in rows(tmp_path / "work")]
    assert losses[-1] < losses[0] / 2
    assert retrieve(trainings, tmp_path / "encoder") > 0.5


def test_crashes_do_not_change_the_result(
    trainings: SentenceTrainings, whole: Path, tmp_path: Path
) -> None:
    for workers, step in enumerate((0, 3, 8)):
        with pytest.raises(RuntimeError, match="crash"):
            trainings.run(tmp_path, act=crash_at(step), workers=workers)
    trainings.run(tmp_path)
    assert ending(tmp_path / "work") == ending(whole / "work")
    for name in ("model.safetensors", "README.md"):
        assert (tmp_path / "encoder" / name).read_bytes() == (whole / "encoder" / name).read_bytes()


def test_vectors_of_the_teacher_are_computed_once(
    trainings: SentenceTrainings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (3, 8):
        with pytest.raises(RuntimeError, match="crash"):
            trainings.run(tmp_path, act=crash_at(step))
    stored = list((tmp_path / "work" / "teacher").iterdir())
    assert capsys.readouterr().out.count("teacher's vectors") == 1
    assert len(stored) == 1
    trainings.run(tmp_path)
    assert not stored[0].exists()


@pytest.mark.slow
def test_two_processes_train_as_one(
    trainings: SentenceTrainings, tmp_path: Path, tokenizer: Tokenizer
) -> None:
    """Without dropout, which each process draws for itself."""
    (tmp_path / "teacher").symlink_to(trainings.teacher)
    student = save_student(tmp_path / "student", tokenizer, dropout=0.0)
    SentenceTrainings(trainings.teacher, student).run(tmp_path / "one")
    process = fork_ranks(2, ["-m", "tests.sentences.encoder_trainings", str(tmp_path)])
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    one, two = (load_newest(tmp_path / name / "work") for name in ("one", "two"))
    assert one is not None and two is not None
    assert one.state.tokens == two.state.tokens
    for name, tensor in one.model.items():
        torch.testing.assert_close(two.model[name], tensor, atol=2e-5, rtol=0)
    losses = [[row["loss"] for row in rows(tmp_path / n / "work")] for n in ("one", "two")]
    assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_other_libraries_load_the_folder(whole: Path, tmp_path: Path) -> None:
    peer = pytest.importorskip("sentence_transformers")
    texts = [*sentences("de")[:5], "x"]
    ours = embed(whole / "encoder", texts)
    theirs = peer.SentenceTransformer(str(whole / "encoder"), device="cpu").encode(texts)
    np.testing.assert_allclose(theirs, ours.numpy(), atol=1e-5)
    assert AutoModel.from_pretrained(whole / "encoder").config.hidden_size == 16
    front = yaml.safe_load((whole / "encoder" / "README.md").read_text().split("---\n")[1])
    assert front["language"] == ["de", "ru"] and front["library_name"] == "sentence-transformers"
    card = (whole / "encoder" / "README.md").read_text()
    for fact in ("| teacher |", "German (de), Russian (ru)", "128 pairs", "12 of 8 pairs"):
        assert fact in card
    settings = read_json(whole / "encoder" / "sentence_bert_config.json")
    assert settings["max_seq_length"] == 32  # the student's positions, not those of training


def test_kept_steps_are_folders(trainings: SentenceTrainings, tmp_path: Path) -> None:
    trainings.run(tmp_path, SETTINGS.model_copy(update={"keep_steps": [4]}))
    [step] = (tmp_path / "steps").iterdir()
    assert step.name == "step-00000004"
    before, after = (embed(folder, ["das rote Buch"]) for folder in (step, tmp_path / "encoder"))
    assert not torch.allclose(before, after)


def test_text_of_a_run_is_used_in_the_same_steps(
    trainings: SentenceTrainings, shards: Shards, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    recipe = TrainingRecipe(steps=12, warmup_steps=0, batch_size=4, length=32)
    settings = SETTINGS.model_copy(update={"mlm_weight": 1.0})
    for name, crashes in (("whole", ()), ("parts", (6,))):
        text = MaskedText(
            BatchSource(shards, tokenizer, recipe, 1), Masking(tokenizer, recipe, CPU), recipe
        )
        for step in crashes:
            with pytest.raises(RuntimeError, match="crash"):
                trainings.run(tmp_path / name, settings, act=crash_at(step), masked_text=text)
        model = trainings.run(tmp_path / name, settings, masked_text=text)
        assert model.head.dense.weight.requires_grad
    assert ending(tmp_path / "whole" / "work") == ending(tmp_path / "parts" / "work")
