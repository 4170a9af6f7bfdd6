"""mteb evaluates our folders; the data of its tasks here is in memory."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from tests.conftest import sentences
from transformers import PreTrainedTokenizerBase

import metaxlm
from metaxlm.model.any_encoder import load_encoder
from metaxlm.model.encoder import EncoderConfig
from metaxlm.model.huggingface import save_pretrained
from metaxlm.model.masked_lm import MaskedLM
from metaxlm.model.sentence_modules import Dense, SentenceModules
from metaxlm.probe.pool import LayerChoice
from metaxlm.probe.sentence_folder import export_sentence_transformers

if TYPE_CHECKING:
    from mteb.abstasks.task_metadata import TaskMetadata

TEXTS = [*sentences("en")[:12], *sentences("de")[:12]]
ABOUT = SimpleNamespace(name="a task")
needs_mteb = pytest.mark.skipif(
    importlib.util.find_spec("mteb") is None, reason="needs mteb: pip install metaxlm[mteb]"
)


@pytest.fixture(scope="module")
def model(
    tmp_path_factory: pytest.TempPathFactory, multilingual_tokenizer: PreTrainedTokenizerBase
) -> Path:
    folder: Path = tmp_path_factory.mktemp("mteb") / "toy"
    config = EncoderConfig(len(multilingual_tokenizer), 16, 2, 2, 32, max_positions=64)
    torch.manual_seed(1)
    masked = MaskedLM(config).eval()
    with torch.no_grad():  # of an initialized encoder, all layers rank pairs alike
        for value in masked.encoder.parameters():
            value.copy_(torch.randn_like(value) / 2)
    save_pretrained(masked, multilingual_tokenizer, folder, "# test\n")
    return folder


def encode(encoder: metaxlm.MtebEncoder, *batches: dict[str, list[str]]) -> np.ndarray:
    return encoder.encode(batches, task_metadata=ABOUT)


@pytest.mark.parametrize("layer", [0, 1, "-1", "0..1"])
def test_a_layer_gives_the_vectors_of_embed(model: Path, layer: int | str) -> None:
    encoder = metaxlm.MtebEncoder(model, layer=layer, device="cpu")
    found = encode(encoder, {"text": TEXTS[:5]}, {"text": TEXTS[5:]})
    np.testing.assert_array_equal(found, metaxlm.embed(model, TEXTS, layer=layer, device="cpu"))


def test_without_a_layer_a_folder_gives_its_own_vectors(model: Path, tmp_path: Path) -> None:
    last = encode(metaxlm.MtebEncoder(model, device="cpu"), {"text": TEXTS})
    np.testing.assert_array_equal(last, metaxlm.embed(model, TEXTS, device="cpu"))
    folder = tmp_path / "sentences"
    export_sentence_transformers(load_encoder(model), folder, LayerChoice((1,)), normalize=True)
    own = encode(metaxlm.MtebEncoder(folder, device="cpu"), {"text": TEXTS})
    np.testing.assert_allclose(np.linalg.norm(own, axis=1), 1, atol=1e-6)
    first = metaxlm.embed(model, TEXTS, layer=1, device="cpu")
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    np.testing.assert_allclose(own, first, atol=1e-5)
    chosen = encode(metaxlm.MtebEncoder(folder, layer=-1, device="cpu"), {"text": TEXTS})
    assert np.abs(np.linalg.norm(chosen, axis=1) - 1).min() > 1e-3  # not scaled


def test_results_are_stored_by_the_files_of_a_model(model: Path, tmp_path: Path) -> None:
    facts = [metaxlm.MtebEncoder(model, device="cpu")._describe() for _ in range(2)]
    assert facts[0] == facts[1] and facts[0]["experiment_kwargs"] is None
    assert (facts[0]["name"], facts[0]["embed_dim"], facts[0]["max_tokens"]) == (
        "metaxlm/toy", 16, 64
    )  # fmt: skip
    folder = tmp_path / "toy"
    export_sentence_transformers(load_encoder(model), folder, LayerChoice((1,)), max_length=9)
    other = metaxlm.MtebEncoder(folder, device="cpu")
    assert other._describe()["name"] == facts[0]["name"]
    assert other._describe()["revision"] != facts[0]["revision"]
    assert other._describe()["max_tokens"] == 9
    other._encoder.modules = SentenceModules(layers=(Dense(torch.ones(5, 16), None, "Identity"),))
    assert other._describe()["embed_dim"] == encode(other, {"text": TEXTS}).shape[1] == 5
    named = metaxlm.MtebEncoder(model, "v2", layer=1, device="cpu")._describe()
    assert (named["revision"], named["experiment_kwargs"]) == ("v2", {"layer": "1"})


def test_similarities_are_cosines(model: Path) -> None:
    encoder = metaxlm.MtebEncoder(model, device="cpu")
    vectors = encode(encoder, {"text": TEXTS})
    scaled = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    table = encoder.similarity(vectors, torch.from_numpy(vectors[:3]))
    np.testing.assert_allclose(table, scaled @ scaled[:3].T, atol=1e-6)
    pairs = encoder.similarity_pairwise(vectors[:3], vectors[3:6])
    np.testing.assert_allclose(pairs, (scaled[:3] * scaled[3:6]).sum(1), atol=1e-6)


def test_inputs_without_text_and_several_layers_are_rejected(model: Path) -> None:
    encoder = metaxlm.MtebEncoder(model, device="cpu")
    with pytest.raises(metaxlm.MetaXLMError, match="a task: its inputs are image, not text"):
        encode(encoder, {"image": []})
    with pytest.raises(metaxlm.MetaXLMError, match="3 layers; choose one"):
        metaxlm.MtebEncoder(model, layer="all")


@pytest.mark.skipif(importlib.util.find_spec("mteb") is not None, reason="mteb is installed")
def test_a_missing_mteb_is_one_line(model: Path) -> None:
    with pytest.raises(metaxlm.MetaXLMError, match=r"pip install metaxlm\[mteb\]"):
        _ = metaxlm.MtebEncoder(model, device="cpu").mteb_model_meta


def describe(kind: Any, score: str, languages: Any = ("eng-Latn",)) -> TaskMetadata:
    from mteb.abstasks.task_metadata import TaskMetadata

    if not isinstance(languages, dict):
        languages = list(languages)
    return TaskMetadata(
        name=f"Toy{kind}", description="Toy sentences.", type=kind, eval_langs=languages,
        main_score=score, dataset={"path": "toy", "revision": "1"}, category="t2t",
    )  # fmt: skip


def make_tasks() -> list[Any]:
    """Tasks of four kinds that mteb evaluates in different ways."""
    from datasets import Dataset, DatasetDict
    from mteb.abstasks import AbsTaskClassification, AbsTaskRetrieval, AbsTaskSTS
    from mteb.abstasks.text.bitext_mining import AbsTaskBitextMining

    english, german = TEXTS[:12], TEXTS[12:]

    class STS(AbsTaskSTS):
        metadata = describe("STS", "cosine_spearman")
        min_score, max_score = 0, 11

        def load_data(self, **_: Any) -> None:
            rows = {"sentence1": english, "sentence2": german, "score": list(range(12))}
            self.dataset = {"default": DatasetDict(test=Dataset.from_dict(rows))}
            self.data_loaded = True

    class Bitext(AbsTaskBitextMining):
        metadata = describe("BitextMining", "f1", {"eng-deu": ["eng-Latn", "deu-Latn"]})

        def load_data(self, **_: Any) -> None:
            rows = {"sentence1": english, "sentence2": german}
            self.dataset = {"eng-deu": DatasetDict(test=Dataset.from_dict(rows))}
            self.data_loaded = True

    class Classification(AbsTaskClassification):
        metadata = describe("Classification", "accuracy")
        n_experiments, samples_per_label = 2, 4

        def load_data(self, **_: Any) -> None:
            rows = {"text": TEXTS, "label": [0] * 12 + [1] * 12}
            both = {split: Dataset.from_dict(rows) for split in ("train", "test")}
            self.dataset = {"default": DatasetDict(both)}
            self.data_loaded = True

    class Retrieval(AbsTaskRetrieval):
        metadata = describe("Retrieval", "ndcg_at_10")

        def load_data(self, **_: Any) -> None:
            ids = [f"d{k}" for k in range(12)]
            corpus = {"id": ids, "text": english, "title": [""] * 12}
            queries = {"id": [f"q{k}" for k in range(12)], "text": english}
            data = {
                "corpus": Dataset.from_dict(corpus),
                "queries": Dataset.from_dict(queries),
                "relevant_docs": {f"q{k}": {f"d{k}": 1} for k in range(12)},
                "top_ranked": None,
            }
            self.dataset = {"default": {"test": data}}
            self.data_loaded = True

    return [STS(), Bitext(), Classification(), Retrieval()]


@needs_mteb
@pytest.mark.filterwarnings("ignore:To copy construct:UserWarning")  # in mteb
def test_mteb_evaluates_a_folder(model: Path, tmp_path: Path) -> None:
    import mteb
    from mteb.cache import ResultCache
    from mteb.models import EncoderProtocol

    scores = {}
    for layer in (1, 2):
        encoder = metaxlm.MtebEncoder(model, layer=layer, device="cpu")
        assert isinstance(encoder, EncoderProtocol)
        done = mteb.evaluate(encoder, make_tasks(), cache=ResultCache(tmp_path))
        scores[layer] = {one.task_name: one.get_score() for one in done.task_results}
        vectors = metaxlm.embed(model, TEXTS, layer=layer, device="cpu")
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        cosines = (vectors[:12] * vectors[12:]).sum(1)
        assert scores[layer]["ToySTS"] == pytest.approx(spearmanr(cosines, range(12))[0], abs=1e-6)
        assert scores[layer]["ToyRetrieval"] == pytest.approx(1)  # queries are the documents
        assert scores[layer]["ToyClassification"] > 0.5  # of two languages
        assert 0 <= scores[layer]["ToyBitextMining"] <= 1
    assert scores[1]["ToySTS"] != scores[2]["ToySTS"]
    meta = encoder.mteb_model_meta
    assert meta.name == "metaxlm/toy" and meta.embed_dim == 16 and meta.max_tokens == 64
    stored = {path.parent.name for path in tmp_path.rglob("ToySTS.json")}
    assert len(stored) == 2, "the results of two layers are stored side by side"
