"""Files of word alignment: sentence pairs, links, gold links, and alignment of whole files.

Pairs are lines `source ||| target`, lines with a tab, or line k of one file with line k of another.
Links are one line per pair: Pharaoh `0-0 1-2` counts words from 0, Talp `1-1 2-3` from 1. A
possible link (the P of the alignment error rate) has `p` or `?` in place of the hyphen, a sure one
may have `s`. In the format `naacl` of the paper's gold sets, a line is one link: `sentence source
target [S|P]`. Files are streamed.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from metaxlm.errors import MetaXLMError
from metaxlm.files import STANDARD, open_output
from metaxlm.finetune.readers import Link
from metaxlm.finetune.readers.input_lines import open_input, split_at_spaces
from metaxlm.finetune.readers.parallel import AlignedPair, read_naacl_links, tolerate_outside
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.aligners import PAPER, AlignSettings
from metaxlm.probe.alignment import align_words
from metaxlm.probe.pair_states import Links
from metaxlm.probe.pool import LayerChoice
from metaxlm.scripts import UNSPACED, find_script

Split = Literal["spaces", "characters"]  # also split at each character of unspaced scripts
LinkFormat = Literal["pharaoh", "talp"]
GoldFormat = Literal["pharaoh", "talp", "naacl"]

CHUNK = 16_384  # pairs in memory at a time
_FIRST_NUMBER: dict[LinkFormat, int] = {"pharaoh": 0, "talp": 1}
_LINK = re.compile(r"(\d{1,9})([-spSP?])(\d{1,9})", re.ASCII)
_BARS = re.compile(r"(?<!\S)\|\|\|(?!\S)")


@dataclass(frozen=True)
class SentencePair:
    """Two sentences, as text and in words."""

    source_text: str
    target_text: str
    source: tuple[str, ...]
    target: tuple[str, ...]


Aligned = tuple[SentencePair, Links]


class LinkLine(NamedTuple):
    """The links of one sentence pair, counted from 0; the sure ones are among the possible."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class PairFiles:
    """The files of sentence pairs: one with both sides, or one per side; `-` is standard input."""

    source: str
    target: str | None = None
    split: Split = "spaces"

    def __post_init__(self) -> None:
        if self.source == self.target == STANDARD:
            raise MetaXLMError("--source and --target: only one of them can be standard input")

    @property
    def names(self) -> list[str]:
        """The names of the files."""
        paths = [path for path in (self.source, self.target) if path is not None]
        return ["standard input" if path == STANDARD else path for path in paths]

    @property
    def name(self) -> str:
        """The name of both files in messages."""
        return " and ".join(self.names)

    def __iter__(self) -> Iterator[SentencePair]:
        pairs = self._read_joined() if self.target is None else self._read_parallel(self.target)
        pair = None
        for pair in pairs:
            source, target = (side.strip(" \t") for side in pair)
            words = split_words(source, self.split), split_words(target, self.split)
            yield SentencePair(source, target, *words)
        if pair is None:
            raise MetaXLMError(f"{self.name}:1: no sentence pair; write one on each line")

    def count(self) -> int | None:
        """Check and count all lines before hours of work; None for standard input."""
        return None if STANDARD in (self.source, self.target) else sum(1 for _ in self)

    def _read_joined(self) -> Iterator[tuple[str, str]]:
        separator = ""
        with open_input(self.source) as lines:
            for number, line in lines:
                if not separator:  # of the first line; if it has both, the file's name decides
                    has_bars = _BARS.search(line) and not self.source.lower().endswith(".tsv")
                    separator = "tab" if "\t" in line and not has_bars else "|||"
                sides = _BARS.split(line) if separator == "|||" else line.split("\t")
                if not line.strip():
                    fault = "the line is empty; every line is a pair"
                elif len(sides) == 1:
                    fault = f"no {separator} between two sentences; write `source ||| target` on "
                    fault += "every line, or put a tab there on every line"
                elif len(sides) > 2:
                    fault = f"{len(sides)} columns with {separator} between; a pair has two"
                elif not all(map(str.strip, sides)):
                    name = "target" if sides[0].strip() else "source"
                    fault = f"the {name} side is empty; drop such pairs"
                else:
                    yield sides[0], sides[1]
                    continue
                raise MetaXLMError(f"{lines.name}:{number}: {fault}")

    def _read_parallel(self, target: str) -> Iterator[tuple[str, str]]:
        with open_input(self.source) as lines, open_input(target) as others:
            names = lines.name, others.name
            remaining = zip_longest(lines, others)
            for line, other in remaining:
                if line is None or other is None:
                    short, long = names if line is None else names[::-1]
                    number = (line or other)[0] - 1
                    total = number + 1 + sum(1 for _ in remaining)
                    raise MetaXLMError(
                        f"{short}:{number}: has {number} lines, {long} has {total}; parallel files "
                        "need equally many"
                    )
                pair = line[1], other[1]
                for name, text in zip(names, pair, strict=True):
                    if not text.strip():
                        fault = "the line is empty; every line is a sentence"
                        raise MetaXLMError(f"{name}:{line[0]}: {fault}")
                yield pair


def split_words(text: str, split: Split) -> tuple[str, ...]:
    """Split at spaces, or at white space and each character, with marks, of unspaced scripts."""
    if split == "spaces" or text.isascii():
        return split_at_spaces(text)
    parts: list[str] = []
    for word in text.split():
        was_word = True
        for place, character in enumerate(word):
            is_mark = place > 0 and unicodedata.category(character).startswith("M")
            is_word = was_word if is_mark else _is_word(character)
            if not is_mark and (is_word or was_word):
                parts.append(character)
            else:
                parts[-1] += character
            was_word = is_word
    return tuple(parts)


def _is_word(character: str) -> bool:
    if character.isascii():
        return False
    if find_script(character) in UNSPACED:
        return True
    # The punctuation of such scripts is wide.
    is_wide = unicodedata.east_asian_width(character) in "WF"
    return is_wide and unicodedata.category(character).startswith(("P", "S"))


def format_links(
    links: Collection[Link], layout: LinkFormat = "pharaoh", possible: Collection[Link] = ()
) -> str:
    """Return the line of one sentence pair, in the order of the words; possible links with `p`."""
    first, sure = _FIRST_NUMBER[layout], set(links)
    return " ".join(
        f"{i + first}{'-' if (i, j) in sure else 'p'}{j + first}"
        for i, j in sorted(sure.union(possible))
    )


def parse_links(line: str, layout: LinkFormat, where: str) -> LinkLine:
    """Parse the line of one sentence pair; `where` names it in messages."""
    first = _FIRST_NUMBER[layout]
    sure, possible = set[Link](), set[Link]()
    for field in line.split():
        match = _LINK.fullmatch(field)
        if match is None:
            raise MetaXLMError(
                f"{where}: {field!r} is not a link; expected as `{first}-{first}`, or "
                f"`{first}p{first}` for a possible one"
            )
        i, j = int(match[1]) - first, int(match[3]) - first
        if i < 0 or j < 0:
            raise MetaXLMError(
                f"{where}: {field!r}, but Talp counts words from 1; a file that counts from 0 is "
                "of the format pharaoh"
            )
        possible.add((i, j))
        if match[2] not in "pP?":
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
    """Read gold links for sentence pairs; `name` is the name of the pairs' file in messages."""
    if layout == "naacl":
        if path == STANDARD:
            raise MetaXLMError("--gold -: the format naacl cannot be read from standard input")
        gold = read_naacl_links(Path(path), name, [(pair.source, pair.target) for pair in pairs])
    else:
        gold, outside, num_links = [], list[str](), 0
        reader = read_links(path, layout)
        for pair, links in zip(pairs, reader, strict=False):
            num_links += len(links.possible)
            where = f"{path}:{len(gold) + 1}"
            kept = _drop_outside(links, pair, layout, where, outside)
            gold.append(AlignedPair(pair.source, pair.target, *kept))
        num_lines = len(gold) + sum(1 for _ in reader)
        if num_lines != len(pairs):
            raise MetaXLMError(
                f"{path}:{num_lines}: has {num_lines} lines of links, {name} has {len(pairs)} "
                "pairs; a pair without links has an empty line"
            )
        hint = f"{layout.capitalize()} counts from {_FIRST_NUMBER[layout]}, source words first"
        tolerate_outside(outside, num_links, hint)
    if not any(pair.sure for pair in gold):
        raise MetaXLMError(f"{path}: no sure link in it, and no score without one")
    return tuple(gold)


def _drop_outside(
    links: LinkLine, pair: SentencePair, layout: LinkFormat, where: str, outside: list[str]
) -> LinkLine:
    """Return the links between words of a pair; describe the others in `outside`."""
    sizes, first = (len(pair.source), len(pair.target)), _FIRST_NUMBER[layout]
    wrong = {(i, j) for i, j in links.possible if i >= sizes[0] or j >= sizes[1]}
    outside += [
        f"{where}: link {i + first}-{j + first} is outside the {sizes[0]} and {sizes[1]} words of "
        "its pair"
        for i, j in sorted(wrong)
    ]
    return LinkLine(links.sure - wrong, links.possible - wrong)


def align_stream(
    model: AnyEncoder,
    pairs: Iterable[SentencePair],
    device: torch.device | None = None,
    *,
    layer: LayerChoice,
    settings: AlignSettings = PAPER,
) -> Iterator[Aligned]:
    """Yield each pair with its links, in order, from a stream that may not fit into memory."""
    stream = iter(pairs)
    first = 1
    while chunk := list(islice(stream, CHUNK)):
        words = [(pair.source, pair.target) for pair in chunk]
        title = "align" if first == 1 else f"align from pair {first:,}"
        (links,) = align_words(
            model, words, device, settings=settings, layers=[layer], title=title, first_number=first
        )
        yield from zip(chunk, links, strict=True)
        first += len(chunk)


def write_aligned(
    aligned: Iterable[Aligned], target: str, layout: LinkFormat = "pharaoh"
) -> Iterator[Aligned]:
    """Write the links of each pair and yield it; the file appears after the last pair."""
    with open_output(target) as file:
        for pair, links in aligned:
            file.write(format_links(links, layout) + "\n")
            yield pair, links


def align_file(
    model: AnyEncoder,
    files: PairFiles,
    target: str,
    device: torch.device | None = None,
    *,
    layer: LayerChoice,
    settings: AlignSettings = PAPER,
    layout: LinkFormat = "pharaoh",
) -> int:
    """Align checked pairs into a file of links (`-` is standard output); return their number."""
    files.count()
    aligned = align_stream(model, files, device, layer=layer, settings=settings)
    return sum(1 for _ in write_aligned(aligned, target, layout))
