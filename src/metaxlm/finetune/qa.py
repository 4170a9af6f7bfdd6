"""Extractive question answering (XQuAD, MLQA, TyDiQA-GoldP, custom tasks).

A question and its context are a pair in the tokenizer's own template. A longer context is split
into windows that start `stride` tokens after one another, as in the scripts of XTREME and xTune.
(The `stride` of transformers' tokenizers is the overlap instead.) As there, a question keeps its
first 64 tokens, a window without the answer points to the first token, and where windows overlap an
answer starts in the one with most context on both sides of the token ("max context").

The best answer is found as there, too: in each window the 20 best starts and ends are combined, an
answer has at most 30 tokens, and the highest sum of logits wins; among equal sums the earlier
window, then the higher logit, then the earlier token. Unlike there, the 20 best are chosen among
the tokens that may start or end an answer, and if no two of them fit together, all pairs are
searched. Shapes: B batch, L length, N candidates.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase as Tokenizer

from metaxlm.errors import MetaXLMError
from metaxlm.files import dump_json
from metaxlm.finetune.batches import compute_cross_entropy
from metaxlm.finetune.encoding import Ids
from metaxlm.finetune.metrics import normalize_squad, score_answer
from metaxlm.finetune.readers.questions import NOWHERE, Question
from metaxlm.finetune.task import (
    IGNORED,
    Features,
    FeatureSet,
    FinetuneSettings,
    Logits,
    Tally,
    Task,
)
from metaxlm.model.heads import HeadKind
from metaxlm.scripts import UNSPACED_CHARACTERS

MAX_QUESTION_TOKENS = 64
"""Questions are truncated to this, as in XTREME's script, and to half of the sequence."""
NUM_CANDIDATES = 20
MAX_ANSWER_TOKENS = 30

_TEXTS_AT_ONCE = 1_000
_ALL = 1 << 30  # candidates: all tokens
_LARGEST = 1e30  # replaces infinite logits, so that sums stay finite; minus this replaces NaN
_UNIT = re.compile(rf"[{UNSPACED_CHARACTERS}]|[^\s{UNSPACED_CHARACTERS}]+")
_BLANKS = np.array([code for code in range(0x3001) if chr(code).isspace()], dtype="<u4")

Offsets = npt.NDArray[np.int32]
Questions = Sequence[Question]


@dataclass(frozen=True, kw_only=True)
class Window(Features):
    """A question and a part of its context."""

    offsets: Offsets
    may_start: npt.NDArray[np.bool_]
    """Tokens of the context that have the most context in this window."""


class _Tokens(NamedTuple):
    ids: Ids
    offsets: Offsets


class _Template(NamedTuple):
    """The special tokens around the two texts of a pair, and the token type of each part."""

    before: Ids
    between: Ids
    after: Ids
    types: Ids


@dataclass(kw_only=True, eq=False)
class SpanTask(Task[Question, str]):
    """Find the answer to a question in its context."""

    kind: ClassVar[HeadKind] = "span"
    submission_suffix: ClassVar[str] = ".json"
    normalize: Callable[[str, str], str] = lambda text, _: normalize_squad(text)
    """Maps a text in a language to a form that is equal for equal answers."""

    def featurize(
        self, examples: Questions, tokenizer: Tokenizer, settings: FinetuneSettings
    ) -> FeatureSet:
        """Turn questions into windows of at most `settings.length` tokens, in order."""
        length, stride = settings.length, settings.stride
        template = _find_template(tokenizer)
        space = length - sum(map(len, template[:3]))
        if space < 2:
            raise MetaXLMError(
                f"a question and its context do not fit into length {length}; increase it"
            )
        limit = min(MAX_QUESTION_TOKENS, space // 2)
        asked = _tokenize(tokenizer, [question.question for question in examples])
        contexts = _tokenize(tokenizer, [question.context for question in examples])
        contexts = {text: _settle_offsets(text, tokens) for text, tokens in contexts.items()}
        windows: list[Features] = []
        counts = {"cut": 0, "split": 0, "lost": 0}
        for index, question in enumerate(examples):
            ids = asked[question.question].ids
            counts["cut"] += len(ids) > limit
            room = space - min(len(ids), limit)
            context = contexts[question.context]
            # Neighbors overlap by at least half, for any sequence length.
            spans = place_windows(len(context.ids), room, min(stride, -(-room // 2)))
            counts["split"] += len(spans) > 1
            ends = _find_answer(question, context.offsets)
            counts["lost"] += bool(question.answers) and ends is None
            windows += _split_context(index, template, ids[:limit], context, spans, ends)
        texts = {
            "cut": f"are truncated to their first {limit} tokens",
            "split": f"have a context longer than {length} tokens, {len(windows):,} windows in all",
            "lost": "have no answer among the tokens of their context and do not train",
        }
        parts = [f"{counts[key]:,} {text}" for key, text in texts.items() if counts[key]]
        notice = f"of {len(examples):,} questions, {'; '.join(parts)}" if parts else ""
        return FeatureSet(windows, notice)

    def compute_loss(self, logits: Tensor, labels: Tensor, lengths_B: Tensor) -> Tensor:
        """Return the mean cross entropy of start and end over the real tokens."""
        columns_L = torch.arange(logits.shape[1], device=logits.device)
        is_padding_BL = columns_L >= lengths_B[:, None]
        scores_BL2 = logits.float().masked_fill(is_padding_BL[:, :, None], -torch.inf)
        return compute_cross_entropy(scores_BL2, labels)

    def decode(
        self, examples: Questions, features: Sequence[Features], logits: Sequence[Logits]
    ) -> list[str]:
        """Return each question's best answer, stripped; empty if no token may start one."""
        best: dict[int, tuple[float, str]] = {}
        for num_candidates in (NUM_CANDIDATES, _ALL):
            answered = set(best)
            for window, scores in zip(cast(Sequence[Window], features), logits, strict=True):
                example = window.example
                if example in answered:
                    continue
                score, start, end = _search(window, scores, num_candidates)
                if score > best.get(example, (-np.inf, ""))[0]:
                    first, last = window.offsets[start, 0], window.offsets[end, 1]
                    best[example] = (score, examples[example].context[first:last].strip())
        return [best.get(number, (0.0, ""))[1] for number in range(len(examples))]

    def tally(self, examples: Questions, predictions: Sequence[str], language: str) -> Tally:
        """Return F1, exact match and 1 for each question."""
        rows = []
        for example, prediction in zip(examples, predictions, strict=True):
            texts = [answer.text for answer in example.answers]
            score = score_answer(prediction, texts, lambda text: self.normalize(text, language))
            rows.append((*score, 1.0))
        return np.array(rows, dtype=np.float64).reshape(-1, 3)

    def summarize(self, totals: Tally) -> dict[str, Tally]:
        """Return the means of F1 and exact match."""
        return {"f1": totals[..., 0] / totals[..., 2], "em": totals[..., 1] / totals[..., 2]}

    def answer_majority(self, train: Questions, examples: Questions) -> list[str]:
        """Answer with the start of the context, as long as the median training answer."""
        length = int(np.median(_measure_answers(train)))
        return [_extract(example.context, 0, length) for example in examples]

    def answer_randomly(
        self, train: Questions, examples: Questions, random: np.random.Generator
    ) -> list[str]:
        """Answer with a random part of the context, as long as a random training answer."""
        lengths = random.choice(_measure_answers(train), size=len(examples))
        places = random.random(len(examples))
        answers: list[str] = []
        for example, length, place in zip(examples, lengths.tolist(), places.tolist(), strict=True):
            num_places = max(len(_find_units(example.context)) - length + 1, 1)
            answers.append(_extract(example.context, int(place * num_places), length))
        return answers

    def format_predictions(self, examples: Questions, predictions: Sequence[str]) -> str:
        """Return a JSON object of answers by question id."""
        ids = (example.id for example in examples)
        return dump_json(dict(zip(ids, predictions, strict=True)))


@lru_cache(maxsize=256)
def _find_units(text: str) -> tuple[tuple[int, int], ...]:
    """Return first and last + 1 character of each word, or character of an unspaced script."""
    return tuple(unit.span() for unit in _UNIT.finditer(text))


def _measure_answers(train: Questions) -> npt.NDArray[np.int64]:
    """Return the lengths of the training answers in words or characters; 1 without any."""
    lengths = [len(_UNIT.findall(answer.text)) for item in train for answer in item.answers[:1]]
    return np.array(lengths or [1], dtype=np.int64)


def _extract(context: str, first: int, length: int) -> str:
    """Return words (or characters) of a context, with the text between them."""
    units = _find_units(context)[first : first + length]
    return context[units[0][0] : units[-1][1]] if units else ""


def place_windows(num_tokens: int, room: int, stride: int) -> list[tuple[int, int]]:
    """Return first and last + 1 token of each window; together they cover every token."""
    assert 0 < stride <= room, (stride, room)
    starts = range(0, max(num_tokens - room + stride, 1), stride)
    return [(start, min(start + room, num_tokens)) for start in starts]


def choose_windows(spans: Sequence[tuple[int, int]]) -> npt.NDArray[np.int64]:
    """Return for each token the window whose nearer end is farthest, the first among equals."""
    tokens = np.arange(spans[-1][1])
    contexts = []
    for start, end in spans:
        nearer = np.minimum(tokens - start, end - 1 - tokens)
        contexts.append(np.where(nearer >= 0, nearer + 0.01 * (end - start), -1.0))
    return np.asarray(np.array(contexts).argmax(axis=0), dtype=np.int64)


def _split_context(
    index: int,
    template: _Template,
    question: Ids,
    context: _Tokens,
    spans: Sequence[tuple[int, int]],
    ends: tuple[int, int] | None,
) -> list[Window]:
    before, between, after, types = template
    chosen = choose_windows(spans) if len(spans) > 1 else np.zeros(spans[0][1], dtype=np.int64)
    shift = len(before) + len(question) + len(between)
    made: list[Window] = []
    for number, (start, end) in enumerate(spans):
        parts = (before, question, between, context.ids[start:end], after)
        ids = np.concatenate(parts)
        here = slice(shift, shift + end - start)
        offsets = np.full((len(ids), 2), -1, dtype=np.int32)
        offsets[here] = context.offsets[start:end]
        may_start = np.zeros(len(ids), dtype=np.bool_)
        may_start[here] = chosen[start:end] == number
        labels = (IGNORED, IGNORED)
        if ends is not None:
            is_here = start <= ends[0] and ends[1] < end
            labels = (ends[0] - start + shift, ends[1] - start + shift) if is_here else (0, 0)
        made.append(
            Window(
                ids=ids,
                labels=np.array(labels, dtype=np.int32),
                token_types=np.repeat(types, [len(part) for part in parts]),
                example=index,
                offsets=offsets,
                may_start=may_start,
            )
        )
    return made


def _find_answer(question: Question, offsets: Offsets) -> tuple[int, int] | None:
    """Return the first and last token of the first answer in the context; None if it has none."""
    answer = next((answer for answer in question.answers if answer.start != NOWHERE), None)
    if answer is None:
        return None
    start = answer.start + len(answer.text) - len(answer.text.lstrip())
    end = answer.start + len(answer.text.rstrip())
    inside = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(inside[0]), int(inside[-1])) if len(inside) else None


def _find_template(tokenizer: Tokenizer) -> _Template:
    if not tokenizer.is_fast:
        raise MetaXLMError(
            f"{type(tokenizer).__name__} has no offsets of its tokens; questions need a fast "
            f"tokenizer (a folder with tokenizer.json)"
        )
    encoded = tokenizer(["a"], ["a"], return_token_type_ids=True)
    sides = encoded.encodings[0].sequence_ids
    ids = np.array(encoded["input_ids"][0], dtype=np.int32)
    types = np.array(encoded["token_type_ids"][0], dtype=np.int32)
    first, second = sides.index(0), sides.index(1)
    first_end = len(sides) - sides[::-1].index(0)
    second_end = len(sides) - sides[::-1].index(1)
    assert first < first_end <= second < second_end, "the question is before the context"
    # The type of a part without tokens is not used.
    types = types[[0, first, first_end, second, -1]]
    return _Template(ids[:first], ids[first_end:second], ids[second_end:], types)


def _tokenize(tokenizer: Tokenizer, texts: Sequence[str]) -> dict[str, _Tokens]:
    """Tokenize each distinct text once, without special tokens."""
    distinct = list(dict.fromkeys(texts))
    tokens: dict[str, _Tokens] = {}
    for start in range(0, len(distinct), _TEXTS_AT_ONCE):
        batch = distinct[start : start + _TEXTS_AT_ONCE]
        encoded = tokenizer(
            batch,
            add_special_tokens=False,
            return_offsets_mapping=True,
            return_attention_mask=False,
            verbose=False,
        )
        rows = zip(batch, encoded["input_ids"], encoded["offset_mapping"], strict=True)
        for text, ids, spans in rows:
            offsets = np.array(spans, dtype=np.int32).reshape(-1, 2)
            tokens[text] = _Tokens(np.array(ids, dtype=np.int32), offsets)
    return tokens


def _settle_offsets(text: str, tokens: _Tokens) -> _Tokens:
    """Add dropped marks to the letter before them, and empty the offsets of white space.

    A BERT tokenizer that strips accents drops the vowel signs at the end of Thai and Hindi words.
    """
    offsets = tokens.offsets.copy()
    is_blank = np.isin(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4"), _BLANKS)
    next_starts = np.append(offsets[1:, 0], len(text))
    gaps = np.flatnonzero(offsets[:, 1] < next_starts)
    for gap in gaps[~is_blank[offsets[gaps, 1]]].tolist():
        end = int(offsets[gap, 1])
        while end < next_starts[gap] and unicodedata.category(text[end]).startswith("M"):
            end += 1
        offsets[gap, 1] = end
    num_inked = np.concatenate(([0], np.cumsum(~is_blank)))
    is_empty = num_inked[offsets[:, 0]] == num_inked[offsets[:, 1]]
    offsets[is_empty, 1] = offsets[is_empty, 0]
    return _Tokens(tokens.ids, offsets)


def _search(window: Window, logits: Logits, num_candidates: int) -> tuple[float, int, int]:
    """Return score, start and end of a window's best answer; -inf if no two candidates fit."""
    values_L2 = np.nan_to_num(logits, nan=-_LARGEST, posinf=_LARGEST, neginf=-_LARGEST)
    may_end_L = window.offsets[:, 1] > window.offsets[:, 0]
    ends_L = np.where(may_end_L, values_L2[:, 1], -np.inf).astype(np.float64)
    starts_L = np.where(may_end_L & window.may_start, values_L2[:, 0], -np.inf).astype(np.float64)
    places_N = np.argsort(-starts_L, kind="stable")[:num_candidates]
    others_N = np.argsort(-ends_L, kind="stable")[:num_candidates]
    sums_NN = starts_L[places_N][:, None] + ends_L[others_N]
    steps_NN = others_N - places_N[:, None]
    sums_NN[(steps_NN < 0) | (steps_NN >= MAX_ANSWER_TOKENS)] = -np.inf
    start, end = divmod(int(sums_NN.argmax()), len(others_N))
    return float(sums_NN[start, end]), int(places_N[start]), int(others_N[end])
