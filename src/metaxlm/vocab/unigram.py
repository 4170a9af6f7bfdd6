"""Train the shared multilingual vocabulary: a SentencePiece unigram model in XLM-R's layout.

Ids: `<s>` 0, `<pad>` 1, `</s>` 2, `<unk>` 3, then the pieces in SentencePiece's order, `<mask>`
last. Sentences are sampled with rebalanced languages (section 4.1 of the paper), the model is
trained in another process and converted to a fast tokenizer. Both give the same ids, because
scores add up exactly. In models trained elsewhere, SentencePiece decides between segmentations of
equal scores by 32-bit rounding, in about one line of 10,000; the fast tokenizer does not.
"""

import json
import math
import queue
import re
import struct
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from itertools import compress, islice
from pathlib import Path
from typing import IO

import numpy as np
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import Unigram
from transformers import PreTrainedTokenizerBase

from metaxlm.errors import MetaXLMError
from metaxlm.languages import rebalance
from metaxlm.progress import Advance, track
from metaxlm.randomness import generator
from metaxlm.reading import reading
from metaxlm.vocab.charsmap import charsmap_normalizer
from metaxlm.vocab.sentencepiece_child import REJECTED
from metaxlm.vocab.tokens import FIRST_TOKENS, MASK_TOKEN, SENTENCEPIECE_SPACE, wrap_tokenizer

_SAMPLE_BLOCK = 1 << 16
_MORE_SPECIALS = 2  # SentencePiece has three special tokens of its own; we have five
_NEVER = -1e4  # score of special tokens, so that text never contains them
_NUM_THREADS = 4  # the number of threads decides the order of float additions, so it is fixed
_MAX_BYTES = 4_192  # SentencePiece ignores longer lines
_BATCH = 1_000
_SCORE_STEPS = 1_024  # scores are multiples of one over this
_KEPT, _SPARE = 0.75, 1.1  # share of the pieces that a round keeps; pieces left in the end
_ROUND = re.compile(r"EM sub_iter=1 size=(\d+)")
_NOTES = {"Normalizing sentences": "normalizing", "Making suffix array": "collecting substrings"}
_SEEDS = re.compile(r"Initialized (\d+) seed")
_TITLE = "shared vocabulary"


def train_unigram(
    sentences: Iterable[str], size: int, total: int | None = None, coverage: float = 0.9995
) -> PreTrainedTokenizerBase:
    """Train a SentencePiece unigram vocabulary of `size` tokens, special tokens included.

    `coverage` is the share of the text whose characters become pieces; `total` sentences show
    progress.
    """
    return fast_tokenizer(train_model(sentences, size - _MORE_SPECIALS, total, coverage))


def fast_tokenizer(model_bytes: bytes, name: str = "model") -> PreTrainedTokenizerBase:
    """Turn a SentencePiece unigram model into a fast tokenizer with XLM-R's special tokens."""
    proto = sentencepiece_model_pb2.ModelProto()
    try:
        proto.ParseFromString(model_bytes)
    except Exception as error:  # protobuf's own class differs between its implementations
        raise MetaXLMError(f"{name}: not a SentencePiece model; restore the file") from error
    _check_model(proto, name)
    pieces = [(piece.piece, piece.score) for piece in proto.pieces if piece.type == piece.NORMAL]
    # If all characters are pieces, `<unk>` is never scored. Otherwise the library derives its score
    # from the lowest one, special tokens included.
    known = {piece for piece, _ in pieces}
    never = _NEVER if set("".join(known)) <= known else 0.0
    specials = [(token, never) for token in FIRST_TOKENS]
    tokenizer = Tokenizer(Unigram([*specials, *pieces, (MASK_TOKEN, never)], unk_id=3))
    with reading(name, ValueError, IndexError, struct.error):
        tokenizer.normalizer = charsmap_normalizer(proto.normalizer_spec.precompiled_charsmap)
    words = not any(SENTENCEPIECE_SPACE in piece[1:] for piece, _ in pieces)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SENTENCEPIECE_SPACE, "always", split=words)
    tokenizer.decoder = decoders.Metaspace(SENTENCEPIECE_SPACE, "always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return wrap_tokenizer(tokenizer)


def _check_model(proto: sentencepiece_model_pb2.ModelProto, name: str) -> None:
    spec, trainer = proto.normalizer_spec, proto.trainer_spec
    types = {piece.type for piece in proto.pieces}
    piece = sentencepiece_model_pb2.ModelProto.SentencePiece
    has_usual_spaces = not trainer.treat_whitespace_as_suffix and (
        spec.add_dummy_prefix and spec.remove_extra_whitespaces and spec.escape_whitespaces
    )
    found = {
        "no pieces": piece.NORMAL not in types,
        "pieces that are not UTF-8": not all(isinstance(one.piece, str) for one in proto.pieces),
        "another kind than unigram": trainer.model_type != trainer.UNIGRAM,
        "pieces of bytes": piece.BYTE in types,
        "symbols defined by a user": piece.USER_DEFINED in types,
        "unusual treatment of spaces": not has_usual_spaces,
    }
    if reasons := [reason for reason, is_so in found.items() if is_so]:
        raise MetaXLMError(
            f"{name}: a SentencePiece model with {', '.join(reasons)}; only models like XLM-R's "
            "can be converted, others need a tokenizer.json"
        )


def _explain(reason: str) -> str:
    if match := re.search(r"too high .* value <= (\d+)", reason):
        most = int(match[1]) + _MORE_SPECIALS
        return f"this much text gives at most {most} pieces; lower it or add text"
    if match := re.search(r"smaller than required_chars.*?(\d+) vs (\d+)", reason):
        return f"too small, the characters alone are {match[2]}; raise it"
    if "corpus too large" in reason:
        return "too much text for SentencePiece; lower vocabulary.sample_sentences"
    first = next(iter(reason.strip().splitlines()), "no reason given")
    return f"SentencePiece cannot train it ({first.rsplit('] ', 1)[-1].strip()})"


def sample_counts(sentences: Mapping[str, int], alpha: float, limit: int) -> dict[str, int]:
    """Return the number of sentences to sample per language: N_i^alpha / sum_j N_j^alpha of all.

    The sample is at most `limit` and as large as the scarcest language allows.
    """
    shares = rebalance(sentences, alpha)
    largest = min([limit, *(sentences[name] / share for name, share in shares.items() if share)])
    return {
        language: min(sentences[language], max(1, round(largest * share)))
        for language, share in shares.items()
    }


def sample_sentences(
    texts: Mapping[str, Iterable[str]],
    counts: Mapping[str, int],
    wanted: Mapping[str, int],
    seed: int,
) -> Iterator[str]:
    """Yield `wanted` of each language's `counts` sentences in order; every block gives a share."""
    for language in sorted(texts):
        random = generator(seed, f"vocabulary-sample-{language}")
        sentences = iter(texts[language])
        count, chosen = counts[language], wanted[language]
        for start in range(0, count, _SAMPLE_BLOCK):
            end = min(start + _SAMPLE_BLOCK, count)
            keep = np.zeros(end - start, bool)
            share = end * chosen // count - start * chosen // count
            keep[random.choice(end - start, share, replace=False)] = True
            yield from compress(islice(sentences, len(keep)), keep.tolist())


def train_model(
    sentences: Iterable[str],
    num_pieces: int,
    total: int | None = None,
    coverage: float = 0.9995,
    exact: bool = True,
) -> bytes:
    """Train a unigram model in another process; the same sentences give the same bytes.

    SentencePiece collects up to a million frequent substrings, and removes a quarter of them per
    round of expectation maximization. Unless `exact`, a small text may give fewer pieces.
    """
    # A file without a name: it disappears if this process is killed.
    with tempfile.TemporaryFile() as model:
        with _start_process(model, num_pieces, coverage, exact) as (process, log):
            reading = nullcontext(_ignore) if total is None else track(_TITLE, total, "sentences")
            with reading as advance:
                _feed(process, sentences, advance)
                seeds = _wait_for_seeds(log, advance)
            if seeds is not None:
                _show_rounds(log, seeds, num_pieces)
            code, tail = process.wait(), deque(log, maxlen=5)
        model.seek(0)
        output = model.read()
        _check_end(code, output, tail, num_pieces, exact)
        return round_scores(output)


def round_scores(model: bytes) -> bytes:
    """Round the scores of the pieces to multiples of 1/1024, whose sums are exact in 32 bits.

    SentencePiece adds scores in 32 bits, fast tokenizers in 64. Between equally good segmentations
    the rounding would decide, differently in the two.
    """
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model)
    for piece in proto.pieces:
        piece.score = round(piece.score * _SCORE_STEPS) / _SCORE_STEPS
    return bytes(proto.SerializeToString())


def _ignore(amount: int = 1, note: str | None = None) -> None:
    """Advance no progress bar."""


@contextmanager
def _start_process(
    model: IO[bytes], num_pieces: int, coverage: float, exact: bool
) -> Iterator[tuple[subprocess.Popen[bytes], Iterator[str]]]:
    options = {
        "model_type": "unigram",
        "vocab_size": num_pieces,
        "character_coverage": coverage,
        "num_threads": _NUM_THREADS,
        "max_sentence_length": _MAX_BYTES,
        "minloglevel": 0,
    }
    if not exact:
        options["hard_vocab_limit"] = False
    program = Path(__file__).with_name("sentencepiece_child.py")
    command = [sys.executable, "-P", str(program), json.dumps(options)]
    pipe = subprocess.PIPE
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    with subprocess.Popen(command, stdin=pipe, stdout=model, stderr=pipe) as process:
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
    """Read the log in a thread, so that the process never waits for us."""
    for line in log:
        lines.put(line.decode(errors="replace").rstrip())
    lines.put(None)


def _feed(process: subprocess.Popen[bytes], sentences: Iterable[str], advance: Advance) -> None:
    """Send all sentences; `_check_end` handles a process that ended early."""
    assert process.stdin is not None
    iterator = iter(sentences)
    with suppress(BrokenPipeError):
        while batch := list(islice(iterator, _BATCH)):
            lines = [part for sentence in batch for part in _cut(sentence)]
            process.stdin.write(b"".join(line + b"\n" for line in lines))
            advance(len(batch))
        process.stdin.close()


def _cut(sentence: str) -> list[bytes]:
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
    """Return the number of pieces of the first round, or None if training failed before."""
    for line in log:
        if match := _SEEDS.search(line):
            return int(match[1])
        for note in (note for sign, note in _NOTES.items() if sign in line):
            advance(0, note=note)
    return None


def _show_rounds(log: Iterator[str], seeds: int, num_pieces: int) -> None:
    total = 1 + math.ceil(math.log(max(1.0, seeds / (_SPARE * num_pieces))) / -math.log(_KEPT))
    done = 0
    with track(f"{_TITLE}: pieces", total, "rounds") as advance:
        for line in log:
            if match := _ROUND.search(line):
                step = int(done < total - 1)
                done += step
                advance(step, note=f"{int(match[1]):,} pieces")
        advance(total - done)


def _check_end(code: int, output: bytes, tail: Iterable[str], num_pieces: int, exact: bool) -> None:
    if code == REJECTED:
        reason = output.decode(errors="replace")
        name = f"vocabulary.size {num_pieces + _MORE_SPECIALS}" if exact else f"size {num_pieces}"
        raise MetaXLMError(f"{name}: {_explain(reason)}")
    if code < 0:
        raise MetaXLMError(
            f"vocabulary: SentencePiece was ended by signal {-code}, most likely for lack of "
            "memory; lower vocabulary.sample_sentences"
        )
    if code:
        raise RuntimeError(f"SentencePiece's process ended with code {code}: {' / '.join(tail)}")
