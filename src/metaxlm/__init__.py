"""metaxlm: turn a strong monolingual encoder into a cross-lingual one; measure what it gained."""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from metaxlm.errors import MetaXLMError

if TYPE_CHECKING:
    from metaxlm.api import (
        MtebEncoder,
        align,
        embed,
        evaluate,
        load_results,
        make_dictionary,
        match,
        mine,
    )

try:
    __version__ = version("metaxlm")
except PackageNotFoundError:  # a checkout on the path, not installed
    __version__ = "0+checkout"

__all__ = [
    "MetaXLMError", "MtebEncoder", "__version__", "align", "embed", "evaluate", "load_results",
    "make_dictionary", "match", "mine",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import the functions of `metaxlm.api` on first use; most of them need torch."""
    if name == "load_results":  # this and the next one need no torch
        from metaxlm.analysis.results import load_results

        return load_results
    if name == "make_dictionary":
        from metaxlm.dictionary.making import make_dictionary

        return make_dictionary
    if name in __all__:
        from metaxlm import api

        return getattr(api, name)
    raise AttributeError(f"module 'metaxlm' has no attribute {name!r}")
