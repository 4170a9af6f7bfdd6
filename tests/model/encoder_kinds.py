"""Small random encoders of many families, written by transformers itself."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from tests.model.conftest import make_unigram_tokenizer, make_wordpiece_tokenizer

SENTENCES = ["the cat sees a dog", "a small house", "the old man likes the red house and runs"]
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}


@dataclass(frozen=True)
class Kind:
    """One family of encoders and its sizes."""

    prefix: str
    suffix: str = "ForMaskedLM"
    wordpiece: bool = True
    num_positions: int = 40
    num_token_types: int = 1
    changes: dict[str, Any] = field(default_factory=dict)


DEBERTA = {
    "relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False,
    "position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": True,
}  # fmt: skip
FOREIGN = {
    "albert": Kind("Albert", num_token_types=2, changes={"embedding_size": 16}),
    "deberta-v2": Kind("DebertaV2", changes=DEBERTA),
    "electra": Kind("Electra", "ForPreTraining", num_token_types=2, changes={"embedding_size": 16}),
    "eurobert": Kind(
        "EuroBert",
        changes={
            "bos_token_id": 2,
            "eos_token_id": 3,
            "mask_token_id": 4,
            "num_key_value_heads": 4,
        },
    ),
    "nomic_bert": Kind("NomicBert", num_token_types=2),
    "rembert": Kind(
        "RemBert",
        num_token_types=2,
        changes={"input_embedding_size": 16, "output_embedding_size": 24, "cls_dropout_prob": 0.1},
    ),
    "xlm": Kind(
        "XLM",
        "WithLMHeadModel",
        changes={"emb_dim": 32, "n_layers": 2, "n_heads": 4, "mask_index": 4, "mask_token_id": 4}
        | {
            "unk_index": 1,
            "bos_token_id": 2,
            "eos_token_id": 3,
            "n_langs": 2,
            "embed_init_std": 0.2,
        },
    ),
    "xlm-roberta-xl": Kind("XLMRobertaXL", wordpiece=False, num_positions=38),
}
OURS = {
    "bert": Kind("Bert", num_token_types=2),
    "distilbert": Kind("DistilBert", num_token_types=0),
    "modernbert": Kind(
        "ModernBert",
        changes={"max_position_embeddings": 64, "local_attention": 8, "cls_token_id": 2}
        | {"sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3},
        num_positions=64,
        num_token_types=0,
    ),
    "mpnet": Kind("MPNet", wordpiece=False, num_positions=38, num_token_types=0),
    "xlm-roberta": Kind(
        "XLMRoberta", wordpiece=False, num_positions=38, changes={"type_vocab_size": 1}
    ),
}
ALL = FOREIGN | OURS


def edit_config(folder: Path, **changes: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def write_folder(kind: Kind, folder: Path, **changes: Any) -> Path:
    """Write a small model of transformers with all parameters off their initial values."""
    tokenizer = make_wordpiece_tokenizer() if kind.wordpiece else make_unigram_tokenizer()
    model_class = getattr(transformers, kind.prefix + changes.pop("suffix", kind.suffix))
    if kind.prefix.startswith("DistilBert"):
        tokenizer.model_input_names = ["input_ids", "attention_mask"]
    own = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    model = model_class(model_class.config_class(**(SIZES | own | kind.changes | changes)))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
