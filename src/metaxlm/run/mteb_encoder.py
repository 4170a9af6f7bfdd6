"""Let mteb evaluate any model of ours at any layer.

`MtebEncoder` implements mteb's `EncoderProtocol`. mteb is an optional dependency (`metaxlm[mteb]`):
only `mteb_model_meta` imports it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from metaxlm.errors import MetaXLMError
from metaxlm.hub import HUB
from metaxlm.model.sentence_modules import SentenceModules
from metaxlm.pretrain.distributed import choose_device
from metaxlm.probe.embedding import find_width
from metaxlm.probe.pool import parse_layer
from metaxlm.probe.sentence_evaluation import SentenceEncoder
from metaxlm.run.models import NamedModel, find_one_model, open_model, read_modules

if TYPE_CHECKING:
    import numpy as np
    from mteb.models import ModelMeta
    from numpy.typing import NDArray
    from torch import Tensor

_REVISION_DIGITS = 12


class MtebEncoder:
    """A model for `mteb.evaluate`: a path or hub id, as in `metaxlm.embed`.

    Without `layer`, a sentence-transformers folder gives its own vectors, and any other model the
    mean of its last layer. With `layer`, every model gives the mean of that layer, as `embed` does.
    Prompts and instructions of tasks are not used. mteb stores results by name, by `layer`, and by
    a revision that changes when the files of the model do.
    """

    def __init__(
        self,
        model: str | Path,
        revision: str | None = None,
        *,
        layer: int | str | None = None,
        device: str | None = None,
        **_: Any,
    ) -> None:
        self._named = find_one_model(str(model))
        self._revision = revision
        encoder = open_model(self._named)
        modules, choice = SentenceModules(), None
        if layer is None:
            modules = read_modules(self._named) or modules
        else:
            choice = parse_layer(layer, encoder.encoder.config.num_layers)
        chosen = choose_device(device or "auto")
        self._encoder = SentenceEncoder(self._named.name, encoder, modules, chosen, choice)

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any,
        hf_split: str = "",
        hf_subset: str = "",
        prompt_type: Any = None,
        **_: Any,
    ) -> NDArray[np.float32]:
        """Return the vectors of all texts, [N, D]; `embed_texts` makes batches by token counts."""
        del prompt_type
        texts: list[str] = []
        for batch in inputs:
            if "text" not in batch:
                found = ", ".join(sorted(batch))
                raise MetaXLMError(f"{task_metadata.name}: its inputs are {found}, not text")
            texts += batch["text"]
        title = " ".join(part for part in (task_metadata.name, hf_subset, hf_split) if part)
        return self._encoder.embed(texts, title).numpy()

    def similarity(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosine similarities between two sets of vectors, [N, M]."""
        first_ND, second_MD = _normalize(embeddings1), _normalize(embeddings2)
        return first_ND @ second_MD.T

    def similarity_pairwise(self, embeddings1: Any, embeddings2: Any) -> Tensor:
        """Return the cosine similarity of each pair of vectors, [N]."""
        return (_normalize(embeddings1) * _normalize(embeddings2)).sum(-1)

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """Describe the model for mteb's results."""
        try:
            from mteb.models import ModelMeta
            from mteb.models.model_meta import ScoringFunction
        except ModuleNotFoundError as error:
            raise MetaXLMError("mteb is not installed; run `pip install metaxlm[mteb]`") from error
        return ModelMeta.create_empty(
            self._describe() | {"similarity_fn_name": ScoringFunction.COSINE}
        )

    def _describe(self) -> dict[str, Any]:
        model, modules = self._encoder.model, self._encoder.modules
        config, layer = model.encoder.config, self._encoder.layer
        return {
            "name": _name_model(self._named),
            "revision": self._revision or self._named.fingerprint[:_REVISION_DIGITS],
            "n_parameters": sum(value.numel() for value in model.encoder.parameters()),
            "embed_dim": find_width(model, modules),
            "max_tokens": min(modules.max_length or config.max_positions, config.max_positions),
            "framework": ["PyTorch"],
            "use_instructions": False,
            "experiment_kwargs": None if layer is None else {"layer": str(layer)},
        }


def _normalize(vectors: Any) -> Tensor:
    return F.normalize(torch.as_tensor(vectors).float(), dim=-1)


def _name_model(model: NamedModel) -> str:
    """Return a name with an organization, which mteb requires."""
    name = model.source.removeprefix(HUB) if isinstance(model.source, str) else ""
    return name if "/" in name else f"metaxlm/{model.name}"
