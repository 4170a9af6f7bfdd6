"""Two sides to search: text or vector files come in, vectors by layer with their lines go out.

For the paper's retrieval (Section 4.4) on files of one's own. A side is a text a line, which a
model embeds, or a `.npy` or `.parquet` file of `metaxlm embed`. Gold pairs are lines of two line
numbers, or of two ids where the texts have ids before a tab, as in BUCC's files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from metaxlm.errors import MetaXLMError
from metaxlm.files import STANDARD
from metaxlm.finetune.readers import read_lines
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.embedding import EmbedSettings, embed_stream
from metaxlm.probe.layers import LayerChoice, parse_layers
from metaxlm.probe.sentence_files import SentenceFile, open_sentences
from metaxlm.probe.vector_files import ENDINGS, open_npy, read_vectors
from metaxlm.probe.vector_side import Vectors
from metaxlm.progress import say, track


@dataclass
class SearchSide:
    """One side: its lines if it is a text, its vectors once they are there."""

    name: str
    sentences: SentenceFile | None
    """None of a file of vectors."""
    texts: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    """What lines are called; empty if they are counted."""
    vectors: list[Vectors] = field(default_factory=list)
    """One table for each chosen layer."""

    def __len__(self) -> int:
        return len(self.vectors[0]) if self.vectors else len(self.texts)

    def describe(self, row: int) -> str:
        """Return the text of a row, or its number (from 1) in a file of vectors."""
        return self.texts[row].replace("\t", " ") if self.texts else str(row + 1)


@dataclass(frozen=True)
class SearchRequest:
    """What the user said about both sides."""

    sources: tuple[str, str]
    layer: str | None
    """None is two thirds of the depth, or all layers."""
    specials: bool = True
    batch_tokens: int = 16_384
    has_ids: bool = False
    is_parallel: bool = False
    """Whether line i of one side belongs to line i of the other."""
    takes_several: bool = False
    """Whether several layers make sense; then no layer means all of them."""


@dataclass
class SearchSides:
    """Both sides, and what the layers of their vectors are called."""

    first: SearchSide
    second: SearchSide
    request: SearchRequest
    layers: tuple[str, ...] = ()

    def embed(self, open_model: Callable[[], AnyEncoder] | None, device: torch.device) -> None:
        """Let a model turn the texts into vectors; there is nothing to do for vectors."""
        texts = [side for side in (self.first, self.second) if side.sentences is not None]
        if not texts:
            return
        assert open_model is not None, "open_sides has checked it"
        model = open_model()
        layers = _choose_layers(self.request, model.encoder.config.num_layers)
        _check_several(self.request, len(layers))
        for side in texts:
            _embed_side(side, model, layers, self.request, device)
        self.layers = tuple(str(choice) for choice in layers)
        first, second = self.first, self.second
        if len(first.vectors) != len(second.vectors):
            raise MetaXLMError(
                f"{first.name} has {len(first.vectors)} layers and {second.name} "
                f"{len(second.vectors)}; choose with --layer"
            )


@contextmanager
def open_sides(request: SearchRequest, *, has_model: bool) -> Iterator[SearchSides]:
    """Read and check both files; `embed` is then to turn texts into vectors."""
    with ExitStack() as stack:
        first, second = (_open_side(source, stack, request) for source in request.sources)
        texts = [side for side in (first, second) if side.sentences is not None]
        if texts and not has_model:
            raise MetaXLMError(f"{texts[0].name}: a text needs --model to become vectors")
        names: tuple[str, ...] = ()
        for side in (first, second):
            if side.sentences is None:
                names = _read_side(side, request, is_alone=not texts)
        if request.is_parallel and len(first) != len(second):
            raise MetaXLMError(
                f"{first.name}:{len(first)}: has {len(first):,} lines, {second.name} has "
                f"{len(second):,}; parallel files need equally many"
            )
        yield SearchSides(first, second, request, names)


def read_gold_pairs(path: Path, sides: SearchSides) -> list[tuple[int, int]]:
    """Read the true pairs, `source TAB target` a line, and return rows counted from 0."""
    gold = []
    rows = [
        {code: row for row, code in enumerate(side.ids)} for side in (sides.first, sides.second)
    ]
    for number, line in enumerate(read_lines(path), start=1):
        fields = line.split("\t")
        if len(fields) != 2:
            raise MetaXLMError(
                f"{path}:{number}: {len(fields)} fields; write the source's and the target's line "
                f"with a tab between them"
            )
        found = [
            _find_row(text.strip(), side, numbers, f"{path}:{number}")
            for text, side, numbers in zip(fields, (sides.first, sides.second), rows, strict=True)
        ]
        gold.append((found[0], found[1]))
    return gold


def _find_row(text: str, side: SearchSide, rows: dict[str, int], where: str) -> int:
    if rows:
        if text not in rows:
            raise MetaXLMError(f"{where}: {side.name} has no id {text!r}")
        return rows[text]
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise MetaXLMError(
            f"{where}: {text!r} is no line number; if the lines begin with ids, say --ids"
        )
    if not 1 <= int(text) <= len(side):
        raise MetaXLMError(
            f"{where}: line {text} is out of range, {side.name} has {len(side):,} lines"
        )
    return int(text) - 1


def _open_side(source: str, stack: ExitStack, request: SearchRequest) -> SearchSide:
    if source != STANDARD and Path(source).suffix in ENDINGS:
        if request.has_ids:
            raise MetaXLMError(f"{source}: vectors have no ids; leave out --ids, or give the text")
        return SearchSide(source, None)
    sentences = stack.enter_context(open_sentences(source))
    side = SearchSide(sentences.name, sentences)
    known: set[str] = set()
    for number, line in enumerate(sentences, start=1):
        if request.has_ids:
            code, tab, line = line.partition("\t")
            if not tab or not code or not line.strip():
                raise MetaXLMError(f"{sentences.place(number)}: with --ids a line is id TAB text")
            if code in known:
                raise MetaXLMError(f"{sentences.place(number)}: the id {code!r} is there twice")
            known.add(code)
            side.ids.append(code)
        side.texts.append(line)
    return side


def _embed_side(
    side: SearchSide,
    model: AnyEncoder,
    layers: Sequence[LayerChoice],
    request: SearchRequest,
    device: torch.device,
) -> None:
    assert side.sentences is not None
    settings = EmbedSettings(layers, request.specials, batch_tokens=request.batch_tokens)
    vectors_YND = torch.empty(len(layers), len(side.texts), model.encoder.config.hidden_size)
    done = 0
    title = f"embed {Path(side.name).name}"
    with track(title, len(side.texts), "sentences") as advance:
        for part in embed_stream(
            model,
            side.texts,
            device,
            settings,
            title=title,
            place=side.sentences.place,
            needs_tokens=True,
            advance=advance,
        ):
            vectors_YND[:, done : done + len(part.texts)] = part.vectors_YCD
            done += len(part.texts)
    side.vectors = list(vectors_YND)


def _choose_layers(request: SearchRequest, depth: int) -> tuple[LayerChoice, ...]:
    if request.layer is not None:
        return parse_layers(request.layer, depth)
    if request.takes_several:
        return parse_layers("all", depth)
    choice = LayerChoice((round(depth * 2 / 3),))
    say(f"layer {choice} of {depth}, two thirds of the depth; --layer chooses another")
    return (choice,)


def _read_side(side: SearchSide, request: SearchRequest, *, is_alone: bool) -> tuple[str, ...]:
    """Read the vectors of a file; return what their layers are called."""
    path, layer = Path(side.name), request.layer
    num_tables = _count_tables(path)
    if num_tables == 0 and not is_alone and path.suffix == ".npy":
        layer = None  # it is meant for the text on the other side
    if layer is None and request.takes_several and num_tables:
        layer = "all"
    if layer == "all":
        if not num_tables:
            raise MetaXLMError(f"{path}: which layers it holds is not known; name them")
        wanted: list[str | None] = [str(number) for number in range(num_tables)]
    else:
        wanted = [None] if layer is None else [part.strip() for part in layer.split(",")]
    _check_several(request, len(wanted))
    side.vectors = [read_vectors(path, name) for name in wanted]
    return tuple(name or "-" for name in wanted)


def _check_several(request: SearchRequest, count: int) -> None:
    if count > 1 and not request.takes_several:
        raise MetaXLMError(
            f"--layer {request.layer}: several layers are for retrieve --parallel without "
            f"--output; name one"
        )


def _count_tables(path: Path) -> int:
    """Return how many layers a `.npy` file holds; 0 if it is one table, or another file."""
    if path.suffix != ".npy" or not path.is_file():
        return 0
    found = open_npy(path)
    return len(found) if found.ndim == 3 else 0
