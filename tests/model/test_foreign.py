"""Encoders of transformers with another vocabulary: matched, trained, saved, or rejected."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.conftest import Shards
from tests.model.conftest import make_unigram_tokenizer
from tests.model.encoder_kinds import FOREIGN, SENTENCES, Kind, edit_config, write_folder
from tests.trainings import RECIPE, Training, crash, ending, rows
from transformers import AutoModelForMaskedLM, PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.init.rules import UNMATCHED
from metaxlm.init.start import Parts, match
from metaxlm.model.any_encoder import load_encoder
from metaxlm.model.foreign import ForeignEncoder
from metaxlm.model.huggingface import load_pretrained, read_encoder_config, save_pretrained
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.pretrain.cost import count_parts, count_step_flops
from metaxlm.recipe import MatchingRecipe

# DeBERTa uses it when it is imported.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")

SOME = ("deberta-v2", "electra", "rembert", "xlm")
TIED = FOREIGN["eurobert"].changes | {"tie_word_embeddings": True}
MORE = {
    "eurobert-tied": Kind("EuroBert", changes=TIED),
    "deberta-v3": Kind("DebertaV2", changes=FOREIGN["deberta-v2"].changes | {"legacy": False}),
    "longformer": Kind("Longformer", changes={"attention_window": 16}),
    "squeezebert": Kind("SqueezeBert", changes={"embedding_size": 32}),
}  # fmt: skip
KINDS = FOREIGN | {"electra": Kind("Electra", changes={"embedding_size": 16})} | MORE
SHORT = RECIPE.model_copy(
    update={"steps": 12, "checkpoint_every": 5, "log_every": 4, "evaluate_every": 20}
)
Write = Callable[[str], Path]


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """Return a function that writes the encoder of a family once."""
    root = tmp_path_factory.mktemp("foreign")
    return cache(lambda name: write_folder(KINDS[name], root / name))


@pytest.mark.parametrize("name", KINDS)
def test_masked_positions_have_the_logits_of_transformers(name: str, write: Write) -> None:
    folder = write(name)
    found = load_pretrained(folder)
    theirs = AutoModelForMaskedLM.from_pretrained(folder)
    batch = found.tokenizer(SENTENCES, padding=True, return_tensors="pt")
    ids, mask = batch["input_ids"], batch["attention_mask"]
    positions = mask.flatten().nonzero().flatten()[2::3]
    with torch.no_grad():
        expected = theirs(input_ids=ids, attention_mask=mask).logits
        logits = found.model(ids, mask.bool(), positions)
        everywhere = found.model.logits(ids, mask.bool())
    assert expected.abs().max() > 0.1
    rounding = 1e-5 * expected.abs().max().clamp_min(1.0)
    assert (everywhere - expected)[mask.bool()].abs().max() < rounding
    assert (logits - expected.flatten(0, 1)[positions]).abs().max() < rounding
    assert not found.missing
    # Each parameter once, tied or not, on the meta device too.
    state = found.model.state_dict()
    assert len({value.data_ptr() for value in state.values()}) == len(state)
    with torch.device("meta"):
        again = MaskedLM(found.model.config)
    assert {k: v.shape for k, v in again.state_dict().items()} == {
        k: v.shape for k, v in state.items()
    }
    assert sum(count_parts(found.model.config).values()) == theirs.num_parameters()
    assert read_encoder_config(folder) == found.model.config
    assert sum(p.numel() for p in found.model.encoder.layers.parameters()) > 1000


@pytest.mark.parametrize("name", KINDS)
def test_another_vocabulary(name: str, write: Write, tmp_path: Path) -> None:
    """From wordpieces to XLM-R's layout of special tokens, saved and loaded by transformers."""
    folder = write(name)
    source = load_pretrained(folder)
    target = make_unigram_tokenizer()
    target.add_tokens(["zebra", "Zug"])
    start = match(source, target)
    start.save(tmp_path / "start")
    loaded, report = AutoModelForMaskedLM.from_pretrained(
        tmp_path / "start", output_loading_info=True
    )
    assert not report["unexpected_keys"]
    assert all("pooler" in key for key in report["missing_keys"])
    config = json.loads((tmp_path / "start" / "config.json").read_text())
    assert loaded.config.vocab_size == len(target) == len(loaded.get_input_embeddings().weight)
    special = {"pad": 1, "mask": target.mask_token_id, "bos": 0, "cls": 0, "eos": 2, "sep": 2}
    written = {role: config.get(f"{role}_token_id") for role in special}
    assert written["pad"] == 1
    assert all(special[role] == number for role, number in written.items() if number is not None)
    if name == "xlm":
        assert config["mask_index"] == special["mask"]

    before, after = source.model.state_dict(), start.model.state_dict()
    [words] = [key for key in after if start.model.find_part(key) == "words"]
    single = [row for row in range(len(target)) if len(start.plan.origin(row).source_rows) == 1]
    rows = [start.plan.origin(row).source_rows[0] for row in single]
    assert len(single) > 15
    by_token = {f"head.{key}" for key in start.model.head.by_token}
    assert by_token or name == "eurobert-tied"  # a head without a bias
    for key, value in after.items():
        if key == words or key in by_token:
            assert torch.equal(value[single], before[key][rows]), key
        elif start.model.find_part(key) != "positions":
            assert torch.equal(value, before[key]), key
    assert torch.equal(loaded.get_input_embeddings().weight, after[words])
    ids = target(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = loaded(input_ids=ids["input_ids"], attention_mask=ids["attention_mask"]).logits
        logits = start.model.eval().logits(ids["input_ids"], ids["attention_mask"].bool())
    assert (logits - expected)[ids["attention_mask"].bool()].abs().max() < 1e-5

    # Positions begin at the first row after padding, wherever that is.
    known = source.tokenizer("the cat", return_tensors="pt")["input_ids"][:, 1:-1]
    other = target("the cat", return_tensors="pt")["input_ids"][:, 1:-1]
    with torch.no_grad():
        difference = source.model.encoder(known) - start.model.encoder(other)
    assert difference.abs().max() < 1e-5
    # The same seed gives the same bits; a source is not necessary.
    assert all(
        torch.equal(v, after[k]) for k, v in match(source, target).model.state_dict().items()
    )
    normal = match(source, target, matching=MatchingRecipe(filler="normal"))
    fillers = normal.plan.rules == UNMATCHED
    spread = normal.model.state_dict()[words][torch.from_numpy(fillers)].std() / before[words].std()
    assert fillers.any() and 0.6 < spread < 1.5
    none = match(source, target, parts=Parts.preset("none")).model.state_dict()
    assert not torch.equal(none[words][single], after[words][single])


@pytest.mark.parametrize(
    "name",
    [*SOME[::3], *(pytest.param(name, marks=pytest.mark.slow) for name in SOME[1:3])],
)
def test_training_learns_resumes_to_the_bit_and_freezes(
    name: str,
    write: Write,
    shards: Shards,
    multilingual_tokenizer: PreTrainedTokenizerBase,
    tmp_path: Path,
) -> None:
    tokenizer = multilingual_tokenizer
    match(write(name), tokenizer).save(tmp_path / "start")
    training = Training(shards, tokenizer)

    def run(folder: str, at: int | None = None, freeze: bool = False) -> MaskedLM:
        model = load_pretrained(tmp_path / "start").model
        if freeze:
            model.freeze_layers()
        act = None if at is None else crash(at)
        return training.run(tmp_path / folder, SHORT, model=model, act=act)

    run("whole")
    with pytest.raises(RuntimeError, match="crash"):
        run("parts", at=8)
    model = run("parts")
    assert ending(tmp_path / "parts") == ending(tmp_path / "whole")
    losses = [row["loss"] for row in rows(tmp_path / "whole") if "loss" in row]
    assert losses[-1] < losses[0] - 0.1
    save_pretrained(model.eval(), tokenizer, tmp_path / "end", "card")
    loaded = load_pretrained(tmp_path / "end").model.state_dict()
    assert all(torch.equal(value, loaded[key]) for key, value in model.state_dict().items())

    before = load_pretrained(tmp_path / "start").model.state_dict()
    frozen = run("frozen", freeze=True)
    for key, value in frozen.state_dict().items():
        is_same = torch.equal(value, before[key])
        assert is_same == (frozen.find_part(key) == "layers" or "lang_emb" in key), key


def test_a_missing_head_is_drawn_from_a_fixed_seed(tmp_path: Path) -> None:
    folder = write_folder(FOREIGN["electra"], tmp_path / "discriminator")
    first, second = load_pretrained(folder), load_pretrained(folder)
    assert first.architecture == "ElectraForPreTraining"
    names = ("dense.bias", "dense.weight", "LayerNorm.bias", "LayerNorm.weight")
    expected = {f"head.generator_predictions.{name}" for name in names}
    assert set(first.missing) == expected | {"head.generator_lm_head.bias"}
    states = [found.model.state_dict() for found in (first, second)]
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())
    [remark] = match(first, make_unigram_tokenizer()).remarks
    assert "ElectraForPreTraining without a masked language modeling head" in remark


def test_the_published_head_of_deberta_is_found(write: Write, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(write("deberta-v3"), tmp_path / "published"))
    edit_config(folder, legacy=True)  # as if config.json did not mention it
    tensors = load_file(folder / "model.safetensors")
    unused = {"deberta.embeddings.word_embeddings._weight": torch.ones(2)}
    save_file(tensors | unused, folder / "model.safetensors", metadata={"format": "pt"})
    found, expected = load_pretrained(folder), load_pretrained(write("deberta-v3"))
    assert not found.missing
    states = [one.model.state_dict() for one in (found, expected)]
    assert list(states[0]) == list(states[1])
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())


def test_a_pooler_is_neither_trained_nor_written(write: Write, tmp_path: Path) -> None:
    found = load_pretrained(write("squeezebert"))
    is_trained = {name: p.requires_grad for name, p in found.model.named_parameters()}
    assert {name for name, flag in is_trained.items() if not flag} == {
        f"encoder.body.pooler.dense.{kind}" for kind in ("weight", "bias")
    }
    save_pretrained(found.model, found.tokenizer, tmp_path / "end", "card")
    assert not [
        name for name in load_file(tmp_path / "end" / "model.safetensors") if "pool" in name
    ]


def test_costs_follow_the_parameters(write: Write) -> None:
    config = load_pretrained(write("albert")).model.config
    parts = count_parts(config)
    # One layer of 2, used twice; embeddings of 16; the head multiplies by the words once more.
    square, ffn = 32 * 32, 2 * 32 * 48
    weights = 2 * (16 * 32 + 4 * square + ffn)
    head = 32 * 16 + 16 * config.vocab_size
    assert parts["words"] == 16 * config.vocab_size
    flops = count_step_flops(config, 3, 10, 4)
    attention = 2 * 2 * 10 * 32
    assert abs(flops - (3 * 10 * 6 * (weights + attention) + 6 * 4 * head)) / flops < 0.02


REJECTED = {
    "decoder": ("GPT2LMHeadModel", {}, "'gpt2', which is not trained to fill masks in"),
    "encoder-decoder": ("T5ForConditionalGeneration", {}, "'t5', which has a decoder"),
    "padding": ("FNetForMaskedLM", {}, "padding changes its vectors"),
    "convolution": (
        "ConvBertForMaskedLM",
        {"embedding_size": 16},
        "padding changes its vectors",
    ),
    "quantized words": ("IBertForMaskedLM", {}, "has no table of token embeddings to replace"),
    "columns": (
        "MobileBertForMaskedLM",
        {"embedding_size": 16, "true_hidden_size": 32, "intra_bottleneck_size": 32},
        "predictions.dense.weight depends on the vocabulary",
    ),
    "entities": ("LukeForMaskedLM", {"entity_vocab_size": 9, "entity_emb_size": 16}, "of its body"),
}


@pytest.mark.parametrize("name", REJECTED)
def test_models_that_cannot_be_trained_are_rejected(name: str, tmp_path: Path) -> None:
    class_name, changes, reason = REJECTED[name]
    folder = tmp_path / "model"
    if class_name.startswith(("GPT2", "T5")):
        getattr(transformers, class_name).config_class().save_pretrained(folder)
    else:
        write_folder(Kind(class_name, "", wordpiece=False), folder, **changes)
    with pytest.raises(MetaXLMError, match=reason) as error:
        match(folder, make_unigram_tokenizer())
    assert "\n" not in str(error.value) and str(folder) in str(error.value)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_weights_and_tokenizers_that_do_not_fit_are_rejected(tmp_path: Path) -> None:
    folder = write_folder(KINDS["electra"], tmp_path / "model")
    target = make_unigram_tokenizer()
    with pytest.raises(MetaXLMError, match="has 40 positions and cannot have 41; use at most 40"):
        match(folder, target, max_positions=41)
    target.mask_token = None
    with pytest.raises(MetaXLMError, match="has no mask token"):
        match(folder, target)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    words = tensors["electra.embeddings.word_embeddings.weight"]
    untied = tensors | {"generator_lm_head.weight": words + 1}
    save_file(untied, path, metadata={"format": "pt"})
    with pytest.raises(MetaXLMError, match=r"tied in another way .*tie_word_embeddings"):
        load_pretrained(folder)
    edit_config(folder, tie_word_embeddings=False)
    assert "model.generator_lm_head.weight" in load_pretrained(folder).model.head.by_token
    extra = {"electra.encoder.layer.2.output.dense.weight": torch.ones(32, 48)}
    save_file(tensors | extra, path, metadata={"format": "pt"})
    edit_config(folder, tie_word_embeddings=True)
    with pytest.raises(MetaXLMError, match=r"1 tensors that config\.json does not announce"):
        load_pretrained(folder)
    edit_config(folder, auto_map={"AutoModel": "code.Model"})
    with pytest.raises(MetaXLMError, match="does not run code of a model"):
        load_pretrained(folder)


def test_the_same_vectors_are_evaluated(write: Write) -> None:
    """Evaluation loads the body alone."""
    for name in SOME:
        ids = torch.tensor([[2, 7, 8, 9, 3]])
        body, model = load_encoder(write(name)).encoder, load_pretrained(write(name)).model
        assert isinstance(body, ForeignEncoder)
        with torch.no_grad():
            assert torch.equal(body(ids), model.encoder(ids))
