from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe import alignment_io
from metaxlm.probe.alignment_io import align_file, align_stream
from metaxlm.probe.aligners import AlignSettings
from metaxlm.probe.alignment import align_words
from metaxlm.probe.pool import LayerChoice
from metaxlm.probe.alignment_io import read_links
from metaxlm.probe.alignment_io import PairFiles, SentencePair
from tests.finetune.conftest import CPU, TEXT, MakeEncoder
from tests.finetune.readers.files import write

LINES = [f"{a} ||| {b}" for a in TEXT[:3] for b in TEXT[3:6]]
LAYER = LayerChoice((1,))


@pytest.fixture
def model(tokenizer: PreTrainedTokenizerBase, make_encoder: MakeEncoder) -> AnyEncoder:
    return AnyEncoder("test", tokenizer, make_encoder(tokenizer))


def test_a_file_in_chunks_is_the_file_at_once(
    model: AnyEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment_io, "CHUNK", 2)
    files = PairFiles(str(write(tmp_path / "pairs.txt", "\n".join(LINES))))
    settings = AlignSettings(method="itermax")
    target = tmp_path / "links.txt"
    number = align_file(
        model, files, str(target), CPU, layer=LAYER, settings=settings, layout="talp"
    )
    assert number == len(LINES)
    pairs = [(pair.source, pair.target) for pair in files]
    (wanted,) = align_words(model, pairs, CPU, settings=settings, layers=[LAYER])
    assert [line.sure for line in read_links(str(target), "talp")] == wanted
    assert len(set(wanted)) > 3


def test_a_stream_without_end_is_read_as_far_as_needed(
    model: AnyEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment_io, "CHUNK", 3)
    taken = 0

    def flow() -> Iterator[SentencePair]:
        nonlocal taken
        while True:
            taken += 1
            yield SentencePair("the house", "das Haus", ("the", "house"), ("das", "Haus"))

    aligned = align_stream(model, flow(), CPU, layer=LAYER)
    for _ in range(4):
        next(aligned)
    assert taken == 6


def test_long_pairs_are_named_by_their_line(
    model: AnyEncoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    messages: Callable[[], str],
) -> None:
    monkeypatch.setattr(alignment_io, "CHUNK", 2)
    lines = ["das Haus ||| the house"] * 6
    lines[4] = "Haus " * 90 + "||| house"
    files = PairFiles(str(write(tmp_path / "pairs.txt", "\n".join(lines))))
    align_file(model, files, str(tmp_path / "links.txt"), CPU, layer=LAYER)
    (told,) = [line for line in messages().splitlines() if "longer" in line]
    assert "longer than 64 tokens" in told
    assert told.endswith("pair 5")


def test_a_broken_line_is_told_before_anything_is_done(
    model: AnyEncoder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    messages: Callable[[], str],
) -> None:
    monkeypatch.setattr(alignment_io, "CHUNK", 2)
    files = PairFiles(str(write(tmp_path / "pairs.txt", "\n".join([*LINES, "broken"]))))
    target = write(tmp_path / "links.txt", "older\n")
    with pytest.raises(MetaXLMError, match=r"pairs\.txt:10: no \|\|\|"):
        align_file(model, files, str(target), CPU, layer=LAYER)
    assert messages() == ""
    assert target.read_text() == "older\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["links.txt", "pairs.txt"]


def test_a_failure_on_the_way_leaves_the_older_file(
    model: AnyEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment_io, "CHUNK", 2)
    text = io.TextIOWrapper(io.BytesIO("\n".join([*LINES[:5], "broken"]).encode()))
    monkeypatch.setattr(sys, "stdin", text)
    target = write(tmp_path / "links.txt", "older\n")
    with pytest.raises(MetaXLMError, match=r"standard input:6: no \|\|\|"):
        align_file(model, PairFiles("-"), str(target), CPU, layer=LAYER)
    assert target.read_text() == "older\n"
    assert [path.name for path in tmp_path.iterdir()] == ["links.txt"]
