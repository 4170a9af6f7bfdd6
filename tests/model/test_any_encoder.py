"""Encoders of every family under one face: sizes, padding, heads, refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.model.conftest import make_unigram_tokenizer, make_wordpiece_tokenizer
from tests.model.encoder_kinds import ALL, FOREIGN, OURS, SENTENCES, SIZES, write_folder
from torch import Tensor, nn

from metaxlm.errors import MetaXLMError
from metaxlm.model.any_encoder import (
    AnyEncoder,
    ForeignEncoder,
    _probe,
    load_encoder,
    make_task_model,
)
from metaxlm.model.encoder import Encoder, EncoderConfig
from metaxlm.model.heads import HeadKind

# DeBERTa still asks for it when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

KINDS: tuple[HeadKind, ...] = ("classification", "tagging", "span")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that gives the folder of a family; it is written once."""
    root = tmp_path_factory.mktemp("families")

    def find(name: str) -> Path:
        return root / name if (root / name).exists() else write_folder(ALL[name], root / name)

    return find


def encode(start: AnyEncoder, pairs: bool = False) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return a padded batch: ids, mask and, of models that know them, token types."""
    texts = (SENTENCES, SENTENCES[::-1]) if pairs else (SENTENCES,)
    batch = start.tokenizer(*texts, padding=True, return_tensors="pt", return_token_type_ids=True)
    assert not batch["attention_mask"].all()
    types = batch["token_type_ids"] if start.encoder.config.num_token_types > 1 else None
    return batch["input_ids"], batch["attention_mask"].bool(), types


def seeded_model(start: AnyEncoder, kind: HeadKind, seed: int, num_classes: int = 3) -> nn.Module:
    torch.manual_seed(seed)
    return make_task_model(start, kind, num_classes)


@pytest.mark.parametrize("name", ALL)
def test_the_sizes_are_found(name: str, folders: Callable[[str], Path]) -> None:
    folder = folders(name)
    before = torch.get_rng_state()
    start = load_encoder(str(folder))
    assert torch.equal(torch.get_rng_state(), before)
    assert isinstance(start.encoder, Encoder if name in OURS else ForeignEncoder)
    config = start.encoder.config
    assert (config.hidden_size, config.num_layers, config.num_heads) == (32, 2, 4)
    assert config.max_positions == ALL[name].num_positions
    assert config.num_token_types == ALL[name].num_token_types
    assert config.pad_id == start.tokenizer.pad_token_id
    assert start.source == str(folder)
    assert not start.encoder.training


@pytest.mark.parametrize("name", ALL)
def test_all_positions_can_be_used(name: str, folders: Callable[[str], Path]) -> None:
    encoder = load_encoder(folders(name)).encoder
    ids = torch.full((1, encoder.config.max_positions), 7)
    with torch.no_grad():
        assert encoder(ids).isfinite().all()
        if name not in ("modernbert", "deberta-v2"):  # those count relative positions
            with pytest.raises((IndexError, RuntimeError, ValueError, MetaXLMError)):
                encoder(torch.full((1, encoder.config.max_positions + 1), 7))


@pytest.mark.parametrize("name", ALL)
def test_vectors_are_those_of_transformers(name: str, folders: Callable[[str], Path]) -> None:
    start = load_encoder(folders(name))
    theirs = transformers.AutoModel.from_pretrained(folders(name))
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


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ALL)
def test_padding_changes_no_logit(
    name: str, kind: HeadKind, folders: Callable[[str], Path]
) -> None:
    start = load_encoder(folders(name))
    model = seeded_model(start, kind, 0).eval()
    ids, mask, types = encode(start, pairs=True)
    with torch.no_grad():
        together = model(ids, mask, types)
        for row, length in enumerate(mask.sum(dim=1).tolist()):
            own = None if types is None else types[row : row + 1, :length]
            alone = model(ids[row : row + 1, :length], None, own)[0]
            kept = together[row] if kind == "classification" else together[row, :length]
            assert (
                kept.shape
                == {
                    "classification": (3,),
                    "tagging": (length, 3),
                    "span": (length, 2),
                }[kind]
            )
            assert (alone - kept).abs().max() < 1e-5
            assert kept.abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ALL)
def test_the_generator_decides_the_head_alone(
    name: str, kind: HeadKind, folders: Callable[[str], Path]
) -> None:
    start = load_encoder(folders(name))
    first, same, other = (seeded_model(start, kind, seed) for seed in (1, 1, 2))
    ids, mask, types = encode(start)
    with torch.no_grad():
        logits = [model.eval()(ids, mask, types) for model in (first, same, other)]
    assert torch.equal(logits[0], logits[1])
    assert not torch.allclose(logits[0], logits[2], atol=1e-4)
    body = {id(p) for p in start.encoder.parameters()}
    assert all(p.requires_grad and p.dtype == torch.float32 for p in first.parameters())
    assert not body & {id(p) for p in first.parameters()}


@pytest.mark.parametrize("name", ["bert", "modernbert", "electra", "mpnet"])
def test_training_leaves_the_start_alone(name: str, folders: Callable[[str], Path]) -> None:
    start = load_encoder(folders(name))
    ids, mask, types = encode(start)
    with torch.no_grad():
        before = start.encoder(ids, mask, types)
    model = seeded_model(start, "classification", 0)
    assert model.training and all(module.training for module in model.modules())
    fresh = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    nn.functional.cross_entropy(model(ids, mask, types), torch.tensor([0, 1, 2])).backward()
    optimizer.step()
    moved = [not torch.equal(a, b) for a, b in zip(fresh, model.parameters(), strict=True)]
    assert sum(moved) > 0.7 * len(moved)
    with torch.no_grad():
        assert torch.equal(start.encoder(ids, mask, types), before)
    again = seeded_model(start, "classification", 0)
    assert all(torch.equal(a, b) for a, b in zip(fresh, again.parameters(), strict=True))


def test_heads_start_as_transformers_starts_them(folders: Callable[[str], Path]) -> None:
    """ModernBERT keeps the dense layer of its MLM head under the classifier."""
    folder = folders("modernbert")
    torch.manual_seed(3)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder, num_labels=3)
    start = load_encoder(folder)
    ours = seeded_model(start, "classification", 3)
    ids, mask, _ = encode(start)
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask.long()).logits
        assert (ours.eval()(ids, mask, None) - expected).abs().max() < 1e-5


def test_the_head_of_a_finetuned_folder_is_left_behind(tmp_path: Path) -> None:
    folder = write_folder(FOREIGN["electra"], tmp_path, suffix="ForTokenClassification")
    start = load_encoder(folder)
    first, second = (seeded_model(start, "tagging", seed, num_classes=2) for seed in (1, 2))
    weights = [dict(m.named_parameters())["model.classifier.weight"] for m in (first, second)]
    stored = load_file(folder / "model.safetensors")["classifier.weight"]
    assert stored.shape == weights[0].shape
    assert not torch.equal(weights[0], weights[1])
    assert not any(torch.allclose(weight, stored, atol=1e-2) for weight in weights)
    assert seeded_model(start, "tagging", 1, num_classes=5)(*encode(start)).shape[-1] == 5


def test_half_precision_is_read_as_float32(folders: Callable[[str], Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders("electra"), tmp_path / "half"))
    path = folder / "model.safetensors"
    halves = {name: tensor.half() for name, tensor in load_file(path).items()}
    save_file(halves, path, metadata={"format": "pt"})
    edit_config(folder, dtype="float16")
    start = load_encoder(folder)
    model = seeded_model(start, "tagging", 0)
    for parameter in (*start.encoder.parameters(), *model.parameters()):
        assert parameter.dtype == torch.float32


@pytest.mark.parametrize(
    ("class_name", "reason"),
    [
        ("GPT2LMHeadModel", r"'gpt2', which reads from left to right"),
        ("T5ForConditionalGeneration", r"'t5', which has a decoder of its own"),
        ("BartForConditionalGeneration", r"'bart', which has a decoder of its own"),
        ("XLNetLMHeadModel", r"'xlnet', which is not trained to fill masks in"),
    ],
)
def test_what_is_no_encoder_is_refused(class_name: str, reason: str, tmp_path: Path) -> None:
    config = getattr(transformers, class_name).config_class()
    config.save_pretrained(tmp_path)
    with pytest.raises(MetaXLMError, match=rf"config.json: model_type is {reason}"):
        load_encoder(tmp_path)


def test_a_bidirectional_family_may_not_be_turned_into_a_decoder(tmp_path: Path) -> None:
    folder = write_folder(FOREIGN["electra"], tmp_path, suffix="ForCausalLM", is_decoder=True)
    with pytest.raises(MetaXLMError, match="'electra', which is set to be a decoder here"):
        load_encoder(folder)


def test_a_model_that_reads_one_way_is_seen_by_what_it_computes(tmp_path: Path) -> None:
    config = transformers.GPT2Config(vocab_size=60, n_embd=32, n_layer=2, n_head=4)
    body = transformers.GPT2Model(config).eval()
    encoder = ForeignEncoder(body, EncoderConfig(60, 32, 2, 4), tmp_path)
    with pytest.raises(MetaXLMError, match="its first token does not see the last"):
        _probe(encoder.eval())


def test_a_model_that_padding_disturbs_is_refused(tmp_path: Path) -> None:
    """FNet mixes all columns of a batch, whatever they hold."""
    tokenizer = make_wordpiece_tokenizer()
    config = transformers.FNetConfig(vocab_size=len(tokenizer), **SIZES, pad_token_id=0)
    transformers.FNetForMaskedLM(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(MetaXLMError, match=r"does not encode plain token ids|padding changes"):
        load_encoder(tmp_path)


def edit_config(folder: Path, **changes: Any) -> None:
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, **changes}))


def test_code_of_a_folder_is_not_run(tmp_path: Path) -> None:
    folder = write_folder(FOREIGN["electra"], tmp_path)
    (folder / "own.py").write_text("raise SystemExit('it was run')\n")
    auto_map = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    edit_config(folder, model_type="mystery", auto_map=auto_map)
    with pytest.raises(MetaXLMError, match=r"config.json: `auto_map` asks for code"):
        load_encoder(folder)
    edit_config(folder, auto_map=None)
    with pytest.raises(MetaXLMError, match=r"no model_type 'mystery' without code from elsewhere"):
        load_encoder(folder)


def test_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
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


def test_the_wrong_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = write_folder(FOREIGN["mpnet"], tmp_path)
    make_wordpiece_tokenizer().save_pretrained(folder)
    with pytest.raises(MetaXLMError, match="pads with id 0, but the model with 1"):
        load_encoder(folder)
    tokenizer = make_unigram_tokenizer()
    tokenizer.add_tokens([f"extra{k}" for k in range(50)])
    tokenizer.save_pretrained(folder)
    with pytest.raises(MetaXLMError, match="but the model only"):
        load_encoder(folder)


def test_pickled_weights_are_not_read(tmp_path: Path) -> None:
    folder = write_folder(FOREIGN["electra"], tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(MetaXLMError, match="a pickle that can run code"):
        load_encoder(folder)
