"""The one model that a command uses, named as `metaxlm evaluate --model` names several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from metaxlm.errors import MetaXLMError

if TYPE_CHECKING:
    from metaxlm.model.any_encoder import AnyEncoder

ModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        help="An encoder: a variant or checkpoint of a run, a Hugging Face folder or a hub id.",
    ),
]


def open_one_model(path: str) -> AnyEncoder:
    """Load the encoder that a path or hub id stands for; refuse one that stands for several."""
    from metaxlm.run.models import find_models, open_model

    found = find_models(path)
    if len(found) > 1:
        sources = ", ".join(str(model.source).removesuffix("/model") for model in found[:3])
        more = ", ..." if len(found) > 3 else ""
        raise MetaXLMError(f"{path}: stands for {len(found)} models; name one: {sources}{more}")
    return open_model(found[0])
