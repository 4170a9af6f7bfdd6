"""How many tokens a cell computes, counted before any model exists.

Comes in: the plan of a task (its files, settings, languages) and a tokenizer, or none yet. Goes
out: optimizer steps and tokens of one cell. Every file is read, as a cell reads it, so that a
broken one shows before anything is trained; of each, some examples are encoded and the others taken
for like them. The tasks are those of the paper's Section 4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerBase

from metaxlm.config import RetrievalRecipe
from metaxlm.experiments.evaluation_plan import FeaturePlan, TaskPlan
from metaxlm.tasks.readers import read_tatoeba, read_word_alignment
from metaxlm.tasks.task import DataFile
from metaxlm.vocabulary.special_tokens import FIRST_TOKENS, MASK_TOKEN, wrap_tokenizer

_ENCODED_EXAMPLES = 64
"""Examples of a file that are encoded to learn how long they are."""
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_PIECE = rf"\s*(?:[{_UNSPACED}]{{1,2}}|[^\s{_UNSPACED}]{{1,4}})"
"""About what a trained vocabulary makes a piece of: four letters, or two signs without spaces."""


@dataclass(frozen=True)
class Workload:
    """What a cell computes."""

    steps: float = 0
    """Optimizer steps of all epochs."""
    trained: float = 0
    """Tokens that are trained on, all epochs."""
    judged: float = 0
    """Tokens that are only read: to pick an epoch, and to judge."""
    length: float = 0
    """Tokens of a mean sequence."""
    retrieved: int = 0
    """Languages in which sentences look for their translations."""
    linked: float = 0
    """Sentence pairs whose words are aligned."""


@dataclass(frozen=True)
class Shape:
    """The sequences of one file."""

    sequences: float
    tokens: float


def make_stand_in() -> PreTrainedTokenizerBase:
    """Make a tokenizer that cuts texts about as a trained vocabulary does; its ids mean nothing."""
    ids = {token: number for number, token in enumerate([*FIRST_TOKENS, MASK_TOKEN])}
    tokenizer = Tokenizer(WordLevel(ids, unk_token="<unk>"))
    tokenizer.pre_tokenizer = Split(Regex(_PIECE), "isolated")
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", ids["<s>"]), ("</s>", ids["</s>"])],
    )
    return wrap_tokenizer(tokenizer)


@dataclass
class Counter:
    """Counts what cells compute; a file is read once."""

    tokenizer: PreTrainedTokenizerBase
    _shapes: dict[tuple[str, Path, str, str], Shape] = field(default_factory=dict)

    def count_task(self, plan: TaskPlan, source: str) -> Workload:
        """Count one finetuning and all that it is judged on."""
        train = self._add(plan, [f for f in plan.files if _is(f, source, "train")])
        judged = _find_judged(plan)
        selecting = self._add(plan, _find_selecting(plan, source, judged))
        settings = plan.settings
        steps = settings.epochs * math.ceil(train.sequences / settings.batch_size)
        read = self._add(plan, judged)
        return Workload(
            steps,
            settings.epochs * train.tokens,
            read.tokens + settings.epochs * selecting.tokens,
            train.tokens / max(1, train.sequences),
        )

    def count_judging(self, plan: TaskPlan, source: str) -> Workload:
        """Count what a task adds to a training that it shares with another."""
        whole = self.count_task(plan, source)
        return Workload(judged=self._add(plan, _find_judged(plan)).tokens, length=whole.length)

    def count_feature(self, plan: FeaturePlan) -> Workload:
        """Count what a task without finetuning reads."""
        tokens, pairs = 0.0, 0.0
        is_retrieval = isinstance(plan.settings, RetrievalRecipe)
        for language in plan.languages:
            if is_retrieval:
                sentences = read_tatoeba(plan.data_dir, language)
                both = list(zip(sentences.foreign, sentences.english, strict=True))
            else:
                gold = read_word_alignment(plan.data_dir, language)
                both = [(" ".join(p.source), " ".join(p.target)) for p in gold.pairs]
            some = both[:_ENCODED_EXAMPLES]
            texts = [text for pair in some for text in pair]
            found = sum(map(len, self.tokenizer(texts)["input_ids"]))
            tokens += found / max(1, len(some)) * len(both)
            pairs += len(both)
        length = tokens / max(1, pairs) / (2 if is_retrieval else 1)
        return Workload(
            judged=tokens,
            length=length,
            retrieved=len(plan.languages) if is_retrieval else 0,
            linked=0 if is_retrieval else pairs,
        )

    def _add(self, plan: TaskPlan, files: Sequence[DataFile]) -> Shape:
        shapes = [self._measure(plan, file) for file in files]
        return Shape(sum(s.sequences for s in shapes), sum(s.tokens for s in shapes))

    def _measure(self, plan: TaskPlan, file: DataFile) -> Shape:
        # Tasks that share a training set read it alike, but cut it to their own lengths.
        name = f"{plan.training} {plan.settings.length} {plan.settings.stride}"
        key = (name, file.path, file.split, file.language)
        if key not in self._shapes:
            examples = plan.task.read(file).items
            some = examples[:: max(1, len(examples) // _ENCODED_EXAMPLES)][:_ENCODED_EXAMPLES]
            features = plan.task.featurize(some, self.tokenizer, plan.settings).features
            times = len(examples) / max(1, len(some))
            tokens = sum(len(feature.ids) for feature in features)
            self._shapes[key] = Shape(times * len(features), times * tokens)
        return self._shapes[key]


def _is(file: DataFile, language: str, split: str) -> bool:
    return file.language == language and file.split == split


def _find_judged(plan: TaskPlan) -> list[DataFile]:
    """Return the files whose scores a cell stores."""
    judged = (file for file in plan.files if file.split in ("dev", "test"))
    return [file for file in judged if file.language in plan.languages]


def _find_selecting(plan: TaskPlan, source: str, judged: Sequence[DataFile]) -> list[DataFile]:
    """Return the files that are read after each epoch."""
    if plan.settings.select_by == "last":
        return []
    if plan.settings.select_by == "all":
        return [file for file in judged if file.split == "dev"]
    own = [f for f in plan.files if _is(f, source, "select")]
    return own or [f for f in plan.files if _is(f, source, "dev")]
