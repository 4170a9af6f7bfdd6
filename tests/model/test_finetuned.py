"""Finetuned folders: transformers gives the same logits, and so do we when they come back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from metaxlm.model.finetuned import load_finetuned, save_finetuned
from safetensors.torch import load_file, save_file
from tests.model.encoder_kinds import ALL, write_folder
from torch import Tensor, nn

from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_file
from metaxlm.model.any_encoder import AnyEncoder, load_encoder, make_task_model
from metaxlm.model.heads import HeadKind

LABELS: dict[HeadKind, tuple[str, ...]] = {
    "classification": ("neutral", "contradiction", "entailment"),
    "tagging": ("O", "B-PER", "I-PER", "B-LOC"),
    "span": (),
}
AUTO = {
    "classification": transformers.AutoModelForSequenceClassification,
    "tagging": transformers.AutoModelForTokenClassification,
    "span": transformers.AutoModelForQuestionAnswering,
}
FAMILIES = ["bert", "distilbert", "xlm-roberta", "electra", "modernbert"]
FIRST = ["the cat sees a dog", "a small house", "the old man likes the red house and runs"]
SECOND = ["a dog", "the cat likes the big house", "a child"]


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], AnyEncoder]:
    """Return a function that loads the encoder of a family; it is written once."""
    root = tmp_path_factory.mktemp("families")

    def load(name: str) -> AnyEncoder:
        folder = root / name
        return load_encoder(folder if folder.exists() else write_folder(ALL[name], folder))

    return load


def make_trained(start: AnyEncoder, kind: HeadKind) -> nn.Module:
    """Return a task model whose head is far from its start, biases included."""
    torch.manual_seed(0)
    model = make_task_model(start, kind, len(LABELS[kind]) or 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model.eval()


def save(model: nn.Module, start: AnyEncoder, folder: Path, kind: HeadKind) -> Path:
    facts = {"task": "trial", "seed": 3, "dev": "71.2"}
    save_finetuned(
        model, start, folder, kind=kind, labels=LABELS[kind], length=32, stride=8, facts=facts
    )
    return folder


def encode(tokenizer: Any, num_types: int) -> tuple[Tensor, Tensor, Tensor | None]:
    batch = tokenizer(
        FIRST, SECOND, padding=True, return_tensors="pt", return_token_type_ids=num_types > 1
    )
    assert not batch["attention_mask"].all()
    return batch["input_ids"], batch["attention_mask"].bool(), batch.get("token_type_ids")


def read_logits(output: Any, kind: HeadKind) -> Tensor:
    if kind == "span":
        return torch.stack([output.start_logits, output.end_logits], dim=-1)
    logits: Tensor = output.logits
    return logits


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("name", FAMILIES)
def test_transformers_computes_the_same(
    name: str, kind: HeadKind, starts: Callable[[str], AnyEncoder], tmp_path: Path
) -> None:
    start = starts(name)
    model = make_trained(start, kind)
    folder = save(model, start, tmp_path / "model", kind)
    ids, mask, types = encode(start.tokenizer, start.encoder.config.num_token_types)
    with torch.no_grad():
        expected = model(ids, mask, types)
    assert expected.abs().max() > 0.05

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs, report = AUTO[kind].from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    # As a user calls it: whatever the tokenizer returns goes into the model.
    batch = tokenizer(FIRST, SECOND, padding=True, return_tensors="pt")
    with torch.no_grad():
        found = read_logits(theirs(**batch), kind)
    kept = torch.ones(len(ids), dtype=torch.bool) if kind == "classification" else mask
    assert (found - expected)[kept].abs().max() < 1e-5
    if kind != "span":
        assert [theirs.config.id2label[k] for k in range(len(LABELS[kind]))] == list(LABELS[kind])
        assert theirs.config.label2id[LABELS[kind][1]] == 1

    loaded = load_finetuned(folder)
    with torch.no_grad():
        again = loaded.model(*encode(loaded.tokenizer, loaded.config.num_token_types))
    assert (again - expected)[kept].abs().max() < 1e-5
    assert (loaded.kind, loaded.labels, loaded.length, loaded.stride) == (kind, LABELS[kind], 32, 8)
    sizes = ("vocab_size", "hidden_size", "max_positions", "pad_id", "num_token_types")
    for size in (*sizes, "num_layers", "num_heads", "position_offset"):
        assert asdict(loaded.config)[size] == asdict(start.encoder.config)[size]


def test_token_types_matter(starts: Callable[[str], AnyEncoder], tmp_path: Path) -> None:
    """Guards the parity test: without the second type BERT's logits would be others."""
    start = starts("bert")
    loaded = load_finetuned(save(make_trained(start, "tagging"), start, tmp_path / "m", "tagging"))
    ids, mask, types = encode(loaded.tokenizer, 2)
    assert types is not None and types.any()
    with torch.no_grad():
        difference = loaded.model(ids, mask, types) - loaded.model(ids, mask, None)
    assert difference[mask].abs().max() > 1e-3


@pytest.mark.parametrize("name", ["bert", "xlm-roberta", "electra"])
def test_the_same_model_gives_the_same_bytes(
    name: str, starts: Callable[[str], AnyEncoder], tmp_path: Path
) -> None:
    start = starts(name)
    model = make_trained(start, "classification")
    first = save(model, start, tmp_path / "first", "classification")
    start.tokenizer(FIRST, padding="max_length", truncation=True, max_length=7)
    second = save(model.train(), start, tmp_path / "second", "classification")
    names = sorted(path.name for path in first.iterdir())
    assert {"README.md", "config.json", "metaxlm_task.json", "model.safetensors"} < set(names)
    assert names == sorted(path.name for path in second.iterdir())
    assert [digest_file(first / n) for n in names] == [digest_file(second / n) for n in names]
    card = (first / "README.md").read_text()
    assert "| dev | 71.2 |" in card and "AutoModelForSequenceClassification" in card
    facts = json.loads((first / "metaxlm_task.json").read_text())["facts"]
    assert facts == {"task": "trial", "seed": 3, "dev": "71.2"}


@pytest.mark.parametrize("name", ["bert", "electra"])
def test_a_failure_leaves_the_old_folder(
    name: str,
    starts: Callable[[str], AnyEncoder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = starts(name)
    folder = save(make_trained(start, "span"), start, tmp_path / "model", "span")
    before = {path.name: digest_file(path) for path in folder.iterdir()}

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("metaxlm.model.finetuned.write_tokenizer", fail)
    with pytest.raises(OSError, match="No space left"):
        save(make_task_model(start, "span", 2), start, folder, "span")
    assert {path.name: digest_file(path) for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("suffix", ["ForSequenceClassification", "ForQuestionAnswering"])
def test_folders_of_others_are_served(suffix: str, tmp_path: Path) -> None:
    """DistilBERT's own classifier has a ReLU, which our head has not."""
    labels = {} if suffix.endswith("Answering") else {"id2label": {0: "no", 1: "yes", 2: "so"}}
    sizes = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48}
    folder = write_folder(ALL["distilbert"], tmp_path, suffix=suffix, **sizes, **labels)
    kind: HeadKind = "span" if suffix.endswith("Answering") else "classification"
    loaded = load_finetuned(folder)
    assert loaded.labels == tuple(labels.get("id2label", {}).values())
    assert (loaded.kind, loaded.length, loaded.stride) == (kind, 40, 10)
    ids, mask, _ = encode(loaded.tokenizer, 1)
    theirs = AUTO[kind].from_pretrained(folder)
    with torch.no_grad():
        expected = read_logits(theirs(input_ids=ids, attention_mask=mask.long()), kind)
        found = loaded.model(ids, mask, None)
    assert (found - expected).abs().max() < 1e-5


def test_a_folder_without_a_head_is_refused(tmp_path: Path) -> None:
    folder = write_folder(ALL["bert"], tmp_path)
    with pytest.raises(MetaXLMError, match="BertForMaskedLM, which has no task head"):
        load_finetuned(folder)


def test_a_head_that_is_not_in_the_files_is_refused(
    starts: Callable[[str], AnyEncoder], tmp_path: Path
) -> None:
    start = starts("xlm-roberta")
    folder = save(make_trained(start, "tagging"), start, tmp_path / "model", "tagging")
    path = folder / "model.safetensors"
    tensors = {n: t for n, t in load_file(path).items() if n != "classifier.bias"}
    save_file(tensors, path, metadata={"format": "pt"})
    (folder / "manifest.json").unlink()  # otherwise the digest does not fit
    with pytest.raises(MetaXLMError, match=r"lack 1 parameters, such as classifier\.bias"):
        load_finetuned(folder)


@pytest.mark.parametrize(
    "changes", [{"num_labels": 1}, {"problem_type": "multi_label_classification"}]
)
def test_what_is_no_choice_of_one_label_is_refused(changes: dict[str, Any], tmp_path: Path) -> None:
    folder = write_folder(ALL["bert"], tmp_path, suffix="ForSequenceClassification", **changes)
    with pytest.raises(MetaXLMError, match="not one label of several"):
        load_finetuned(folder)
