"""Word links as lines of text: Pharaoh, Talp and the gold format come in, Pharaoh and Talp go out.

One line a sentence pair. Pharaoh, as most aligners write: `0-0 1-2`, words counted from 0. Talp, as
gold sets are published: `1-1 2-3`, counted from 1. In both a possible link of a gold set (the P of
the alignment error rate in the paper's Section 4.4) has a `p` or `?` in place of the hyphen, and a
sure one may have an `s`. The third format, `naacl`, is that of the paper's four sets: one line a
link, `sentence source target [S|P]`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from metaxlm.errors import MetaXLMError
from metaxlm.files import STANDARD
from metaxlm.finetune.readers import Link
from metaxlm.finetune.readers.lines import open_input
from metaxlm.finetune.readers.parallel import AlignedPair, read_naacl_links
from metaxlm.probe.pair_files import SentencePair

LinkFormat = Literal["pharaoh", "talp"]
GoldFormat = Literal["pharaoh", "talp", "naacl"]

_FIRST_NUMBER: dict[LinkFormat, int] = {"pharaoh": 0, "talp": 1}
_LINK = re.compile(r"(\d{1,9})([-spSP?])(\d{1,9})", re.ASCII)
_POSSIBLE = frozenset("pP?")


@dataclass(frozen=True)
class LinkLine:
    """The links of one sentence pair, counted from 0."""

    sure: frozenset[Link]
    possible: frozenset[Link]
    """All links that are not wrong; the sure ones are among them."""


def format_links(
    links: Collection[Link], layout: LinkFormat = "pharaoh", possible: Collection[Link] = ()
) -> str:
    """Return the line of one sentence pair, in the order of the words; possible links with `p`."""
    first = _FIRST_NUMBER[layout]
    certain = set(links)
    return " ".join(
        f"{i + first}{'-' if (i, j) in certain else 'p'}{j + first}"
        for i, j in sorted(certain.union(possible))
    )


def parse_links(line: str, layout: LinkFormat, where: str) -> LinkLine:
    """Read the line of one sentence pair; `where` names it in messages. No link is an empty line.

    A link that stands there twice counts once, and as sure if it is sure once.
    """
    first = _FIRST_NUMBER[layout]
    sure: set[Link] = set()
    possible: set[Link] = set()
    for field in line.split():
        match = _LINK.fullmatch(field)
        if match is None:
            raise MetaXLMError(
                f"{where}: {field!r} is no link; expected as `{first}-{first}`, or "
                f"`{first}p{first}` for a possible one"
            )
        i, j = int(match[1]) - first, int(match[3]) - first
        if i < 0 or j < 0:
            raise MetaXLMError(
                f"{where}: {field!r}, but Talp counts words from 1; a file that counts from 0 is "
                "of the format pharaoh"
            )
        possible.add((i, j))
        if match[2] not in _POSSIBLE:
            sure.add((i, j))
    return LinkLine(frozenset(sure), frozenset(possible))


def read_links(path: str, layout: LinkFormat = "pharaoh") -> Iterator[LinkLine]:
    """Yield the links of each line of a file; `-` is the standard input."""
    with open_input(path) as lines:
        for number, line in lines:
            yield parse_links(line, layout, f"{lines.name}:{number}")


def read_gold(
    path: str, layout: GoldFormat, pairs: Sequence[SentencePair], name: str
) -> tuple[AlignedPair, ...]:
    """Read gold links for sentence pairs; `name` is what messages call the pairs' file."""
    if layout == "naacl":
        if path == STANDARD:
            raise MetaXLMError("--gold -: the format naacl cannot be read from standard input")
        gold = read_naacl_links(Path(path), name, [(pair.source, pair.target) for pair in pairs])
    else:
        gold = _read_gold_lines(path, layout, pairs, name)
    if not any(pair.sure for pair in gold):
        raise MetaXLMError(f"{path}: no sure link in it, and no score without one")
    return tuple(gold)


def _read_gold_lines(
    path: str, layout: LinkFormat, pairs: Sequence[SentencePair], name: str
) -> list[AlignedPair]:
    reading = read_links(path, layout)
    gold: list[AlignedPair] = []
    for pair, links in zip(pairs, reading, strict=False):
        where = f"{path}:{len(gold) + 1}"
        _check_range(links.possible, pair, layout, where)
        gold.append(AlignedPair(pair.source, pair.target, links.sure, links.possible))
    num_lines = len(gold) + sum(1 for _ in reading)
    if num_lines != len(pairs):
        raise MetaXLMError(
            f"{path}:{num_lines}: has {num_lines} lines of links, {name} has {len(pairs)} pairs; "
            "a pair without links has an empty line"
        )
    return gold


def _check_range(
    links: Collection[Link], pair: SentencePair, layout: LinkFormat, where: str
) -> None:
    """Refuse links to words that the sentences do not have."""
    sizes = len(pair.source), len(pair.target)
    outside = [link for link in sorted(links) if link[0] >= sizes[0] or link[1] >= sizes[1]]
    if not outside:
        return
    first = _FIRST_NUMBER[layout]
    i, j = (number + first for number in outside[0])
    raise MetaXLMError(
        f"{where}: link {i}-{j} lies outside the {sizes[0]} and {sizes[1]} words of its pair; "
        f"{layout.capitalize()} counts from {first}, source words first"
    )
