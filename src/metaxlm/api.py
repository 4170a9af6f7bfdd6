"""Functions of `import metaxlm`: what the commands do, for use in Python.

A model is a path or a hub id, as in `--model`: a Hugging Face folder, a variant of a run such as
`runs/demo/variants/xlm`, or a name such as `xlm-roberta-base`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from metaxlm.analysis.results import load_results
from metaxlm.dictionary.making import make_dictionary
from metaxlm.finetune.readers.input_lines import split_at_spaces
from metaxlm.init.start import match
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.pretrain.distributed import choose_device
from metaxlm.probe.aligners import AlignSettings
from metaxlm.probe.alignment import align_words
from metaxlm.probe.corrections import Corrections
from metaxlm.probe.embedding import MEAN, EmbedOptions, embed_texts
from metaxlm.probe.pool import LayerChoice, default_layer, parse_layer
from metaxlm.probe.retrieval import Margin, mine_pairs
from metaxlm.probe.retrieval_io import find_own_vectors
from metaxlm.run.models import open_one_model
from metaxlm.run.mteb_encoder import MtebEncoder
from metaxlm.run.standalone import evaluate_models

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pandas import DataFrame

__all__ = [
    "MtebEncoder", "align", "embed", "evaluate", "load_results", "make_dictionary", "match", "mine",
]  # fmt: skip

Text = str | Sequence[str]


def embed(
    model: str | Path | AnyEncoder,
    texts: Sequence[str],
    *,
    layer: int | str | None = None,
    sif: bool = False,
    center: bool = False,
    remove_components: int = 0,
    device: str = "auto",
) -> NDArray[np.float32]:
    """Return sentence vectors as an array [texts, numbers].

    With a layer, they are the means of its hidden states: 0 is the embedding output, -1 the last
    layer, and `6..8` the mean of three layers. If `layer` is None, a sentence-transformers folder
    gives its own vectors, and another encoder those of the last layer. `sif` weights tokens by
    their frequency in the texts, `center` subtracts the mean vector, `remove_components` removes
    the first principal components; they need the texts of one language in each call.
    """
    encoder = _load(model)
    modules = find_own_vectors(encoder) if layer is None else None
    options: EmbedOptions = {
        "layers": _open(encoder, -1 if layer is None else layer)[1],
        "modules": modules or MEAN,
        "corrections": Corrections(sif, center, remove_components),
    }
    vectors = embed_texts(encoder, texts, choose_device(device), **options)
    return vectors[0].numpy()


def align(
    model: str | Path | AnyEncoder,
    pairs: Sequence[tuple[Text, Text]],
    *,
    layer: int | str | None = None,
    method: Literal["transport", "sinkhorn", "argmax", "itermax", "match", "softmax"] = "transport",
    device: str = "auto",
) -> list[list[tuple[int, int]]]:
    """Return the linked words of each sentence pair as (source word, target word), from 0.

    A sentence is a list of words, or text with spaces between words.
    """
    encoder, layers = _open(model, layer)
    words = [(_split(first), _split(second)) for first, second in pairs]
    settings = AlignSettings(method=method)
    links = align_words(encoder, words, choose_device(device), settings=settings, layers=layers)
    return [sorted(found) for found in links[0]]


def mine(
    model: str | Path | AnyEncoder,
    source: Sequence[str],
    target: Sequence[str],
    *,
    layer: int | str | None = None,
    margin: Margin = "ratio",
    threshold: float | None = None,
    sif: bool = False,
    center: bool = False,
    remove_components: int = 0,
    device: str = "auto",
) -> DataFrame:
    """Find translations in two lists of sentences; return the pairs, best first.

    The columns `source` and `target` are positions in the lists, `score` is the margin over the
    nearest neighbors; only the 4 nearest neighbors of a sentence are candidates. If `layer` is
    None, a sentence-transformers folder gives its own vectors, and another encoder those of the
    layer at two thirds of the depth. `sif`, `center` and `remove_components` are those of `embed`,
    for each list.
    """
    import pandas as pd

    encoder = _load(model)
    chosen = choose_device(device)
    options: EmbedOptions = {"corrections": Corrections(sif, center, remove_components)}
    modules = find_own_vectors(encoder) if layer is None else None
    options["layers"] = _open(encoder, layer if modules is None else -1)[1]
    options["modules"] = modules or MEAN
    sides = [embed_texts(encoder, side, chosen, **options)[0] for side in (source, target)]
    k = min(4, len(source), len(target))
    found = mine_pairs(*sides, margin=margin, k=k, threshold=threshold, device=chosen)
    columns = {"score": found.score_P, "source": found.source_P, "target": found.target_P}
    return pd.DataFrame({name: values.numpy() for name, values in columns.items()})


def evaluate(
    models: str | Sequence[str],
    tasks: str | Sequence[str],
    *,
    data: str | Path | None = None,
    output: str | Path = "evaluation",
    device: str = "auto",
    **options: Any,
) -> DataFrame:
    """Finetune and test models on tasks; return the scores as `load_results` does.

    Tasks are names such as `xnli`, `xtreme`, `tatoeba` or `alignment`, or YAML files. Complete jobs
    in `output` are not repeated. Further options are those of `metaxlm evaluate`: `seeds`,
    `languages`, `sources`, `select`, `settings`, `keep_models`, `limit`.
    """
    models, tasks = ([names] if isinstance(names, str) else names for names in (models, tasks))
    folder = None if data is None else Path(data)
    evaluate_models(models, tasks, folder, Path(output), choose_device(device), **options)
    return load_results(Path(output))


def _load(model: str | Path | AnyEncoder) -> AnyEncoder:
    return model if isinstance(model, AnyEncoder) else open_one_model(str(model))


def _open(
    model: str | Path | AnyEncoder, layer: int | str | None
) -> tuple[AnyEncoder, tuple[LayerChoice, ...]]:
    encoder = _load(model)
    depth = encoder.encoder.config.num_layers
    return encoder, default_layer(depth) if layer is None else (parse_layer(layer, depth),)


def _split(side: Text) -> tuple[str, ...]:
    return split_at_spaces(side) if isinstance(side, str) else tuple(side)
