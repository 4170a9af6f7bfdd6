"""The choice of an aligner: settings come in, and with two sentences' states links go out.

One face for the paper's optimal transport (Section 4.4) and the methods it is compared with, so
that what follows does not ask which of them it has. Shapes: B pairs, S source units, T target
units, D hidden.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from torch import Tensor

from metaxlm.errors import MetaXLMError
from metaxlm.probe.linking import (
    Decision,
    Masks,
    compare_units,
    link_argmax,
    link_itermax,
    link_match,
    link_softmax,
)
from metaxlm.probe.sinkhorn import link_sinkhorn
from metaxlm.probe.transport import link_transport

Method = Literal["transport", "sinkhorn", "argmax", "itermax", "match", "softmax"]
Encoding = Literal["joint", "separate"]
WordRule = Literal["any", "first", "mean"]


@dataclass(frozen=True)
class AlignSettings:
    """How words are linked; the defaults are the paper's, and the other methods' their authors'."""

    method: Method = "transport"
    """`transport`: the paper's; `sinkhorn`: entropic transport; `argmax`, `itermax`, `match`:
    SimAlign's; `softmax`: awesome-align's."""
    encoding: Encoding = "joint"
    """`joint`: one sequence `<s> source </s> target </s>`; `separate`: each side by itself."""
    words: WordRule = "any"
    """`any`: linked pieces link their words; `first`: only first pieces are compared; `mean`: a
    word is the mean of its pieces."""
    iterations: int = 2
    """Of `transport`."""
    temperature: float = 0.1
    """Of `sinkhorn`: the weight of the entropy; small ones are sharp and slow."""
    tolerance: float = 1e-7
    """Of `sinkhorn`: largest error of a column's mass."""
    max_iterations: int = 1_000
    """Of `sinkhorn`."""
    share: float = 0.0
    """Of `sinkhorn`: least share of their mass that linked units move between each other."""
    distortion: float = 0.0
    """Of `argmax`, `itermax` and `match`: what units at opposite ends of their sentences lose."""
    alpha: float = 0.9
    """Of `itermax`: what similarities to linked units count in later passes."""
    passes: int = 2
    """Of `itermax`."""
    threshold: float = 1e-3
    """Of `softmax`: least probability in both directions."""

    def __post_init__(self) -> None:
        kinds = {"method": Method, "encoding": Encoding, "words": WordRule}
        for name, kind in kinds.items():
            if getattr(self, name) not in get_args(kind):
                known = ", ".join(get_args(kind))
                raise MetaXLMError(f"alignment: {name} is {getattr(self, name)!r}; known: {known}")
        for name in ("iterations", "max_iterations", "passes"):
            if getattr(self, name) < 1:
                raise MetaXLMError(f"alignment: {name} is {getattr(self, name)}; use 1 or more")
        for name in ("temperature", "tolerance"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise MetaXLMError(
                    f"alignment: {name} is {getattr(self, name)}; use a positive number"
                )
        for name in ("share", "distortion", "alpha", "threshold"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise MetaXLMError(f"alignment: {name} is {getattr(self, name)}; use 0 to 1")


PAPER = AlignSettings()
"""The preset of the paper's Section 4.4."""


def link_units(
    source_BSD: Tensor, target_BTD: Tensor, masks: Masks, settings: AlignSettings
) -> Decision:
    """Link the units of both sides by the method that the settings name."""
    if settings.method == "transport":
        return link_transport(source_BSD, target_BTD, masks, settings.iterations)
    if settings.method == "sinkhorn":
        return link_sinkhorn(
            source_BSD,
            target_BTD,
            masks,
            temperature=settings.temperature,
            tolerance=settings.tolerance,
            max_iterations=settings.max_iterations,
            threshold=settings.share,
        )
    if settings.method == "softmax":
        return link_softmax(source_BSD, target_BTD, masks, settings.threshold)
    similarity_BST = compare_units(source_BSD, target_BTD, masks, settings.distortion)
    if settings.method == "argmax":
        return link_argmax(similarity_BST)
    if settings.method == "itermax":
        return link_itermax(similarity_BST, masks, settings.alpha, settings.passes)
    return link_match(similarity_BST, masks)
