"""Word vectors from a text: how often words occur near each other, reduced by an SVD.

A row is a word, a column one of the most frequent words. A cell is the positive pointwise mutual
information of the two within a window, with smoothed context counts (Levy, Goldberg and Dagan,
2015). With 10 to 100 MB of text this needs a few minutes on one core and no training. Shapes: N
positions of the text, V words, C contexts, D dimensions.
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import sentencepiece
import torch
from scipy import sparse

from metaxlm.errors import MetaXLMError
from metaxlm.progress import track
from metaxlm.randomness import generator
from metaxlm.reading import decode_line, read_lines
from metaxlm.scripts import UNSPACED_CHARACTERS
from metaxlm.sentences.translations import is_unspaced
from metaxlm.streams import estimate_size, open_stream
from metaxlm.vocab.unigram import train_model

Matrix = npt.NDArray[np.float32]
Sparse = Any  # scipy's sparse matrices have no types
Splitter = Callable[[str], list[str]]

NUM_WORDS, NUM_CONTEXTS, NUM_DIMENSIONS = 30_000, 10_000, 200
FEWEST = 5  # occurrences of a word
_FEWEST_WORDS = 10
WINDOW = 5  # words to each side; nearer ones weigh more
MOST_BYTES = 150_000_000  # of a text; more are sampled
_SMOOTHING = 0.75  # exponent of the context counts
_EIGENVALUE_POWER = 0.5
_OVERSAMPLING, _PASSES = 20, 2  # of the randomized SVD
_BLOCK = 2_000_000  # positions that are counted at a time
_SEGMENT_CHARACTERS, _SEGMENT_PIECES = 3_000_000, 40_000  # that train the segmentation
_FEWEST_CHARACTERS, _CHARACTERS_PER_PIECE = 10_000, 60
_UNSPACED_RUN = re.compile(f"[{UNSPACED_CHARACTERS}]+")
_UNSPACED_PARTS = re.compile(f"([{UNSPACED_CHARACTERS}]+)")


@dataclass(frozen=True)
class WordVectors:
    """The words of a text by frequency, their counts, and their vectors."""

    language: str
    words: Sequence[str]
    counts: npt.NDArray[np.int64]
    vectors_VD: Matrix

    def find_indices(self) -> dict[str, int]:
        """Return the row of each word."""
        return {word: row for row, word in enumerate(self.words)}


def train_vectors(
    paths: Sequence[Path],
    language: str,
    *,
    known: Collection[str] = (),
    num_words: int = NUM_WORDS,
    num_dimensions: int = NUM_DIMENSIONS,
) -> WordVectors:
    """Count the words of text files near each other, and reduce the counts to vectors.

    A language without spaces is segmented by pieces of its own text, with the `known` words among
    them.
    """
    lines = TextLines(paths)
    split = make_splitter(lines, language, known)
    positions_N, words, counts = _number_words(map(split, lines), num_words)
    if len(words) < _FEWEST_WORDS:
        name = ", ".join(map(str, paths))
        raise MetaXLMError(
            f"{name}: {len(words)} words occur {FEWEST} times or more; word vectors need more text"
        )
    counts_VC = _count_near(positions_N, len(words), min(NUM_CONTEXTS, len(words)))
    vectors_VD = reduce_rows(_weigh(counts_VC), min(num_dimensions, len(words) - 1))
    return WordVectors(language, words, counts, vectors_VD)


def make_splitter(lines: Iterable[str], language: str, known: Collection[str] = ()) -> Splitter:
    """Return a function that splits a text of the language into words, learned from the lines."""
    return _train_segmenter(lines, known) if is_unspaced(language) else split_words


def split_words(text: str) -> list[str]:
    """Return the words of a text in lower case: runs of letters and their marks."""
    return _word_pattern().findall(text.lower())


@cache
def _word_pattern() -> re.Pattern[str]:
    characters = map(chr, range(sys.maxunicode))
    marks = (one for one in characters if unicodedata.category(one) in ("Mn", "Mc"))
    inner = "".join(map(re.escape, marks)) + "\u200c\u200d"  # joiners inside words of some scripts
    # The marks are a long list, which is not searched at a space or a sign of ASCII.
    return re.compile(rf"[^\W\d_]+(?:(?![\x00-\x7f])[{inner}]+[^\W\d_]*)*")


class TextLines:
    """The lines of files; of much text, lines spread over it."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def __iter__(self) -> Iterator[str]:
        size = sum(estimate_size(path) for path in self._paths if path.is_file())
        stride = max(1, -(-size // MOST_BYTES))
        for path in self._paths:
            with open_stream(path) as stream:
                for number, line in read_lines(stream, path):
                    if number % stride == 0:
                        yield decode_line(number, line, path)


def _train_segmenter(lines: Iterable[str], known: Collection[str]) -> Splitter:
    """Return a splitter into pieces of a unigram model; other scripts are split into words."""
    runs = [run for line in lines for run in _UNSPACED_RUN.findall(line)]
    stride = max(1, -(-sum(map(len, runs)) // _SEGMENT_CHARACTERS))
    sample = [*runs[::stride], *(word for word in known if _UNSPACED_RUN.fullmatch(word))]
    size, num_characters = sum(map(len, sample)), len(set("".join(sample)))
    if size < _FEWEST_CHARACTERS:
        raise MetaXLMError(
            f"the text has {size:,} characters of a script without spaces; splitting it into words "
            f"needs at least {_FEWEST_CHARACTERS:,}"
        )
    num_pieces = max(num_characters + 100, min(_SEGMENT_PIECES, size // _CHARACTERS_PER_PIECE))
    pieces = sentencepiece.SentencePieceProcessor(model_proto=train_model(sample, num_pieces))

    def split(text: str) -> list[str]:
        words: list[str] = []
        for number, run in enumerate(_UNSPACED_PARTS.split(text)):
            if number % 2:  # the runs that the pattern captures
                found = (piece.replace("▁", "") for piece in pieces.encode(run, out_type=str))
                words += filter(None, found)
            else:
                words += split_words(run)
        return words

    return split


def _number_words(
    sentences: Iterable[Sequence[str]], num_words: int
) -> tuple[npt.NDArray[np.int32], list[str], npt.NDArray[np.int64]]:
    """Return the words at all positions by rank, -1 between sentences, without rare words."""
    index: dict[str, int] = {}
    blocks: list[npt.NDArray[np.int32]] = []
    block: list[int] = []
    gap = [-1] * WINDOW
    for words in sentences:
        block += [index.setdefault(word, len(index)) for word in words]
        block += gap
        if len(block) > _BLOCK:
            blocks.append(np.array(block, np.int32))
            block = []
    positions_N = np.concatenate([*blocks, np.array(block, np.int32)])
    counts = np.bincount(positions_N[positions_N >= 0], minlength=len(index))
    ranked = np.argsort(-counts, kind="stable")[:num_words]
    ranked = ranked[counts[ranked] >= FEWEST]
    rare = -2
    ranks = np.full(len(index) + 1, rare, np.int32)
    ranks[-1] = -1  # of the gaps
    ranks[ranked] = np.arange(len(ranked))
    positions_N = ranks[positions_N]
    words = list(index)
    kept = [words[number] for number in ranked]
    return positions_N[positions_N != rare], kept, counts[ranked]


def _count_near(positions_N: npt.NDArray[np.int32], num_words: int, num_contexts: int) -> Sparse:
    """Return how often contexts are near words, [V, C]; a neighbor counts 1, the last 1/window."""
    counts_VC = sparse.csr_matrix((num_words, num_contexts), dtype=np.float32)
    with track("word vectors", len(positions_N), "words") as advance:
        for start in range(0, len(positions_N), _BLOCK):
            block = positions_N[start : start + _BLOCK + WINDOW]
            found = []
            for distance in range(1, WINDOW + 1):
                left, right = block[:-distance][:_BLOCK], block[distance:][:_BLOCK]
                both = (left >= 0) & (right >= 0)
                left, right = left[both], right[both]
                for word, near in ((left, right), (right, left)):
                    kept = near < num_contexts
                    weights = np.full(kept.sum(), 1 - (distance - 1) / WINDOW, np.float32)
                    found.append((weights, word[kept], near[kept]))
            weights, words, nears = (np.concatenate(column) for column in zip(*found, strict=True))
            shape = (num_words, num_contexts)
            counts_VC = counts_VC + sparse.coo_matrix((weights, (words, nears)), shape).tocsr()
            advance(min(_BLOCK, len(positions_N) - start))
    return counts_VC


def _weigh(counts_VC: Sparse) -> Sparse:
    """Return the positive pointwise mutual information."""
    words_V = np.asarray(counts_VC.sum(axis=1)).ravel()
    contexts_C = np.asarray(counts_VC.sum(axis=0)).ravel() ** _SMOOTHING
    contexts_C /= contexts_C.sum()
    rows = np.repeat(np.arange(counts_VC.shape[0]), np.diff(counts_VC.indptr))
    values = np.log(counts_VC.data / (words_V[rows] * contexts_C[counts_VC.indices]))
    weighed = (np.maximum(values, 0).astype(np.float32), counts_VC.indices, counts_VC.indptr)
    weighed_VC = sparse.csr_matrix(weighed, counts_VC.shape)
    weighed_VC.eliminate_zeros()
    return weighed_VC


def reduce_rows(matrix_VC: Sparse, num_dimensions: int) -> Matrix:
    """Return the rows in the first singular directions, by a randomized SVD (Halko et al., 2011).

    Directions are scaled with the square root of their singular values.
    """
    width = min(num_dimensions + _OVERSAMPLING, *matrix_VC.shape)
    random = generator(1, "randomized-svd")
    start = random.standard_normal((matrix_VC.shape[1], width), np.float32)
    transposed_CV = matrix_VC.T.tocsr()
    basis = _orthogonalize(matrix_VC @ start)
    for _ in range(_PASSES):
        basis = _orthogonalize(matrix_VC @ _orthogonalize(transposed_CV @ basis))
    small, values, _ = np.linalg.svd((transposed_CV @ basis).T, full_matrices=False)
    scaled = (small * values**_EIGENVALUE_POWER)[:, :num_dimensions]
    return np.asarray(basis @ scaled, np.float32)


def _orthogonalize(matrix: Matrix) -> Matrix:
    basis: Matrix = torch.linalg.qr(torch.from_numpy(np.ascontiguousarray(matrix)))[0].numpy()
    return basis
