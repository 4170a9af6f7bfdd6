"""Encoders of every family with one interface: sizes, padding, heads, finetuned folders."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.model.conftest import make_unigram_tokenizer, make_wordpiece_tokenizer
from tests.model.encoder_kinds import ALL, FOREIGN, OURS, SENTENCES, Kind, edit_config, write_folder
from torch import Tensor, nn

from metaxlm.errors import MetaXLMError
from metaxlm.files import digest_file
from metaxlm.model.any_encoder import AnyEncoder, load_encoder, make_task_model, save_finetuned
from metaxlm.model.encoder import EncoderConfig, NativeEncoder
from metaxlm.model.foreign import ForeignEncoder
from metaxlm.model.foreign_folder import probe
from metaxlm.model.heads import HeadKind

# DeBERTa uses it when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

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
Load = Callable[[str], AnyEncoder]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """Return a function that writes and loads the encoder of a family once."""
    root = tmp_path_factory.mktemp("families")
    return cache(lambda name: load_encoder(write_folder(ALL[name], root / name)))


def encode(start: AnyEncoder, pairs: bool = False) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return a padded batch: ids, mask and, for models that have them, token types."""
    texts = (SENTENCES, SENTENCES[::-1]) if pairs else (SENTENCES,)
    batch = start.tokenizer(*texts, padding=True, return_tensors="pt", return_token_type_ids=True)
    assert not batch["attention_mask"].all()
    types = batch["token_type_ids"] if start.encoder.config.num_token_types > 1 else None
    return batch["input_ids"], batch["attention_mask"].bool(), types


def seeded_model(start: AnyEncoder, kind: HeadKind, seed: int, num_classes: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return make_task_model(start, kind, num_classes)


@pytest.mark.parametrize("name", ALL)
def test_the_sizes_are_found(name: str, load: Load) -> None:
    start = load(name)
    assert isinstance(start.encoder, NativeEncoder if name in OURS else ForeignEncoder)
    config = start.encoder.config
    assert (config.hidden_size, config.num_layers, config.num_heads) == (32, 2, 4)
    assert config.max_positions == ALL[name].num_positions
    assert config.num_token_types == ALL[name].num_token_types
    assert config.pad_id == start.tokenizer.pad_token_id
    assert not start.encoder.training
    with torch.no_grad():
        assert start.encoder(torch.full((1, config.max_positions), 7)).isfinite().all()
        if name not in ("deberta-v2", "eurobert", "nomic_bert"):  # relative positions
            with pytest.raises((IndexError, RuntimeError, ValueError, MetaXLMError)):
                start.encoder(torch.full((1, config.max_positions + 1), 7))


@pytest.mark.parametrize("name", ALL)
def test_vectors_are_those_of_transformers(name: str, load: Load) -> None:
    start = load(name)
    theirs = transformers.AutoModel.from_pretrained(start.source)
    ids, mask, types = encode(start, pairs=True)
    known = {} if types is None else {"token_type_ids": types}
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask.long(), **known)
        states = start.encoder.hidden_states(ids, mask, types)
        fewer = start.encoder.hidden_states(ids, mask, types, deepest=1)
        last = start.encoder(ids, mask, types)
    assert expected.last_hidden_state.abs().max() > 0.1
    assert (last - expected.last_hidden_state)[mask].abs().max() < 1e-5
    assert len(states) == 3
    assert all(state.shape == last.shape for state in states)
    assert torch.equal(states[-1], last)
    assert len(fewer) == 2 and torch.equal(fewer[-1], states[1])
    assert not torch.allclose(states[0], states[1], atol=1e-2)


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "tagging") for name in ALL), ("electra", "span"), ("mpnet", "classification")],
)
def test_logits_depend_on_the_seed_and_not_on_padding(
    name: str, kind: HeadKind, load: Load
) -> None:
    start = load(name)
    model = seeded_model(start, kind, 0).eval()
    ids, mask, types = encode(start, pairs=True)
    with torch.no_grad():
        together = model(ids, mask, types)
        for row, length in enumerate(mask.sum(dim=1).tolist()):
            own = None if types is None else types[row : row + 1, :length]
            alone = model(ids[row : row + 1, :length], None, own)[0]
            kept = together[row] if kind == "classification" else together[row, :length]
            shapes = {"classification": (3,), "tagging": (length, 3), "span": (length, 2)}
            assert kept.shape == shapes[kind]
            assert (alone - kept).abs().max() < 1e-5
            assert kept.abs().max() > 1e-3
        same, other = (seeded_model(start, kind, seed).eval()(ids, mask, types) for seed in (0, 1))
    assert torch.equal(same, together)
    assert not torch.allclose(other, together, atol=1e-4)
    assert all(p.requires_grad and p.dtype == torch.float32 for p in model.parameters())
    assert all(module.training for module in seeded_model(start, kind, 0).modules())
    body = {id(p) for p in start.encoder.parameters()}
    assert not body & {id(p) for p in model.parameters()}


def test_heads_of_modernbert_start_with_the_pretrained_dense_layer(load: Load) -> None:
    """As in transformers, whose classifier has the same module as its MLM head."""
    source = load("modernbert").source
    before = torch.get_rng_state()
    start = load_encoder(source)
    assert torch.equal(torch.get_rng_state(), before), "loading does not change the generator"
    theirs = AUTO["classification"].from_pretrained(source, num_labels=3)
    ours = seeded_model(start, "classification", 3)
    for name, expected in theirs.head.state_dict().items():
        assert torch.equal(ours.get_parameter(f"head.transform.{name}"), expected)
        assert not torch.equal(expected, torch.ones_like(expected))


def test_the_head_of_a_finetuned_folder_is_ignored(tmp_path: Path) -> None:
    folder = write_folder(FOREIGN["electra"], tmp_path, suffix="ForTokenClassification")
    start = load_encoder(folder)
    first, second = (seeded_model(start, "tagging", seed, num_classes=2) for seed in (1, 2))
    weights = [dict(m.named_parameters())["model.classifier.weight"] for m in (first, second)]
    stored = load_file(folder / "model.safetensors")["classifier.weight"]
    assert stored.shape == weights[0].shape
    assert not torch.equal(weights[0], weights[1])
    assert not any(torch.allclose(weight, stored, atol=1e-2) for weight in weights)
    assert seeded_model(start, "tagging", 1, num_classes=5)(*encode(start)).shape[-1] == 5


@pytest.mark.parametrize(
    ("class_name", "reason"),
    [
        ("GPT2LMHeadModel", r"'gpt2', which is not trained to fill masks in"),
        ("T5ForConditionalGeneration", r"'t5', which has a decoder"),
        ("XLNetLMHeadModel", r"'xlnet', which is not trained to fill masks in"),
    ],
)
def test_decoders_are_rejected(class_name: str, reason: str, tmp_path: Path) -> None:
    config = getattr(transformers, class_name).config_class()
    config.save_pretrained(tmp_path)
    with pytest.raises(MetaXLMError, match=rf"config.json: model_type is {reason}"):
        load_encoder(tmp_path)


def test_models_that_read_one_way_or_depend_on_padding_are_rejected(tmp_path: Path) -> None:
    folder = write_folder(FOREIGN["electra"], tmp_path / "e", suffix="ForCausalLM", is_decoder=True)
    with pytest.raises(MetaXLMError, match="'electra', which is set to be a decoder here"):
        load_encoder(folder)
    folder = write_folder(Kind("FNet"), tmp_path / "fnet")
    with pytest.raises(MetaXLMError, match=r"does not encode plain token ids|padding changes"):
        load_encoder(folder)
    config = transformers.GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=4)
    body = transformers.GPT2Model(config).eval()
    encoder = ForeignEncoder(body, EncoderConfig(60, 32, 2, 4), tmp_path)
    with pytest.raises(MetaXLMError, match="its first token does not see the last"):
        probe(encoder.eval(), "gpt2")


def test_files_that_do_not_fit_are_rejected(tmp_path: Path) -> None:
    folder = write_folder(FOREIGN["electra"], tmp_path)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    short = {name: tensor for name, tensor in tensors.items() if "layer.1.output" not in name}
    save_file(short, path, metadata={"format": "pt"})
    with pytest.raises(MetaXLMError, match=r"lack 4 parameters, such as .*layer\.1\.output"):
        load_encoder(folder)
    save_file(tensors, path, metadata={"format": "pt"})
    edit_config(folder, intermediate_size=64)
    with pytest.raises(MetaXLMError, match="cannot load it as ElectraModel"):
        load_encoder(folder)


def test_the_wrong_tokenizer_is_rejected(tmp_path: Path) -> None:
    folder = write_folder(FOREIGN["xlm-roberta-xl"], tmp_path)
    make_wordpiece_tokenizer().save_pretrained(folder)
    with pytest.raises(MetaXLMError, match="pads with id 0, but the model with 1"):
        load_encoder(folder)
    tokenizer = make_unigram_tokenizer()
    tokenizer.add_tokens([f"extra{k}" for k in range(50)])
    tokenizer.save_pretrained(folder)
    with pytest.raises(MetaXLMError, match="but the model only"):
        load_encoder(folder)


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


@pytest.mark.parametrize("kind", LABELS)
@pytest.mark.parametrize("name", ["bert", "distilbert", "xlm-roberta", "electra", "modernbert"])
def test_transformers_computes_the_same_from_a_finetuned_folder(
    name: str, kind: HeadKind, load: Load, tmp_path: Path
) -> None:
    start = load(name)
    model = make_trained(start, kind)
    folder = save(model, start, tmp_path / "model", kind)
    ids, mask, types = encode(start, pairs=True)
    with torch.no_grad():
        expected = model(ids, mask, types)
    assert expected.abs().max() > 0.05
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    theirs, report = AUTO[kind].from_pretrained(folder, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    # As a user calls it: the output of the tokenizer is the input of the model.
    batch = tokenizer(SENTENCES, SENTENCES[::-1], padding=True, return_tensors="pt")
    with torch.no_grad():
        output = theirs(**batch)
    found = output.logits if kind != "span" else None
    if found is None:
        found = torch.stack([output.start_logits, output.end_logits], dim=-1)
    kept = torch.ones(len(ids), dtype=torch.bool) if kind == "classification" else mask
    assert (found - expected)[kept].abs().max() < 1e-5
    if kind != "span":
        assert [theirs.config.id2label[k] for k in range(len(LABELS[kind]))] == list(LABELS[kind])
        assert theirs.config.label2id[LABELS[kind][1]] == 1
    if name == "bert" and kind == "tagging":
        with torch.no_grad():
            without = model(ids, mask, None)
        assert (without - expected)[mask].abs().max() > 1e-3, "token types matter"


@pytest.mark.parametrize("name", ["bert", "electra"])
def test_the_same_model_gives_the_same_bytes(name: str, load: Load, tmp_path: Path) -> None:
    start = load(name)
    model = make_trained(start, "classification")
    first = save(model, start, tmp_path / "first", "classification")
    start.tokenizer(SENTENCES, padding="max_length", truncation=True, max_length=7)
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
def test_a_failure_keeps_the_old_folder(
    name: str, load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = load(name)
    folder = save(make_trained(start, "span"), start, tmp_path / "model", "span")
    before = {path.name: digest_file(path) for path in folder.iterdir()}

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("metaxlm.model.any_encoder.write_tokenizer", fail)
    with pytest.raises(OSError, match="No space left"):
        save(make_task_model(start, "span", 2), start, folder, "span")
    assert {path.name: digest_file(path) for path in folder.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
