"""SentencePiece's process: the same model as without it, and gone whatever happens."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import sentences

from metaxlm.errors import MetaXLMError
from metaxlm.vocab.unigram import _cut, _feed, round_scores, train_model, train_unigram

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


def _children(parent: int) -> list[int]:
    """Return the ids of a process's children."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


def _trainers() -> list[int]:
    """Return those of our children that train."""
    return [
        pid
        for pid in _children(os.getpid())
        if b"sentencepiece_child" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def _wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not Path(f"/proc/{pid}").exists()


def test_the_model_is_the_one_sentencepiece_trains_itself() -> None:
    lines = [*sentences("en"), *sentences("ru"), "two\nlines", "ﬁ\u0301 ½"]
    writer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=writer,
        model_type="unigram",
        vocab_size=80,
        character_coverage=0.9995,
        num_threads=4,
        minloglevel=2,
    )
    expected = sentencepiece.SentencePieceProcessor(model_proto=round_scores(writer.getvalue()))
    found = sentencepiece.SentencePieceProcessor(model_proto=train_model(lines, 80, None, "test"))
    assert _pieces(found) == _pieces(expected)


def test_scores_add_up_exactly_in_32_bits() -> None:
    model = train_model(sentences("en"), 45, None, "test")
    scores = [
        score for _, score in _pieces(sentencepiece.SentencePieceProcessor(model_proto=model))
    ]
    total = np.float32(0)
    for score in scores * 30:
        total += np.float32(score)
    assert total == np.sum(np.array(scores * 30, np.float64))
    assert len(set(scores)) > 10
    assert -16_384 < total < -4_000


def _pieces(model: sentencepiece.SentencePieceProcessor) -> list[tuple[str, float]]:
    return [(model.id_to_piece(i), model.get_score(i)) for i in range(len(model))]


def test_long_sentences_are_not_lost() -> None:
    long = " ".join(islice(cycle(["alpha", "beta"]), 2_000)) + " " + "омега " * 50
    vocabulary = train_unigram([long, *sentences("en")], 48).get_vocab()
    assert {"▁alpha", "▁омега"} <= vocabulary.keys()


@settings(max_examples=100, deadline=None, database=None)
@given(text=st.text(max_size=60), times=st.integers(1, 400))
def test_cutting_keeps_every_character(text: str, times: int) -> None:
    parts = _cut(text * times)
    assert b"".join(parts).decode() == (text * times).replace("\n", " ")
    assert all(len(part) <= 4_192 and part.decode() is not None for part in parts)
    if " " in text:
        assert all(part.startswith(b" ") for part in parts[1:])


@linux
@pytest.mark.parametrize("error", [KeyboardInterrupt, MetaXLMError("sw.txt: damaged")])
def test_a_stop_while_reading_leaves_no_process(error: BaseException) -> None:
    def interrupted() -> Iterator[str]:
        yield from sentences("en") * 100
        assert len(_trainers()) == 1
        raise error

    with pytest.raises(error if isinstance(error, type) else type(error)):
        train_unigram(interrupted(), 45)
    assert _trainers() == []


@linux
def test_a_killed_training_is_told() -> None:
    def killing() -> Iterator[str]:
        yield from sentences("en")
        os.kill(_trainers()[0], signal.SIGKILL)
        yield from sentences("en") * 1_000

    with pytest.raises(MetaXLMError, match=r"ended by signal 9.*lower vocabulary.sample_sentences"):
        train_unigram(killing(), 45)


PROGRAM = """
import itertools
from metaxlm.vocab.unigram import train_model
words = ["".join(letters) for letters in itertools.product("abcdefghij", repeat=4)]
lines = (" ".join(words[i % 7919 : i % 7919 + 30]) for i in range(60_000))
print("go", flush=True)
train_model(lines, 2_000, 60_000, "test")
"""


@linux
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_program_takes_its_training_with_it(end: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as program:
        assert program.stdout is not None
        shown = ""
        while "60,000/60,000" not in shown:  # all is read, training is under way
            shown = program.stdout.readline()
            assert shown, "the program ended early"
        (trainer,) = _children(program.pid)
        program.send_signal(end)
        program.wait(timeout=10)
        assert _wait_until_gone(trainer)


def test_feeding_needs_no_memory() -> None:
    command = [sys.executable, "-c", "import sys\nwhile sys.stdin.buffer.read(1 << 20): pass"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        tracemalloc.start()
        _feed(process, (f"{i} " * 100 for i in range(20_000)), lambda *_: None)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 3 << 20


def test_coverage_decides_which_characters_are_known() -> None:
    lines = [*sentences("en") * 4, "ψ"]
    assert "ψ" not in train_unigram(lines, 40, coverage=0.999).get_vocab()
    assert "ψ" in train_unigram(lines, 40, coverage=1.0).get_vocab()
