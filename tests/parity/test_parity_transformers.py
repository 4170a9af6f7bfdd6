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
from metaxlm.model.encoder import MaskedLM
from metaxlm.model.families import FAMILIES, import_tensors, translate_config
from metaxlm.model.heads import ClassificationHead, SpanHead, TaggingHead, TaskModel

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


@every_case
@pytest.mark.parametrize("lengths", [(9, 9), (5, 13, 1), (25,)], ids=str)
def test_every_layer_and_the_logits_agree(case: Case, lengths: tuple[int, ...]) -> None:
    theirs = case.build("ForMaskedLM")
    ours = case.translate(theirs)
    ids, mask = draw_batch(case, lengths)
    with torch.no_grad():
        expected = theirs(ids, attention_mask=mask.long(), output_hidden_states=True)
        states = ours.encoder.hidden_states(ids, mask)
        logits = ours(ids, mask, mask.flatten().nonzero().flatten())
    assert len(states) == len(expected.hidden_states) == case.layers + 1
    for found, wanted in zip(states, expected.hidden_states, strict=True):
        assert largest_difference(found[mask], wanted[mask]) < TOLERANCE
    assert largest_difference(logits, expected.logits[mask]) < TOLERANCE


@pytest.mark.parametrize("case", CASES[:-2], ids=lambda case: case.family)
def test_token_types_agree(case: Case) -> None:
    theirs = case.build("ForMaskedLM")
    ours = case.translate(theirs)
    ids, mask = draw_batch(case, (6, 12))
    types = (torch.arange(12) // 4).expand(2, 12) % case.token_types
    with torch.no_grad():
        expected = theirs(ids, attention_mask=mask.long(), token_type_ids=types).logits
        found = ours.logits(ids, mask, types)
    assert largest_difference(found[mask], expected[mask]) < TOLERANCE


@pytest.mark.parametrize("case", CASES[:5], ids=lambda case: case.family)
def test_padding_on_the_left_agrees_in_the_roberta_family(case: Case) -> None:
    theirs = case.build("ForMaskedLM")
    ours = case.translate(theirs)
    ids, mask = (tensor.flip(1) for tensor in draw_batch(case, (4, 11)))
    with torch.no_grad():
        expected = theirs(ids, attention_mask=mask.long()).logits
        found = ours.logits(ids, mask)
    assert largest_difference(found[mask], expected[mask]) < TOLERANCE


@pytest.mark.parametrize("rows", [130, 514, 1026])
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
    with torch.no_grad():
        expected = theirs(ids, attention_mask=mask.long()).logits
        found = ours.logits(ids, mask)
        assert largest_difference(found[mask], expected[mask]) < TOLERANCE
        with pytest.raises(MetaXLMError, match=f"{case.max_positions + 1} tokens does not fit"):
            ours.logits(torch.cat([ids, ids[:, :1]], dim=1))
        with pytest.raises((IndexError, RuntimeError)):
            theirs(torch.full((1, case.max_positions + 1), 9))


def test_a_sinusoidal_position_table_is_a_table() -> None:
    case = CASES[-2]
    theirs = case.build("ForMaskedLM", sinusoidal_pos_embds=True)
    ids, mask = draw_batch(case, (5, 13))
    with torch.no_grad():
        expected = theirs(ids, attention_mask=mask.long()).logits
        found = case.translate(theirs).logits(ids, mask)
    assert largest_difference(found[mask], expected[mask]) < TOLERANCE


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


@pytest.mark.parametrize("family", ["Roberta", "XLMRoberta", "Camembert"])
@pytest.mark.parametrize(
    "suffix", ["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"]
)
def test_task_heads_agree(family: str, suffix: str) -> None:
    case = Case(family)
    theirs = case.build(suffix, num_labels=2 if suffix == "ForQuestionAnswering" else 5)
    encoder = case.translate(theirs).encoder
    head: nn.Module
    if suffix == "ForSequenceClassification":
        head = ClassificationHead(encoder.config, 5)
        renamed = {"dense": theirs.classifier.dense, "output": theirs.classifier.out_proj}
    elif suffix == "ForTokenClassification":
        head, renamed = TaggingHead(encoder.config, 5), {"output": theirs.classifier}
    else:
        head, renamed = SpanHead(encoder.config), {"output": theirs.qa_outputs}
    for name, module in renamed.items():
        head.get_submodule(name).load_state_dict(module.state_dict())
    ours = TaskModel(encoder, head).eval()
    ids, mask = draw_batch(case, (5, 13))
    with torch.no_grad():
        found = ours(ids, mask)
        expected = theirs(ids, attention_mask=mask.long())
    if suffix == "ForSequenceClassification":
        assert largest_difference(found, expected.logits) < TOLERANCE
    elif suffix == "ForTokenClassification":
        assert largest_difference(found[mask], expected.logits[mask]) < TOLERANCE
    else:
        both = torch.stack([expected.start_logits, expected.end_logits], dim=-1)
        assert largest_difference(found[mask], both[mask]) < TOLERANCE
