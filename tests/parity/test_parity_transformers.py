"""Our encoder and heads against transformers' own, on random weights, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from metaxlm.errors import MetaXLMError
from metaxlm.model.families import FAMILIES, import_tensors, translate_config
from metaxlm.model.heads import HeadKind, TaskModel, make_head
from metaxlm.model.huggingface import CLASS_ENDINGS
from metaxlm.model.masked_lm import MaskedLM

TOLERANCE = 1e-5
VOCAB_SIZE = 77


@dataclass(frozen=True)
class Case:
    """A transformers class prefix and the settings it is built with."""

    family: str
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    ffn: int = 128
    token_types: int = 1
    eps: float = 1e-5
    pad_id: int = 1
    rows: int = field(default=30, kw_only=True)
    attention: str = field(default="sdpa", kw_only=True)

    @property
    def counts_from_pad(self) -> bool:
        return "oberta" in self.family or self.family == "Camembert"

    @property
    def max_positions(self) -> int:
        return self.rows - (self.pad_id + 1 if self.counts_from_pad else 0)

    @property
    def settings(self) -> dict[str, Any]:
        """Return what makes the family's configuration, under its own names."""
        common = {
            "vocab_size": VOCAB_SIZE,
            "max_position_embeddings": self.rows,
            "pad_token_id": self.pad_id,
            "attn_implementation": self.attention,
        }
        if self.family == "DistilBert":
            sizes = {"dim": self.hidden, "n_layers": self.layers, "n_heads": self.heads}
            return {**common, **sizes, "hidden_dim": self.ffn}
        return {
            **common,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.ffn,
            "type_vocab_size": self.token_types,
            "layer_norm_eps": self.eps,
        }

    def build(self, suffix: str, **extra: Any) -> Any:
        """Return a transformers model with weights off their initial values."""
        torch.manual_seed(3)
        config = getattr(transformers, f"{self.family}Config")(**{**self.settings, **extra})
        model = getattr(transformers, f"{self.family}{suffix}")(config)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
        return model.eval()

    def translate(self, theirs: nn.Module) -> MaskedLM:
        """Return our model with the weights of theirs."""
        config, family = translate_config(theirs.config.to_dict(), Path("config.json"))
        state, _ = import_tensors(theirs.state_dict(), config, family)
        ours = MaskedLM(config)
        ours.load_state_dict(state)
        return ours.eval()


CASES = [
    Case("Roberta"),
    Case("Roberta", 96, 3, 6, 200, token_types=2, eps=1e-12, attention="eager"),
    Case("XLMRoberta", attention="eager"),
    Case("XLMRoberta", 40, 1, 5, 36, eps=1e-3, pad_id=4),
    Case("Camembert", 96, 3, 2, 100),
    Case("Bert", token_types=2, eps=1e-12, pad_id=0),
    Case("Bert", 96, 3, 1, 384, token_types=1, eps=1e-6, pad_id=0, attention="eager"),
    Case("Bert", 48, 2, 12, 64, token_types=3, eps=1e-2, pad_id=5),
    Case("DistilBert", pad_id=0),
    Case("DistilBert", 96, 3, 6, 200, pad_id=3, attention="eager"),
]
every_case = pytest.mark.parametrize(
    "case", CASES, ids=[f"{c.family}-{c.hidden}x{c.layers}-{c.token_types}" for c in CASES]
)


def draw_batch(case: Case, lengths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return ids padded on the right, and the mask of real tokens."""
    generator = torch.Generator().manual_seed(11)
    ids = torch.randint(case.pad_id + 1, VOCAB_SIZE, (len(lengths), max(lengths)))
    ids = ids.random_(case.pad_id + 1, VOCAB_SIZE, generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return ids.masked_fill(~mask, case.pad_id), mask


def largest_difference(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    assert theirs.abs().max() > 0.1, "the oracle says nothing"
    return (ours - theirs).abs().max().item()


def compare(theirs: nn.Module, ours: MaskedLM, ids: Tensor, mask: Tensor, **more: Tensor) -> None:
    """Compare every layer and the logits of real tokens."""
    with torch.no_grad():
        expected = theirs(ids, attention_mask=mask.long(), output_hidden_states=True, **more)
        states = ours.encoder.hidden_states(ids, mask, *more.values())
        logits = ours.logits(ids, mask, *more.values())
    for found, wanted in zip(states, expected.hidden_states, strict=True):
        assert largest_difference(found[mask], wanted[mask]) < TOLERANCE
    assert largest_difference(logits[mask], expected.logits[mask]) < TOLERANCE


@every_case
def test_every_layer_and_the_logits_agree(case: Case) -> None:
    theirs = case.build("ForMaskedLM")
    ours = case.translate(theirs)
    assert ours.config.num_layers == case.layers
    for lengths in ((9, 9), (5, 13, 1), (25,)):
        compare(theirs, ours, *draw_batch(case, lengths))
    ids, mask = draw_batch(case, (6, 12))
    if case.family != "DistilBert":
        types = (torch.arange(12) // 4).expand(2, 12) % case.token_types
        compare(theirs, ours, ids, mask, token_type_ids=types)
    if case.counts_from_pad:
        compare(theirs, ours, ids.flip(1), mask.flip(1))  # padding on the left


@pytest.mark.parametrize("rows", [130, 514])
@pytest.mark.parametrize(
    ("family", "pad_id"), [("Roberta", 1), ("XLMRoberta", 6), ("Bert", 0), ("DistilBert", 0)]
)
def test_position_tables_of_any_length_agree_up_to_their_end(
    family: str, pad_id: int, rows: int
) -> None:
    case = Case(family, 32, 1, 2, 32, pad_id=pad_id, rows=rows)
    theirs = case.build("ForMaskedLM")
    ours = case.translate(theirs)
    ids, mask = draw_batch(case, (case.max_positions, 3))
    compare(theirs, ours, ids, mask)
    with torch.no_grad():
        with pytest.raises(MetaXLMError, match=f"{case.max_positions + 1} tokens does not fit"):
            ours.logits(torch.cat([ids, ids[:, :1]], dim=1))
        with pytest.raises((IndexError, RuntimeError)):
            theirs(torch.full((1, case.max_positions + 1), 9))


def test_a_sinusoidal_position_table_is_a_table() -> None:
    case = CASES[-2]
    theirs = case.build("ForMaskedLM", sinusoidal_pos_embds=True)
    compare(theirs, case.translate(theirs), *draw_batch(case, (5, 13)))


def test_gradients_agree() -> None:
    case = CASES[0]
    theirs = case.build("ForMaskedLM")
    ours = case.translate(theirs)
    ids, mask = draw_batch(case, (5, 13))
    rows = torch.tensor([2, 7 + 8, 20])
    labels = torch.full((2, 13), -100)
    labels.view(-1)[rows] = torch.tensor([8, 30, 76])
    theirs(ids, attention_mask=mask.long(), labels=labels).loss.backward()
    nn.functional.cross_entropy(ours(ids, mask, rows), labels.view(-1)[rows]).backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    expected, missing = import_tensors(gradients, ours.config, FAMILIES["roberta"])
    assert not missing
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, expected[name], atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.parametrize(
    ("kind", "modules"),
    [
        ("classification", {"dense": "classifier.dense", "output": "classifier.out_proj"}),
        ("tagging", {"output": "classifier"}),
        ("span", {"output": "qa_outputs"}),
    ],
)
def test_task_heads_agree(kind: HeadKind, modules: dict[str, str]) -> None:
    case = Case("XLMRoberta")
    theirs = case.build(CLASS_ENDINGS[kind], num_labels=2 if kind == "span" else 5)
    encoder = case.translate(theirs).encoder
    head = make_head(kind, encoder.config, 5)
    for name, module in modules.items():
        head.get_submodule(name).load_state_dict(theirs.get_submodule(module).state_dict())
    ids, mask = draw_batch(case, (5, 13))
    with torch.no_grad():
        found = TaskModel(encoder, head).eval()(ids, mask)
        output = theirs(ids, attention_mask=mask.long())
    if kind == "span":
        expected = torch.stack([output.start_logits, output.end_logits], dim=-1)
    else:
        expected = output.logits
    kept = slice(None) if kind == "classification" else mask
    assert largest_difference(found[kept], expected[kept]) < TOLERANCE
