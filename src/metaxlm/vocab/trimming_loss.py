"""What trimming a vocabulary costs, language by language.

Comes in: the tokenizers before and after, and text of each language, best some that was not counted
when the pieces were chosen. Goes out: how many sentences are still cut as before, and how many more
tokens the others have. A sentence that is cut alike gets the same vectors from a trimmed model as
from the whole one, bit for bit; so one less this share is how much trimming can change at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tokenizers import Encoding, Tokenizer
from transformers import PreTrainedTokenizerBase

from metaxlm.analysis.tables import Table, text_table
from metaxlm.errors import MetaXLMError
from metaxlm.languages import language_name
from metaxlm.vocab.tokenizer_file import read_tokenizer

# A batch is full at so many texts or characters: enough work to share, little enough to hold.
_BATCH_TEXTS = 1 << 12
_BATCH_CHARACTERS = 1 << 20


@dataclass(frozen=True)
class TrimLoss:
    """How one language's text is cut before and after; all that a table needs."""

    rows_before: int
    rows_after: int
    sentences: int
    characters: int
    same: int
    """Sentences that become the same tokens."""
    tokens_before: int
    tokens_after: int
    unknown_before: int
    """Tokens that stand for what the vocabulary does not know."""
    unknown_after: int

    @property
    def same_share(self) -> float:
        """The share of sentences that become the same tokens."""
        return self.same / self.sentences

    @property
    def growth(self) -> float:
        """How much longer the text became, in tokens: 0.01 is one percent."""
        return self.tokens_after / self.tokens_before - 1


def measure_loss(
    before: PreTrainedTokenizerBase,
    after: PreTrainedTokenizerBase,
    texts_by_language: Mapping[str, Iterable[str]],
) -> dict[str, TrimLoss]:
    """Compare how two tokenizers cut the sentences of each language."""
    return {
        language: _measure(before, after, texts, language)
        for language, texts in texts_by_language.items()
    }


def _measure(
    before: PreTrainedTokenizerBase,
    after: PreTrainedTokenizerBase,
    texts: Iterable[str],
    language: str,
) -> TrimLoss:
    row_of = before.get_vocab()
    # Rows after, named by the rows before: equal names are equal tokens.
    old_row = {row: row_of.get(token, -1) for token, row in after.get_vocab().items()}
    sentences = characters = same = 0
    tokens, unknown = [0, 0], [0, 0]
    for batch, encodings in _encode_batches([before, after], texts):
        sentences += len(batch)
        characters += sum(map(len, batch))
        for old, new in zip(*encodings, strict=True):
            pair = old.ids, new.ids
            same += len(pair[0]) == len(pair[1]) and pair[0] == [old_row[row] for row in pair[1]]
            for place, tokenizer in enumerate((before, after)):
                tokens[place] += len(pair[place])
                unknown[place] += pair[place].count(tokenizer.unk_token_id)
    if not tokens[0]:
        raise MetaXLMError(f"trimming: no text of {language} to measure the loss on; give some")
    return TrimLoss(len(before), len(after), sentences, characters, same, *tokens, *unknown)


def _encode_batches(
    tokenizers: Iterable[PreTrainedTokenizerBase], texts: Iterable[str]
) -> Iterator[tuple[list[str], list[list[Encoding]]]]:
    """Yield batches of texts, each encoded by every tokenizer, as plain text in full length."""
    backends = [_copy_backend(tokenizer) for tokenizer in tokenizers]
    for batch in _batch(texts):
        yield batch, [b.encode_batch_fast(batch, add_special_tokens=False) for b in backends]


def _copy_backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer:
    """Return a tokenizer without truncation and padding, to which `<s>` in a text is just text."""
    content = read_tokenizer(tokenizer).content
    backend = Tokenizer.from_str(json.dumps({**content, "truncation": None, "padding": None}))
    backend.encode_special_tokens = True
    return backend


def _batch(texts: Iterable[str]) -> Iterator[list[str]]:
    if isinstance(texts, str):
        raise MetaXLMError("trimming: one string where many are expected; put it into a list")
    batch: list[str] = []
    characters = 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if len(batch) == _BATCH_TEXTS or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def loss_table(
    losses: Mapping[str, TrimLoss], similarities: Mapping[str, float] | None = None
) -> Table:
    """Return one row per language; `similarities` are mean cosines of vectors before and after."""
    size = next(iter(losses.values()))
    share = 100 * size.rows_after / size.rows_before
    title = f"{size.rows_after:,} of {size.rows_before:,} tokens kept ({share:.1f} %)"
    headings = ["language", "sentences", "same tokens", "tokens", "unknown"]
    rows = []
    for language, loss in losses.items():
        before = 100 * loss.unknown_before / max(1, loss.tokens_before)
        after = 100 * loss.unknown_after / max(1, loss.tokens_after)
        row = [
            language_name(language),
            f"{loss.sentences:,}",
            f"{100 * loss.same_share:.2f} %",
            f"{100 * loss.growth:+.3f} %",
            f"{before:.3f} → {after:.3f} %",
        ]
        rows.append([*row, *([f"{similarities[language]:.5f}"] if similarities else [])])
    headings += ["cosine"] if similarities else []
    return text_table("trimming", title, headings, rows, ["On held-out sentences."])
