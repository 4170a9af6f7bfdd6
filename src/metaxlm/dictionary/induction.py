"""Induce a dictionary from two texts that are not parallel, and a small seed dictionary.

1. Two views of each word: the words near it in the text (`vectors.py`), and its spelling, as
   n-grams of letters. Each view of one language is mapped to that of the other: whiten, rotate,
   weigh and restore the directions with the seed's pairs (VecMap; Artetxe, Labaka and Agirre,
   2018). A mapped spelling also relates words of different scripts.
2. The nearest words of each view are candidates, scored by CSLS (Conneau et al., 2018): the cosine
   less the mean cosine with the neighbors of both words.
3. A softmax over the candidates of a word combines both views with frequency and equal spelling.
   Its few weights are fitted on seed words that the maps have not seen.
4. Probable mutual best pairs join the seed, and all is repeated (self-learning).
5. The precision of a threshold is measured on other seed words that were held out.

Without a seed, words that both languages spell alike are the seed, and spelling does not count.
Shapes: V source words, W target words, D dimensions, P pairs, F features.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse

from metaxlm.dictionary.entries import Entries, Entry
from metaxlm.dictionary.readers import list_files, read_entries
from metaxlm.dictionary.vectors import Matrix, Sparse, WordVectors, reduce_rows
from metaxlm.errors import MetaXLMError
from metaxlm.probe.nearest import find_both
from metaxlm.progress import say

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NEIGHBORS = 10  # of CSLS, and candidates of each view
_NGRAMS = range(2, 5)
_FEWEST_NGRAMS = 10  # words of a language that share an n-gram
_SPELLING_DIMENSIONS = 150
_REWEIGHT = 0.5  # exponent of the correlations (VecMap)
_HELD_OUT = 3  # one of three rarer seed words is for the weights, another for the precision
_FEWEST_SEEDS = 20
_FEWEST_HELD_OUT = 20
_SURE = 0.5  # probability of pairs that join the seed
_PENALTY = 1e-3  # of large weights
_EQUAL_LETTERS = 4  # fewest letters of a word that is a seed because both languages have it
_CHUNK = 100_000  # pairs that are compared at a time


@dataclass(frozen=True)
class Candidates:
    """Pairs of words by source, with the probability of each translation given its source."""

    sources_P: Ints
    targets_P: Ints
    probability_P: Floats

    def find_best(self) -> Ints:
        """Return the place of the best pair of each source."""
        order = np.lexsort((self.targets_P, -self.probability_P, self.sources_P))
        return order[np.unique(self.sources_P[order], return_index=True)[1]]

    def find_mutual(self) -> Ints:
        """Return the best pairs of the sources, for each target only the most probable one."""
        best = self.find_best()
        order = best[np.lexsort((-self.probability_P[best], self.targets_P[best]))]
        return order[np.unique(self.targets_P[order], return_index=True)[1]]


@dataclass(frozen=True)
class Precision:
    """What a threshold reached on held-out seed words; `num_right` is of those found."""

    threshold: float
    num_right: int
    num_found: int
    num_words: int

    @property
    def share(self) -> float:
        """The share of the found translations that the seed dictionary has."""
        return self.num_right / max(1, self.num_found)


@dataclass(frozen=True)
class Induced:
    """Candidates for all words, and the threshold with the wanted precision."""

    source: WordVectors
    target: WordVectors
    candidates: Candidates
    num_seeds: int
    num_added: int  # pairs that self-learning added to the seed
    reached: Precision

    def translate(self) -> dict[str, str]:
        """Return the most probable translation of each word, whatever its probability."""
        best = self.candidates.find_best()
        rows = self.candidates.sources_P[best].tolist(), self.candidates.targets_P[best].tolist()
        return {self.source.words[a]: self.target.words[b] for a, b in zip(*rows, strict=True)}

    def make_entries(self, name: str) -> Entries:
        """Return the mutual best pairs above the threshold."""
        found, mutual = self.candidates, self.candidates.find_mutual()
        kept = mutual[found.probability_P[mutual] >= self.reached.threshold]
        entries = [
            Entry(self.source.words[a], self.target.words[b], weight)
            for a, b, weight in zip(
                found.sources_P[kept].tolist(),
                found.targets_P[kept].tolist(),
                found.probability_P[kept].tolist(),
                strict=True,
            )
        ]
        dropped = Counter({"improbable": len(mutual) - len(kept)})
        return Entries(name, self.source.language, self.target.language, entries, dropped)


def induce(
    source: WordVectors,
    target: WordVectors,
    seed: Iterable[tuple[str, str]] | None = None,
    *,
    precision: float = 0.5,
    rounds: int = 1,
) -> Induced:
    """Find translations of all words, with a seed of word pairs (default: equal spellings)."""
    rows = [side.find_indices() for side in (source, target)]
    if seed is None:
        pairs = [(rows[0][word], rows[1][word]) for word in source.words if _is_equal(word, rows)]
    else:
        pairs = [(rows[0][a], rows[1][b]) for a, b in seed if a in rows[0] and b in rows[1]]
    seeds_P2 = np.unique(np.array(pairs, np.int64).reshape(-1, 2), axis=0)
    words = np.unique(seeds_P2[:, 0])
    if len(words) < _FEWEST_SEEDS:
        kind = "equally spelled words" if seed is None else "words of the seed dictionary"
        raise MetaXLMError(
            f"{len(words)} {kind} are in both texts, at least {_FEWEST_SEEDS} are needed; give "
            "more text, or a larger seed dictionary"
        )
    matcher = _Matcher(source, target, uses_spelling=seed is not None)
    # Words to translate are rarer than those of a seed, so the rarer half represents them better.
    rare = words[len(words) // 2 :]
    fitted_on, measured_on = rare[::_HELD_OUT], rare[1::_HELD_OUT]
    held_out = np.concatenate([fitted_on, measured_on])
    known_P2 = seeds_P2[~np.isin(seeds_P2[:, 0], held_out)]
    added_P2 = np.empty((0, 2), np.int64)
    weights_F = matcher.default_weights
    for number in range(rounds + 1):
        matcher.fit(np.concatenate([known_P2, added_P2]))
        features = matcher.compare()
        if len(fitted_on) >= _FEWEST_HELD_OUT:
            weights_F = features.fit_weights(seeds_P2, fitted_on, weights_F)
        found = features.weigh(weights_F)
        if number < rounds:
            mutual = found.find_mutual()
            sure = mutual[found.probability_P[mutual] >= _SURE]
            # A map that has seen a word's translation would make it look easy.
            sure = sure[~np.isin(found.sources_P[sure], held_out)]
            added_P2 = np.stack([found.sources_P[sure], found.targets_P[sure]], axis=1)
            say(f"round {number + 1}: {len(known_P2):,} seed pairs find {len(added_P2):,} more")
    reached = _measure(found, seeds_P2, measured_on, precision)
    matcher.fit(np.concatenate([seeds_P2, added_P2]))
    final = matcher.compare().weigh(weights_F)
    return Induced(source, target, final, len(seeds_P2), len(added_P2), reached)


def read_seed(paths: Iterable[Path], source_language: str, language: str) -> list[tuple[str, str]]:
    """Read pairs of single words in lower case from dictionary files."""
    sources = [
        read_entries(file, language, source_language)
        for path in paths
        for file in list_files(path, language, source_language)
    ]
    pairs = {
        (entry.source.lower(), entry.target.lower()): None
        for source in sources
        for entry in source.entries
        if " " not in entry.source + entry.target
    }
    return list(pairs)


def _is_equal(word: str, rows: Sequence[dict[str, int]]) -> bool:
    return len(word) >= _EQUAL_LETTERS and word in rows[1]


def _measure(found: Candidates, seeds_P2: Ints, words: Ints, precision: float) -> Precision:
    """Return the lowest threshold with the wanted precision on the words, or else the best one."""
    mutual = found.find_mutual()
    mutual = mutual[np.isin(found.sources_P[mutual], words)]
    mutual = mutual[np.argsort(-found.probability_P[mutual], kind="stable")]
    right = _find_seeds(found.sources_P[mutual], found.targets_P[mutual], seeds_P2)
    num_right, num_found = np.cumsum(right), np.arange(1, len(right) + 1)
    # A few lucky pairs at the top say little about a threshold.
    enough = np.flatnonzero(num_found >= min(_FEWEST_HELD_OUT, len(right)))
    if not len(enough):
        return Precision(1.0, 0, 0, len(words))
    shares = num_right / num_found
    good = enough[shares[enough] >= precision]
    last = good[-1] if len(good) else enough[np.argmax(shares[enough])]
    threshold = float(found.probability_P[mutual][last])
    return Precision(threshold, int(num_right[last]), int(num_found[last]), len(words))


def _find_seeds(sources_P: Ints, targets_P: Ints, seeds_P2: Ints) -> npt.NDArray[np.bool_]:
    base = 1 + max(int(seeds_P2.max()), int(targets_P.max(initial=0)))
    return np.isin(sources_P * base + targets_P, seeds_P2[:, 0] * base + seeds_P2[:, 1])


class _View:
    """Vectors of both languages, and their mapping into one space."""

    def __init__(self, source_VD: Matrix, target_WD: Matrix) -> None:
        self._sides = normalize(source_VD), normalize(target_WD)
        self._mapped = self._sides

    def fit(self, pairs_P2: Ints) -> None:
        self._mapped = map_whitened(*self._sides, pairs_P2)

    def search(self) -> Ints:
        """Find the nearest words of each word in both directions; return the pairs."""
        k = min(NEIGHBORS, *map(len, self._mapped))
        forward, backward = find_both(*self._mapped, k=k)
        self._means = [
            side.similarities_Qk.double().mean(dim=1).numpy() for side in (forward, backward)
        ]
        found = []
        for side, order in ((forward, (0, 1)), (backward, (1, 0))):
            queries = np.repeat(np.arange(len(side.indices_Qk)), k)
            pairs = np.stack([queries, side.indices_Qk.numpy().ravel()], axis=1)
            found.append(pairs[:, order])
        return np.concatenate(found)

    def score(self, sources_P: Ints, targets_P: Ints) -> Floats:
        """Return the CSLS of pairs."""
        source_VD, target_WD = self._mapped
        cosines = [
            np.einsum("pd,pd->p", source_VD[sources_P[part]], target_WD[targets_P[part]])
            for part in _slices(len(sources_P))
        ]
        means_V, means_W = self._means
        scores: Floats = 2 * np.concatenate(cosines) - means_V[sources_P] - means_W[targets_P]
        return scores


class _Matcher:
    """All views of two languages."""

    def __init__(self, source: WordVectors, target: WordVectors, *, uses_spelling: bool) -> None:
        self._views = [_View(source.vectors_VD, target.vectors_VD)]
        self._source, self._target = source, target
        self._uses_spelling = uses_spelling
        self.default_weights = np.array([10.0, 0.1, 5.0, 5.0, 2.0][: 5 if uses_spelling else 2])
        if uses_spelling:
            self._ngrams = _count_ngrams(source.words, target.words)
            dimensions = min(_SPELLING_DIMENSIONS, *(side.shape[0] - 1 for side in self._ngrams))
            reduced = [reduce_rows(_drop_rare(side), dimensions) for side in self._ngrams]
            width = min(side.shape[1] for side in reduced)
            self._views.append(_View(*(side[:, :width] for side in reduced)))

    def fit(self, pairs_P2: Ints) -> None:
        for view in self._views:
            view.fit(pairs_P2)

    def compare(self) -> "_Features":
        """Return the features of all candidates."""
        pairs_P2 = np.unique(np.concatenate([view.search() for view in self._views]), axis=0)
        sources_P, targets_P = np.ascontiguousarray(pairs_P2.T)
        context, *spelling = (view.score(sources_P, targets_P) for view in self._views)
        shares = [np.log(side.counts / side.counts.sum()) for side in (self._source, self._target)]
        columns = [context, -np.abs(shares[0][sources_P] - shares[1][targets_P]), *spelling]
        if self._uses_spelling:
            columns.append(self._compare_ngrams(sources_P, targets_P))
            words = np.array(self._source.words)[sources_P], np.array(self._target.words)[targets_P]
            columns.append((words[0] == words[1]).astype(np.float64))
        return _Features(sources_P, targets_P, np.stack(columns, axis=1))

    def _compare_ngrams(self, sources_P: Ints, targets_P: Ints) -> Floats:
        source, target = self._ngrams
        parts = [
            source[sources_P[part]].multiply(target[targets_P[part]]).sum(axis=1)
            for part in _slices(len(sources_P))
        ]
        return np.concatenate([np.asarray(part, np.float64).ravel() for part in parts])


@dataclass(frozen=True)
class _Features:
    """Features of candidates, sorted by source."""

    sources_P: Ints
    targets_P: Ints
    features_PF: Floats

    @cached_property
    def _starts(self) -> Ints:
        return np.unique(self.sources_P, return_index=True)[1]

    def weigh(self, weights_F: Floats) -> Candidates:
        """Return the probability of each candidate given its source."""
        scores_P = self.features_PF @ weights_F
        return Candidates(self.sources_P, self.targets_P, _softmax(scores_P, self._starts))

    def fit_weights(self, seeds_P2: Ints, words: Ints, start_F: Floats) -> Floats:
        """Return the weights with the highest likelihood of the seed translations of the words."""
        kept = np.flatnonzero(np.isin(self.sources_P, words))
        right = _find_seeds(self.sources_P[kept], self.targets_P[kept], seeds_P2)
        # A word whose translation is not among its candidates says nothing about them.
        kept = kept[np.isin(self.sources_P[kept], self.sources_P[kept][right])]
        if not len(kept):
            return start_F
        right = _find_seeds(self.sources_P[kept], self.targets_P[kept], seeds_P2)
        starts = np.unique(self.sources_P[kept], return_index=True)[1]
        scales_F = self.features_PF[kept].std(axis=0) + 1e-9
        features_PF = self.features_PF[kept] / scales_F

        def evaluate(weights_F: Floats) -> tuple[float, Floats]:
            scores_P = features_PF @ weights_F
            all_P = _softmax(scores_P, starts)
            right_P = _softmax(np.where(right, scores_P, -np.inf), starts)
            likelihood = np.log(np.add.reduceat(all_P * right, starts)).mean()
            slope_F = features_PF.T @ (right_P - all_P) / len(starts)
            loss = float(_PENALTY * weights_F @ weights_F - likelihood)
            return loss, 2 * _PENALTY * weights_F - slope_F

        fitted = optimize.minimize(evaluate, start_F * scales_F, jac=True, method="L-BFGS-B")
        weights_F: Floats = fitted.x / scales_F
        return weights_F


def _softmax(scores_P: Floats, starts: Ints) -> Floats:
    sizes = np.diff(starts, append=len(scores_P))
    powers_P = np.exp(scores_P - np.repeat(np.maximum.reduceat(scores_P, starts), sizes))
    shares_P: Floats = powers_P / np.repeat(np.add.reduceat(powers_P, starts), sizes)
    return shares_P


def _slices(length: int) -> Iterable[slice]:
    return (slice(start, start + _CHUNK) for start in range(0, length, _CHUNK))


def normalize(vectors_VD: Matrix) -> Matrix:
    """Scale rows to length 1, subtract their mean, and scale them again."""
    return _scale(_center(_scale(vectors_VD)))


def _scale(vectors_VD: Matrix) -> Matrix:
    lengths_V1 = np.linalg.norm(vectors_VD, axis=1, keepdims=True)
    scaled_VD: Matrix = vectors_VD / np.maximum(lengths_V1, 1e-9)
    return scaled_VD


def _center(vectors_VD: Matrix) -> Matrix:
    centered_VD: Matrix = vectors_VD - vectors_VD.mean(axis=0)
    return centered_VD


def map_orthogonal(source_VD: Matrix, target_WD: Matrix, pairs_P2: Ints) -> tuple[Matrix, Matrix]:
    """Rotate the source so that the pairs are close (Procrustes)."""
    left, _, right = np.linalg.svd(source_VD[pairs_P2[:, 0]].T @ target_WD[pairs_P2[:, 1]])
    return source_VD @ (left @ right), target_WD


def map_whitened(source_VD: Matrix, target_WD: Matrix, pairs_P2: Ints) -> tuple[Matrix, Matrix]:
    """Whiten both sides on the pairs, rotate, weigh by correlation, and undo the whitening.

    Pairs that are too few for the covariances of all directions only rotate.
    """
    if len(pairs_P2) < 2 * source_VD.shape[1]:
        return map_orthogonal(source_VD, target_WD, pairs_P2)
    both = source_VD[pairs_P2[:, 0]], target_WD[pairs_P2[:, 1]]
    (white_source, back_source), (white_target, back_target) = map(_whiten, both)
    left, correlations, right = np.linalg.svd(
        (both[0] @ white_source).T @ (both[1] @ white_target) / len(pairs_P2)
    )
    weights = np.clip(correlations, 0, None) ** _REWEIGHT
    source = source_VD @ (white_source @ left * weights @ left.T @ back_source @ left)
    target = target_WD @ (white_target @ right.T * weights @ right @ back_target @ right.T)
    return _scale(source.astype(np.float32)), _scale(target.astype(np.float32))


def _whiten(vectors_PD: Matrix) -> tuple[Matrix, Matrix]:
    """Return the matrix that makes the covariance of the rows the identity, and its inverse."""
    values, directions = np.linalg.eigh(vectors_PD.T @ vectors_PD / len(vectors_PD))
    roots = np.sqrt(np.maximum(values, 1e-6 * values.max()))
    return directions / roots @ directions.T, directions * roots @ directions.T


def _count_ngrams(*sides: Sequence[str]) -> list[Sparse]:
    """Return the n-grams of each word; rare ones weigh more, and rows have length 1."""
    index: dict[str, int] = {}
    found = []
    for words in sides:
        columns, ends = [], [0]
        for word in words:
            marked = f"<{word}>"
            grams = {marked[i : i + n] for n in _NGRAMS for i in range(len(marked) - n + 1)}
            columns += [index.setdefault(gram, len(index)) for gram in grams]
            ends.append(len(columns))
        found.append((columns, ends))
    counts = np.bincount(np.concatenate([columns for columns, _ in found]), minlength=len(index))
    idf = np.log(sum(map(len, sides)) / counts).astype(np.float32) + 0.1
    matrices = []
    for columns, ends in found:
        values = idf[columns]
        matrix = sparse.csr_matrix((values, columns, ends), (len(ends) - 1, len(index)))
        lengths = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
        matrices.append(sparse.diags(1 / lengths).astype(np.float32) @ matrix)
    return matrices


def _drop_rare(ngrams: Sparse) -> Sparse:
    counts = np.bincount(ngrams.indices, minlength=ngrams.shape[1])
    kept = np.flatnonzero(counts >= min(_FEWEST_NGRAMS, counts.max()))
    return ngrams[:, kept].tocsr()
