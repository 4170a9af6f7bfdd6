"""Training a SentencePiece unigram model in a process of its own, with a display of how far it is.

Comes in: sentences and the number of pieces. Goes out: the model's bytes, the same for the same
sentences on every machine. The process gives its memory back at the end and can be stopped at any
time; its log tells how far it is. First it reads the sentences; then it collects up to a million
frequent substrings; then rounds of expectation maximization each drop about a quarter of them until
the wanted number is left.
"""

from __future__ import annotations

import json
import math
import queue
import re
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import islice
from pathlib import Path
from typing import IO

from sentencepiece import sentencepiece_model_pb2

from metaxlm.errors import MetaXLMError
from metaxlm.progress import Advance, track
from metaxlm.vocab.sentencepiece_child import REFUSED

# The number of threads decides the order of float additions, so it is fixed, not the machine's.
_NUM_THREADS = 4
# SentencePiece leaves out longer lines, which would cost the languages with the longest most.
_MAX_BYTES = 4_192
_BATCH = 1_000
# Scores are multiples of one over this.
_SCORE_STEPS = 1_024
# SentencePiece keeps this share of the pieces in a round, down to a little more than it needs.
_KEPT = 0.75
_SPARE = 1.1
_ROUND = re.compile(r"EM sub_iter=1 size=(\d+)")
_NOTES = {
    "Normalizing sentences": "normalizing",
    "Making suffix array": "collecting substrings",
}
_SEEDS = re.compile(r"Initialized (\d+) seed")


class TrainingRefused(Exception):
    """SentencePiece cannot train what was asked for; the message is its own."""


def train_model(
    sentences: Iterable[str],
    num_pieces: int,
    total: int | None,
    title: str,
    coverage: float = 0.9995,
) -> bytes:
    """Train a unigram model; `total` is the number of sentences, None shows nothing of reading."""
    # A file without a name: nothing stays behind if this process is killed.
    with tempfile.TemporaryFile() as model:
        with _start_process(model.fileno(), num_pieces, coverage) as (process, log):
            reading = (
                nullcontext(_show_nothing) if total is None else track(title, total, "sentences")
            )
            with reading as advance:
                _feed(process, sentences, advance)
                seeds = _wait_for_seeds(log, advance)
            if seeds is not None:
                _show_rounds(log, seeds, num_pieces, title)
            _check_end(process, deque(log, maxlen=5))
        model.seek(0)
        return round_scores(model.read())


def round_scores(model: bytes) -> bytes:
    """Round the pieces' scores so that their sums are exact in 32 bits.

    SentencePiece adds scores up in 32 bits, fast tokenizers in 64. Where two ways to cut a word are
    equally good, the rounding of sums would decide, differently in the two. Multiples of 1/1024 add
    up exactly to 16,384, so that both take the same way; a score moves by at most 0.0005.
    """
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    for piece in proto.pieces:
        piece.score = round(piece.score * _SCORE_STEPS) / _SCORE_STEPS
    return bytes(proto.SerializeToString())


def _show_nothing(amount: int = 1, note: str | None = None) -> None:
    """Take a step of a bar that is not there."""


@contextmanager
def _start_process(
    model: int, num_pieces: int, coverage: float
) -> Iterator[tuple[subprocess.Popen[bytes], Iterator[str]]]:
    """Start the training; yield its process and its log. At the end the process is gone."""
    options = {
        "model_type": "unigram",
        "vocab_size": num_pieces,
        "character_coverage": coverage,
        "num_threads": _NUM_THREADS,
        "max_sentence_length": _MAX_BYTES,
        "minloglevel": 0,
    }
    program = Path(__file__).with_name("sentencepiece_child.py")
    command = [sys.executable, "-P", str(program), str(model), json.dumps(options)]
    pipe = subprocess.PIPE
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=[model]
    ) as process:
        reader = threading.Thread(target=_read_log, args=(process.stderr, lines), daemon=True)
        reader.start()
        try:
            yield process, iter(lines.get, None)
        finally:
            process.kill()
            reader.join()
            assert process.stdin is not None
            with suppress(BrokenPipeError):
                process.stdin.close()


def _read_log(log: IO[bytes], lines: queue.SimpleQueue[str | None]) -> None:
    """Take the log's lines as they come, in a thread, so that the process never waits for us."""
    for line in log:
        lines.put(line.decode(errors="replace").rstrip())
    lines.put(None)


def _feed(process: subprocess.Popen[bytes], sentences: Iterable[str], advance: Advance) -> None:
    """Send all sentences; a process that ends early is noticed by who waits for its model."""
    assert process.stdin is not None
    iterator = iter(sentences)
    with suppress(BrokenPipeError):
        while batch := list(islice(iterator, _BATCH)):
            lines = [part for sentence in batch for part in _cut(sentence)]
            process.stdin.write(b"".join(line + b"\n" for line in lines))
            advance(len(batch))
        process.stdin.close()


def _cut(sentence: str) -> list[bytes]:
    """Return a sentence as lines that SentencePiece takes: cut at spaces if it is too long."""
    rest = sentence.replace("\n", " ").encode(errors="replace")
    lines = []
    while len(rest) > _MAX_BYTES:
        end = rest.rfind(b" ", 1, _MAX_BYTES + 1)
        if end < 0:
            end = _MAX_BYTES
            while rest[end] & 0xC0 == 0x80:  # inside a character
                end -= 1
        lines.append(rest[:end])
        rest = rest[end:]
    return [*lines, rest]


def _wait_for_seeds(log: Iterator[str], advance: Advance) -> int | None:
    """Return with how many pieces the first round starts, or None if it never came to that."""
    for line in log:
        if match := _SEEDS.search(line):
            return int(match[1])
        for sign, note in _NOTES.items():
            if sign in line:
                advance(0, note=note)
    return None


def _show_rounds(log: Iterator[str], seeds: int, num_pieces: int, title: str) -> None:
    """Show the rounds in which the pieces become fewer; there may be fewer than foreseen."""
    shrinking = math.log(max(1.0, seeds / (_SPARE * num_pieces))) / -math.log(_KEPT)
    total = 1 + math.ceil(shrinking)
    done = 0
    with track(f"{title}: pieces", total, "rounds") as advance:
        for line in log:
            if match := _ROUND.search(line):
                step = 1 if done < total - 1 else 0
                done += step
                advance(step, note=f"{int(match[1]):,} pieces")
        if done < total:
            advance(total - done)


def _check_end(process: subprocess.Popen[bytes], tail: Iterable[str]) -> None:
    """Raise what the process's end means, unless it is success."""
    assert process.stdout is not None
    reason = process.stdout.read().decode(errors="replace")
    code = process.wait()
    if code == REFUSED:
        raise TrainingRefused(reason)
    if code < 0:
        raise MetaXLMError(
            f"vocabulary: SentencePiece was ended by signal {-code}, most likely for want of "
            "memory; lower vocabulary.sample_sentences"
        )
    if code:
        raise RuntimeError(f"SentencePiece's process ended with code {code}: {' / '.join(tail)}")
