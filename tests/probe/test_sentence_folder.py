from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
import yaml
from transformers import AutoModel, AutoTokenizer

from metaxlm.errors import MetaXLMError
from metaxlm.files import read_json
from metaxlm.model.any_encoder import AnyEncoder, load_encoder
from metaxlm.probe.embedding import embed_texts
from metaxlm.probe.pool import LayerChoice
from metaxlm.probe.sentence_folder import export_sentence_transformers
from tests.finetune.conftest import CPU, TEXT
from tests.model.encoder_kinds import ALL, SENTENCES, write_folder
from tests.probe.conftest import MakeModel

HAS_PEER = importlib.util.find_spec("sentence_transformers") is not None


def take_mean(folder: Path, texts: list[str]) -> torch.Tensor:
    """What sentence-transformers does with such a folder, by transformers alone."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    limit = read_json(folder / "sentence_bert_config.json")["max_seq_length"]
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=limit, return_tensors="pt")
    with torch.no_grad():
        hidden_BLD = AutoModel.from_pretrained(folder).eval()(**inputs).last_hidden_state
    mask_BL1 = inputs["attention_mask"][..., None]
    return (hidden_BLD * mask_BL1).sum(dim=1) / mask_BL1.sum(dim=1)


@pytest.mark.parametrize("layer", [None, 1])
@pytest.mark.parametrize("kind", ["unigram", "bert"])
def test_the_mean_of_the_last_layer_is_our_vector(
    make_model: MakeModel, tmp_path: Path, kind: str, layer: int | None
) -> None:
    model = make_model(kind, "runs/a/model", max_positions=50)
    choice = None if layer is None else LayerChoice((layer,))
    export_sentence_transformers(model, tmp_path / "out", choice)
    expected = embed_texts(model, TEXT, CPU)[-1 if layer is None else layer]
    torch.testing.assert_close(take_mean(tmp_path / "out", TEXT), expected, atol=1e-5, rtol=0)
    assert read_json(tmp_path / "out" / "config.json")["num_hidden_layers"] == (layer or 2)
    inputs = read_json(tmp_path / "out" / "tokenizer_config.json")["model_input_names"]
    assert ("token_type_ids" in inputs) == (kind == "bert")
    assert read_json(tmp_path / "out" / "tokenizer.json")["truncation"] is None
    # Written again it is the same (the encoder is unchanged), and a model folder of our own.
    export_sentence_transformers(model, tmp_path / "again", choice)
    for file in ("model.safetensors", "config.json", "tokenizer.json", "README.md"):
        bytes_of = [(tmp_path / name / file).read_bytes() for name in ("out", "again")]
        assert bytes_of[0] == bytes_of[1]
    found = embed_texts(load_encoder(tmp_path / "out"), TEXT, CPU)[-1]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", ["modernbert", "distilbert", "mpnet", "albert", "electra"])
def test_other_families(tmp_path: Path, family: str) -> None:
    model = load_encoder(write_folder(ALL[family], tmp_path / "model"))
    export_sentence_transformers(model, tmp_path / "whole")
    expected = embed_texts(model, SENTENCES, CPU)
    found = take_mean(tmp_path / "whole", SENTENCES)
    torch.testing.assert_close(found, expected[-1], atol=1e-5, rtol=1e-4)
    if HAS_PEER:  # it passes the folder's settings to the model's class
        from sentence_transformers import SentenceTransformer

        vectors = SentenceTransformer(str(tmp_path / "whole"), device="cpu").encode(SENTENCES)
        torch.testing.assert_close(torch.from_numpy(vectors), found, atol=1e-5, rtol=1e-4)
    if family == "modernbert":  # it normalizes after the last layer
        with pytest.raises(MetaXLMError, match="layer 1: a modernbert model that ends there"):
            export_sentence_transformers(model, tmp_path / "cut", LayerChoice((1,)))
        assert not (tmp_path / "cut").exists()
        return
    before = torch.get_rng_state()
    export_sentence_transformers(model, tmp_path / "cut", LayerChoice((1,)))
    assert torch.equal(torch.get_rng_state(), before)
    found = take_mean(tmp_path / "cut", SENTENCES)
    torch.testing.assert_close(found, expected[1], atol=1e-5, rtol=1e-4)


@pytest.mark.skipif(not HAS_PEER, reason="sentence-transformers is not installed")
@pytest.mark.parametrize(("kind", "normalize"), [("unigram", True), ("bert", False)])
def test_sentence_transformers_gives_our_vectors(
    make_model: MakeModel, tmp_path: Path, kind: str, normalize: bool
) -> None:
    from sentence_transformers import SentenceTransformer

    model = make_model(kind, "runs/a/model", max_positions=50)
    export_sentence_transformers(model, tmp_path / "out", LayerChoice((1,)), normalize=normalize)
    peer = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert peer.max_seq_length == 50
    assert peer.similarity_fn_name == "cosine"
    expected = embed_texts(model, TEXT, CPU)[1]
    expected = F.normalize(expected) if normalize else expected
    found = peer.encode(TEXT, convert_to_tensor=True, show_progress_bar=False)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_the_card_tells_what_the_vectors_are(make_model: MakeModel, tmp_path: Path) -> None:
    whole = tmp_path / "runs" / "a" / "model"
    whole.mkdir(parents=True)
    front = {"language": ["en", "de"], "license": "mit", "pipeline_tag": "fill-mask"}
    (whole / "README.md").write_text(f"---\n{yaml.safe_dump(front)}---\n# A model\n---\n")
    made = make_model(source="runs/a/model", max_positions=50)
    model = AnyEncoder(str(whole), made.tokenizer, made.encoder)
    export_sentence_transformers(model, tmp_path / "out", LayerChoice((1,)), normalize=True)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    _, head, text = card.split("---\n", maxsplit=2)
    values = yaml.safe_load(head)
    assert values["library_name"] == "sentence-transformers"
    assert {name: values[name] for name in front} == front | {"pipeline_tag": "sentence-similarity"}
    assert "the mean of layer 1 of 2 of `runs/a` over all tokens" in text
    assert "scaled to length 1" in text
    assert str(tmp_path) not in card
    # A card without these fields does not stop the export.
    (whole / "README.md").write_text("---\n: [\n---\n")
    export_sentence_transformers(model, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "license" not in card and "scaled" not in card


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ((1, 2), r"layer 1\+2: sentence-transformers takes vectors of one layer, not the mean"),
        ((0,), "layer 0 is the embedding output, .* choose one from 1 to 2, or use"),
        ((3,), "layer 3: runs/a/model has 2 layers"),
    ],
)
def test_what_it_cannot_express(
    make_model: MakeModel, tmp_path: Path, numbers: tuple[int, ...], expected: str
) -> None:
    model = make_model(source="runs/a/model", max_positions=50)
    with pytest.raises(MetaXLMError, match=expected):
        export_sentence_transformers(model, tmp_path / "out", LayerChoice(numbers))
    assert list(tmp_path.iterdir()) == []
