"""Small real checkpoints of every supported family, written by transformers itself."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from torch import Tensor
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

WORDS = ["the", "a", "cat", "dog", "house", "sees", "likes", "and", "small", "big", "red", "old"]
WORDS += ["man", "woman", "child", "runs"]


def make_unigram_tokenizer() -> PreTrainedTokenizerBase:
    """Return a tokenizer in XLM-R's layout, with a normalizer that XLM-R's own class lacks."""
    specials = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -20.0)]
    pieces = [(f"▁{word}", -2.0) for word in WORDS] + [(c, -8.0) for c in "▁abcdefghijklmnop"]
    backend = Tokenizer(models.Unigram([*specials, *pieces, ("<mask>", 0.0)], unk_id=3))
    backend.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")
    backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", cls_token="<s>",
        sep_token="</s>", pad_token="<pad>", unk_token="<unk>", mask_token="<mask>",
    )  # fmt: skip


def make_wordpiece_tokenizer() -> PreTrainedTokenizerBase:
    """Return a tokenizer in BERT's layout."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "##s", "##ing"]
    backend = Tokenizer(
        models.WordPiece({token: i for i, token in enumerate(tokens)}, unk_token="[UNK]")
    )
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, cls_token="[CLS]", sep_token="[SEP]",
        pad_token="[PAD]", unk_token="[UNK]", mask_token="[MASK]",
    )  # fmt: skip


@pytest.fixture
def tokenizer() -> PreTrainedTokenizerBase:
    return make_unigram_tokenizer()


@pytest.fixture
def wordpiece_tokenizer() -> PreTrainedTokenizerBase:
    return make_wordpiece_tokenizer()


@pytest.fixture(scope="session")
def write_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Return a function that writes a folder for a transformers class, disturbed weights in it."""

    from tests.model.encoder_kinds import Kind, write_folder

    def write(class_name: str, **changes: object) -> Path:
        kind = Kind(class_name, "", wordpiece=class_name.startswith(("Bert", "DistilBert")))
        return write_folder(kind, tmp_path_factory.mktemp(class_name), **changes)

    return write


@pytest.fixture(scope="session")
def _roberta_folder(write_checkpoint: Callable[..., Path]) -> Path:
    return write_checkpoint("RobertaForMaskedLM", layer_norm_eps=1e-5, type_vocab_size=1)


@pytest.fixture
def folder(_roberta_folder: Path, tmp_path: Path) -> Path:
    """Return a valid RobertaForMaskedLM folder that the test may break."""
    return Path(shutil.copytree(_roberta_folder, tmp_path / "checkpoint"))


@pytest.fixture
def edit_tensors(folder: Path) -> Callable[[Callable[[dict[str, Tensor]], None]], None]:
    """Return a function that changes the tensors in the folder's weights file."""

    def apply(edit: Callable[[dict[str, Tensor]], None]) -> None:
        path = folder / "model.safetensors"
        tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
        edit(tensors)
        save_file(tensors, path, metadata={"format": "pt"})

    return apply
