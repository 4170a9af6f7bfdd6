"""One text, two tokenizers: blocks of the student's tokens as the teacher reads them.

Comes in: blocks of the cross-lingual model's token ids. Goes out: the same sentences as the
monolingual model's ids, and which tokens of the one stand on the same characters as which of the
other. This is what distillation (section 5.3 of the paper) needs where the vocabularies differ.

The walk: 1. tokens spell a text, each its characters; 2. the teacher's tokenizer cuts each sentence
and says which characters its tokens stand on; 3. tokens meet over characters, spaces left out; 4.
the teacher's tokens become rows `<s> A </s> B </s>`. Shapes: R rows, L and T columns of student and
teacher, N and K their tokens in a row, S sentences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from metaxlm.pretrain.shared_tokens import Cutter, share_tokens, spell_all
from metaxlm.vocabulary.special_tokens import boundary_ids

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

_MULTIPLE = 8
_SPACE = ord(" ")


@dataclass(frozen=True)
class Reading:
    """Blocks as the teacher reads them."""

    ids_RT: Ints
    lengths_R: Ints
    covered_RL: Flags
    """The student's tokens whose text the teacher got; padding is never one."""
    partners_RL: Ints
    """The teacher's column with the same token on the same characters, or -1."""
    first_RT: Ints
    last_RT: Ints
    """The student's columns from `first` to before `last` share characters with this token."""


@dataclass(frozen=True)
class _Spans:
    """Tokens in the order of the text: the characters from `starts` to before `ends`."""

    ids: Ints
    starts: Ints
    ends: Ints


@dataclass(frozen=True)
class _Layout:
    """The teacher's tokens in rows; those that are not kept had no place."""

    ids_RT: Ints
    lengths_R: Ints
    rows_K: Ints
    columns_K: Ints
    kept_K: Flags


class SharedText:
    """Reads the student's blocks with the teacher's tokenizer; any thread may."""

    def __init__(
        self,
        student: PreTrainedTokenizerBase,
        teacher: PreTrainedTokenizerBase,
        max_length: int,
    ) -> None:
        self.partners_V = share_tokens(student, teacher)
        self._max_length = max_length
        self._boundaries = [*boundary_ids(student), student.pad_token_id]
        self._first_id, self._last_id = boundary_ids(teacher)
        self._pad_id = teacher.pad_token_id
        self._spellings = spell_all(student)
        # Where a character is several tokens, it counts for the one that has its first byte.
        starts = [[(byte & 0xC0) != 0x80 for byte in word] for word in self._spellings]
        self._widths_V = np.array([sum(flags) for flags in starts], np.int64)
        self._continues_V = np.array([bool(flags) and not flags[0] for flags in starts], np.int64)
        self._is_blank_V = np.array([word.isspace() for word in spell_all(teacher)])
        self._cutter = Cutter(teacher)

    def read(self, ids_RL: Ints, lengths_R: Ints) -> Reading:
        """Read blocks with the teacher's tokenizer.

        A block of more tokens than the teacher has positions is cut there.
        """
        real_RL = np.arange(ids_RL.shape[1]) < lengths_R[:, None]
        rows_N, columns_N = np.nonzero(real_RL)
        ids_N = ids_RL[real_RL].astype(np.int64)
        ends_N = np.cumsum(self._widths_V[ids_N])
        ours = _Spans(ids_N, ends_N - self._widths_V[ids_N] - self._continues_V[ids_N], ends_N)

        texts, firsts_S = self._write(ids_N, rows_N)
        codes = np.frombuffer("".join(texts).encode("utf-32-le"), np.uint32)
        assert len(codes) == ends_N[-1], "every token spells as many characters as it counts"
        theirs, counts_S = self._cut(texts, codes != _SPACE)
        first_K, last_K, same_K = self._meet(ours, theirs, codes != _SPACE)
        layout = self._lay_out(theirs.ids, rows_N[firsts_S], counts_S, len(ids_RL))

        rows_K, columns_K, kept_K = layout.rows_K, layout.columns_K, layout.kept_K
        at = rows_K[kept_K], columns_K[kept_K]
        first_RT, last_RT = np.zeros_like(layout.ids_RT), np.zeros_like(layout.ids_RT)
        first_RT[at] = columns_N[first_K[kept_K]]
        last_RT[at] = first_RT[at] + (last_K - first_K)[kept_K]
        pairs_K = kept_K & same_K
        partners_RL = np.full(ids_RL.shape, -1, np.int64)
        partners_RL[rows_K[pairs_K], columns_N[first_K[pairs_K]]] = columns_K[pairs_K]
        covered_RL = real_RL.copy()
        covered_RL[real_RL] = ends_N <= _find_cuts(layout, theirs.ends)[rows_N]
        return Reading(layout.ids_RT, layout.lengths_R, covered_RL, partners_RL, first_RT, last_RT)

    def _write(self, ids_N: Ints, rows_N: Ints) -> tuple[list[str], Ints]:
        """Return the text of each sentence, and which token is its first."""
        outside_N = np.isin(ids_N, self._boundaries)
        # A sentence is a run of tokens of one row without a boundary; -1 is no row.
        runs = np.concatenate([[-1], np.where(outside_N, -1, rows_N), [-1]])
        changes = runs[1:] != runs[:-1]
        firsts_S = np.flatnonzero(changes[:-1] & ~outside_N)
        lasts_S = np.flatnonzero(changes[1:] & ~outside_N)
        words = list(map(self._spellings.__getitem__, ids_N.tolist()))
        bounds = zip(firsts_S.tolist(), lasts_S.tolist(), strict=True)
        # A block may end in the middle of a character; the mark that replaces it is one, too.
        texts = [b"".join(words[a : b + 1]).decode(errors="replace") for a, b in bounds]
        return texts, firsts_S

    def _cut(self, texts: list[str], solid: Flags) -> tuple[_Spans, Ints]:
        """Cut sentences into the teacher's tokens; also return how many each has."""
        cut = self._cutter.cut(texts)
        starts_K, ends_K = _strip(cut.starts_K, cut.ends_K, solid)
        # Some tokenizers put a space that is a token of its own onto the next character.
        ends_K = np.where(self._is_blank_V[cut.ids_K], starts_K, ends_K)
        return _Spans(cut.ids_K, starts_K, ends_K), cut.counts_S

    def _meet(self, ours: _Spans, theirs: _Spans, solid: Flags) -> tuple[Ints, Ints, Flags]:
        """Return for each token of theirs which of ours it touches, and if it is the same one."""
        first_K = np.searchsorted(ours.ends, theirs.starts, side="right")
        last_K = np.searchsorted(ours.starts, theirs.ends, side="left")
        empty_K = theirs.starts == theirs.ends
        first_K, last_K = np.where(empty_K, 0, first_K), np.where(empty_K, 0, last_K)
        starts_N, ends_N = _strip(ours.starts, ours.ends, solid)
        # The token that spells a whole span is the only one there.
        same_K = (
            (starts_N[first_K] == theirs.starts)
            & (ends_N[first_K] == theirs.ends)
            & (self.partners_V[ours.ids[first_K]] == theirs.ids)
        )
        return first_K, last_K, same_K

    def _lay_out(self, ids_K: Ints, rows_S: Ints, counts_S: Ints, num_rows: int) -> _Layout:
        """Put the sentences' tokens into rows, with `<s>` first and `</s>` after each sentence."""
        sizes_S = counts_S + 1
        totals_R = np.bincount(rows_S, sizes_S, num_rows).astype(np.int64)
        begin_S = 1 + np.cumsum(sizes_S) - sizes_S - (np.cumsum(totals_R) - totals_R)[rows_S]
        lengths_R = np.minimum(1 + totals_R, self._max_length)

        sentence_K = np.repeat(np.arange(len(counts_S)), counts_S)
        rows_K = rows_S[sentence_K]
        places_K = np.arange(len(ids_K)) - (np.cumsum(counts_S) - counts_S)[sentence_K]
        columns_K = begin_S[sentence_K] + places_K
        # The last place is `</s>` also where a row was cut.
        kept_K = columns_K < lengths_R[rows_K] - 1

        width = min(-(-int(lengths_R.max()) // _MULTIPLE) * _MULTIPLE, self._max_length)
        ids_RT = np.full((num_rows, width), self._pad_id, np.int64)
        ids_RT[rows_K[kept_K], columns_K[kept_K]] = ids_K[kept_K]
        ends_S = np.minimum(begin_S + counts_S, lengths_R[rows_S] - 1)
        ids_RT[rows_S, ends_S] = self._last_id
        ids_RT[:, 0] = self._first_id
        return _Layout(ids_RT, lengths_R, rows_K, columns_K, kept_K)


def _strip(starts: Ints, ends: Ints, solid: Flags) -> tuple[Ints, Ints]:
    """Take spaces off both ends of spans; spans of nothing else become empty."""
    places = np.arange(len(solid))
    following = np.minimum.accumulate(np.where(solid, places, len(solid))[::-1])[::-1]
    preceding = np.maximum.accumulate(np.where(solid, places + 1, 0))
    starts = np.append(following, len(solid))[starts]
    ends = np.append(0, preceding)[ends]
    return starts, np.maximum(starts, ends)


def _find_cuts(layout: _Layout, ends_K: Ints) -> Ints:
    """Return the character up to which the teacher reads each row; no end if it was not cut."""
    rows_K, kept_K = layout.rows_K, layout.kept_K
    cuts_R = np.zeros_like(layout.lengths_R)
    np.maximum.at(cuts_R, rows_K[kept_K], ends_K[kept_K])
    is_whole_R = np.ones(len(cuts_R), np.bool_)
    is_whole_R[rows_K[~kept_K]] = False
    cuts_R[is_whole_R] = np.iinfo(np.int64).max
    return cuts_R
