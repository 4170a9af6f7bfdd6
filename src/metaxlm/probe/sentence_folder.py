"""A sentence-transformers folder: an encoder and a layer come in, a folder for its users goes out.

The vectors are those of `embed_texts`, and so of the paper's Section 4.4: the mean over all tokens
of one layer. sentence-transformers takes the last layer, so the folder's encoder ends with the
chosen one; it has fewer parameters, too. The folder needs no code of ours, and is also a plain
folder for transformers' `AutoModel`.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml

from metaxlm import __version__
from metaxlm.errors import MetaXLMError
from metaxlm.files import dump_json, read_text, write_json
from metaxlm.hub import CONFIG, HUB, MODULES, first_line
from metaxlm.manifest import atomic_folder
from metaxlm.model.any_encoder import AnyEncoder, ForeignEncoder, name_inputs, quiet_transformers
from metaxlm.model.encoder import Encoder
from metaxlm.model.huggingface import export_encoder, write_tokenizer
from metaxlm.model.model_folder import WEIGHTS, save_file
from metaxlm.probe.layers import LayerChoice
from metaxlm.progress import say
from metaxlm.recipe.load import parse_yaml

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_MODULES = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
# What a model card says about the model's text and license holds for its first layers as well.
_INHERITED = ("language", "license")


def export_sentence_transformers(
    model: AnyEncoder, folder: Path, layer: LayerChoice | None = None, *, normalize: bool = False
) -> None:
    """Write a folder for `SentenceTransformer(folder)`, whole or not at all.

    `layer` is the last one when None; `normalize` scales vectors to length 1. The same model gives
    the same bytes.
    """
    number = _choose_number(model, layer)
    config = model.encoder.config
    with atomic_folder(folder) as temporary:
        if isinstance(model.encoder, ForeignEncoder):
            _save_foreign(model.encoder, number, temporary)
        else:
            tensors, values = export_encoder(_cut(model.encoder, number), model.tokenizer)
            save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt"})
            write_json(temporary / CONFIG, values)
        has_types = config.num_token_types > 1
        write_tokenizer(temporary, model.tokenizer, config.max_positions, has_token_types=has_types)
        for name, value in _describe_modules(model, normalize).items():
            (temporary / name).parent.mkdir(exist_ok=True)
            (temporary / name).write_text(dump_json(value), encoding="utf-8")
        card = _write_card(model, number, normalize)
        (temporary / "README.md").write_text(card, encoding="utf-8")


def _choose_number(model: AnyEncoder, layer: LayerChoice | None) -> int:
    num_layers = model.encoder.config.num_layers
    numbers = (num_layers,) if layer is None else layer.numbers
    if len(numbers) > 1:
        raise MetaXLMError(
            f"layer {layer}: sentence-transformers takes vectors of one layer, not the mean of "
            f"{len(numbers)}; choose one, or use `metaxlm embed`"
        )
    if numbers[0] == 0:
        raise MetaXLMError(
            "layer 0 is the embedding output, and sentence-transformers needs an encoder with "
            f"layers; choose one from 1 to {num_layers}, or use `metaxlm embed`"
        )
    if numbers[0] > num_layers:
        raise MetaXLMError(f"layer {layer}: {model.source} has {num_layers} layers")
    return numbers[0]


def _cut(encoder: Encoder, num_layers: int) -> Encoder:
    """Return an encoder that ends with a layer; it shares its parameters with the whole one."""
    with torch.device("meta"):
        short = Encoder(replace(encoder.config, num_layers=num_layers))
    state = {name: encoder.state_dict()[name] for name in short.state_dict()}
    short.load_state_dict(state, assign=True)
    return short.eval()


def _save_foreign(encoder: ForeignEncoder, num_layers: int, folder: Path) -> None:
    """Let transformers write its own model, cut to some layers if that gives the same states."""
    body = encoder.body
    if num_layers < encoder.config.num_layers:
        body = _cut_foreign(encoder, num_layers)
    with quiet_transformers():
        state = {name: value.detach().cpu().clone() for name, value in body.state_dict().items()}
        body.save_pretrained(folder, state_dict=state)


def _cut_foreign(encoder: ForeignEncoder, num_layers: int) -> PreTrainedModel:
    """Return transformers' model with fewer layers, if its last states are the layer's own."""
    reason = MetaXLMError(
        f"layer {num_layers}: a {encoder.body.config.model_type} model that ends there computes "
        "something else than the whole one has there; choose the last layer, or use "
        "`metaxlm embed`"
    )
    config = copy.deepcopy(encoder.body.config)
    config.num_hidden_layers = num_layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:num_layers]
    ids_1L = torch.arange(min(8, encoder.config.vocab_size))[None]
    try:
        with torch.random.fork_rng(devices=[]), quiet_transformers():
            short = type(encoder.body)(config).eval()
        state = encoder.body.state_dict()
        short.load_state_dict({name: state[name].cpu() for name in short.state_dict()})
        with torch.inference_mode():
            expected_1LD = encoder.cpu().hidden_states(ids_1L, deepest=num_layers)[-1]
            found = short(**name_inputs(encoder.config, ids_1L, None, None))
    except (KeyError, RuntimeError, ValueError, TypeError) as error:
        raise reason from error
    if not torch.allclose(found.last_hidden_state, expected_1LD, atol=1e-5, rtol=1e-4):
        raise reason
    return short


def _describe_modules(model: AnyEncoder, normalize: bool) -> dict[str, Any]:
    """Return what sentence-transformers reads, by file name."""
    paths = [path for path in _MODULES if normalize or path != "2_Normalize"]
    config = model.encoder.config
    is_ours = isinstance(model.encoder, Encoder)
    return {
        MODULES: [
            {
                "idx": index,
                "name": str(index),
                "path": path,
                "type": f"sentence_transformers.models.{_MODULES[path]}",
            }
            for index, path in enumerate(paths)
        ],
        "sentence_bert_config.json": {
            "max_seq_length": config.max_positions,
            "do_lower_case": False,
            # Nothing uses a pooler; of ours, transformers would report that it is missing.
            **({"model_args": {"add_pooling_layer": False}} if is_ours else {}),
        },
        "config_sentence_transformers.json": {
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        "1_Pooling/config.json": {
            "word_embedding_dimension": config.hidden_size,
            "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    }


def _write_card(model: AnyEncoder, number: int, normalize: bool) -> str:
    """Return README.md: what the vectors are, and how they are made."""
    config = model.encoder.config
    # The way to a folder here tells nobody else anything; its last parts may.
    telling = [
        part for part in Path(model.source.removeprefix(HUB)).parts if part not in ("/", "model")
    ]
    source = "/".join(telling[-2:])
    front = {
        **_read_inherited(model.source),
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["sentence-transformers", "feature-extraction", "metaxlm"],
    }
    scaled = ", scaled to length 1" if normalize else ""
    about = (
        f"Vectors of {config.hidden_size} numbers: the mean of layer {number} of "
        f"{config.num_layers} of `{source}` over all tokens of a text, special ones "
        f"included{scaled}. The encoder was not trained on pairs of sentences. Texts longer than "
        f"{config.max_positions} tokens are cut. Written by metaxlm {__version__}; it loads "
        "without it:"
    )
    return f"""---
{yaml.safe_dump(front, sort_keys=False, allow_unicode=True)}---

# Sentence vectors of {source}

{about}

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(FOLDER)
vectors = model.encode(["A text.", "Ein Text."])
print(model.similarity(vectors, vectors))
```
"""


def _read_inherited(source: str) -> dict[str, Any]:
    """Return the fields of the whole model's card that also hold here."""
    path = Path(source).expanduser() / "README.md"
    try:
        parts = read_text(path).split("---\n") if path.is_file() else []
        values = parse_yaml(parts[1], str(path))[1] if len(parts) > 2 and not parts[0] else None
    except MetaXLMError as error:
        say(f"note: {path}: {first_line(error)}; the new card has no language and no license")
        return {}
    if not isinstance(values, dict):
        return {}
    return {key: values[key] for key in _INHERITED if key in values}
