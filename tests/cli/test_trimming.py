from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForMaskedLM, AutoTokenizer, PreTrainedTokenizerBase

from metaxlm.model.encoder import EncoderConfig, MaskedLM
from metaxlm.model.huggingface import save_pretrained
from tests.commands import Command
from tests.conftest import sentences


@pytest.fixture
def inputs(tmp_path: Path, multilingual_tokenizer: PreTrainedTokenizerBase) -> Path:
    """A finished model, a tokenizer alone, and text."""
    torch.manual_seed(1)
    model = MaskedLM(EncoderConfig(len(multilingual_tokenizer), 16, 1, 2, 32, max_positions=64))
    save_pretrained(model.eval(), multilingual_tokenizer, tmp_path / "model", "# A model\n")
    multilingual_tokenizer.save_pretrained(tmp_path / "tokenizer")
    (tmp_path / "text").mkdir()
    text = "\n".join(sentences("de"))
    (tmp_path / "text" / "de.txt").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_finished_model(metaxlm: Command, inputs: Path) -> None:
    code, printed, errors = metaxlm(
        "trim", "--model", "model", "--corpus", "text", "--output", "small"
    )
    assert (code, errors) == (0, "")
    assert "tokens kept" in printed
    assert "German" in printed
    assert "1.00000" in printed
    big, small = inputs / "model", inputs / "small"
    assert (small / "model.safetensors").stat().st_size < (big / "model.safetensors").stat().st_size
    states = []
    for folder in (big, small):
        model = AutoModelForMaskedLM.from_pretrained(folder).eval()
        ids = AutoTokenizer.from_pretrained(folder)(
            "die Katze sieht ein Haus.", return_tensors="pt"
        )
        states.append(model(**ids, output_hidden_states=True).hidden_states[-1])
    assert torch.equal(*states)


def test_a_tokenizer_alone(metaxlm: Command, inputs: Path) -> None:
    code, printed, _ = metaxlm(
        "trim", "--tokenizer", "tokenizer", "--corpus", "text", "--output", "small", "--size", "55"
    )
    assert code == 0
    assert "55 of" in printed
    assert len(AutoTokenizer.from_pretrained(inputs / "small")) == 55


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--corpus", "text"), "trim: needs either --model or --tokenizer"),
        (("--corpus", "text", "--model", "a", "--tokenizer", "b"), "needs either --model or"),
        (("--corpus", "model", "--tokenizer", "tokenizer"), "model: no text in it"),
        (("--corpus", "text", "--tokenizer", "tokenizer", "--languages", "sw"), "language 'sw'"),
        (("--corpus", "text", "--tokenizer", "tokenizer", "--size", "3"), "size 3 is too small"),
        (("--corpus", "text", "--tokenizer", "tokenizer", "--min-count", "9999"), "leaves special"),
    ],
)
def test_mistakes_are_told_in_one_line(
    metaxlm: Command, inputs: Path, arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in metaxlm.complaint("trim", *arguments, "--output", "small")
    assert not (inputs / "small").exists()


def test_nothing_is_overwritten(metaxlm: Command, inputs: Path) -> None:
    told = metaxlm.complaint(
        "trim", "--tokenizer", "tokenizer", "--corpus", "text", "--output", "model"
    )
    assert "model: is there already" in told
