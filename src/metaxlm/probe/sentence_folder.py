"""Export an encoder as a sentence-transformers folder.

The vectors are those of `embed_texts` (the paper's Section 4.4): the mean over all tokens of one
layer. sentence-transformers pools the last layer, so the folder's encoder ends with the chosen one.
The folder needs no code of this package, and transformers' `AutoModel` loads it too.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from metaxlm import __version__
from metaxlm.errors import MetaXLMError
from metaxlm.files import dump_json, write_json
from metaxlm.hub import CONFIG, HUB, MODULES
from metaxlm.manifest import atomic_folder
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.model.encoder import Encoder
from metaxlm.model.extras import describe_pooler
from metaxlm.model.foreign import ForeignEncoder, name_inputs, quiet_transformers
from metaxlm.model.front_matter import describe_sentence_encoder, write_front_matter
from metaxlm.model.huggingface import export_encoder, write_tokenizer
from metaxlm.model.masked_lm import make_encoder
from metaxlm.model.model_folder import SENTENCE_SETTINGS, WEIGHTS, save_file
from metaxlm.probe.pool import LayerChoice

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_MODULES = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}


def export_sentence_transformers(
    model: AnyEncoder,
    folder: Path,
    layer: LayerChoice | None = None,
    *,
    normalize: bool = False,
    pooling: Literal["mean", "cls"] = "mean",
    max_length: int | None = None,
    card: str | None = None,
) -> None:
    """Write a folder for `SentenceTransformer(folder)` atomically; `layer` defaults to the last.

    Texts are cut to `max_length` tokens, by default to the encoder's positions.
    """
    number = _choose_number(model, layer)
    config = model.encoder.config
    with atomic_folder(folder) as temporary:
        if isinstance(model.encoder, ForeignEncoder):
            body = _cut_foreign(model.encoder, number)
            with quiet_transformers():
                state = {name: v.detach().cpu().clone() for name, v in body.state_dict().items()}
                body.save_pretrained(temporary, state_dict=state)
        else:
            if config.rotary is not None and number < config.num_layers:
                raise _ends_otherwise(number, config.family)  # a LayerNorm follows the last layer
            # The short encoder shares its parameters with the whole one.
            with torch.device("meta"):
                short = make_encoder(replace(config, num_layers=number))
            state = {name: model.encoder.state_dict()[name] for name in short.state_dict()}
            short.load_state_dict(state, assign=True)
            tensors, values = export_encoder(short.eval(), model.tokenizer)
            save_file(tensors, temporary / WEIGHTS, metadata={"format": "pt"})
            write_json(temporary / CONFIG, values)
        has_types = config.num_token_types > 1
        write_tokenizer(temporary, model.tokenizer, config.max_positions, has_token_types=has_types)
        length = min(max_length or config.max_positions, config.max_positions)
        described = _describe_modules(model, normalize, pooling, length)
        files = {name: dump_json(values) for name, values in described.items()}
        files["README.md"] = card or _write_card(model, number, normalize, pooling, max_length)
        for name, text in files.items():
            (temporary / name).parent.mkdir(exist_ok=True)
            (temporary / name).write_text(text, encoding="utf-8", newline="\n")


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


def _ends_otherwise(number: int, family: str) -> MetaXLMError:
    return MetaXLMError(
        f"layer {number}: a {family} model that ends there has other "
        "hidden states than the whole one; choose the last layer, or use `metaxlm embed`"
    )


def _cut_foreign(encoder: ForeignEncoder, num_layers: int) -> PreTrainedModel:
    """Return transformers' model with fewer layers; raise an error if its last states differ."""
    if num_layers == encoder.config.num_layers:
        return encoder.body
    reason = _ends_otherwise(num_layers, encoder.body.config.model_type)
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


def _describe_modules(
    model: AnyEncoder, normalize: bool, pooling: str, max_length: int
) -> dict[str, Any]:
    config = model.encoder.config
    modules = [
        {"idx": k, "name": str(k), "path": path, "type": f"sentence_transformers.models.{name}"}
        for k, (path, name) in enumerate(_MODULES.items())
    ]
    modes = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")
    chosen = {"cls": "cls_token", "mean": "mean_tokens"}[pooling]
    return {
        MODULES: modules if normalize else modules[:2],
        SENTENCE_SETTINGS: {
            "max_seq_length": max_length,
            "do_lower_case": False,
            **(describe_pooler(config.family) if isinstance(model.encoder, Encoder) else {}),
        },
        "config_sentence_transformers.json": {
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        "1_Pooling/config.json": {
            "word_embedding_dimension": config.hidden_size,
            **{f"pooling_mode_{mode}": mode == chosen for mode in modes},
        },
    }


def _write_card(
    model: AnyEncoder, number: int, normalize: bool, pooling: str, max_length: int | None
) -> str:
    config = model.encoder.config
    pooled = "mean" if pooling == "mean" else "state of the first token"
    scope = " over all tokens of a text, special ones included" if pooling == "mean" else ""
    # A limit is known for sentence encoders only.
    trained = "" if max_length else "The encoder was not trained on pairs of sentences. "
    # Only the last parts of a path: the rest of it means nothing on other machines.
    parts = Path(model.source.removeprefix(HUB)).parts
    source = "/".join([part for part in parts if part not in ("/", "model")][-2:])
    front = write_front_matter(describe_sentence_encoder(model.source))
    scaled = ", scaled to length 1" if normalize else ""
    about = (
        f"Vectors of {config.hidden_size} numbers: the {pooled} of layer {number} of "
        f"{config.num_layers} of `{source}`{scope}{scaled}. {trained}Texts longer than "
        f"{max_length or config.max_positions} tokens are cut. Written by metaxlm "
        f"{__version__}; it loads without it:"
    )
    return f"""{front}
# Sentence vectors of {source}

{about}

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(FOLDER)
vectors = model.encode(["A text.", "Ein Text."])
print(model.similarity(vectors, vectors))
```
"""
