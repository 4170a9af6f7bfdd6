"""The stages before any training: corpus, vocabulary, shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from metaxlm.config import PhrasebookRecipe, Recipe
from metaxlm.corpus.shards import Shard, open_shard, write_shard
from metaxlm.corpus.text import (
    find_text,
    read_documents,
    read_sentences,
    split_into_sentences,
    write_documents,
)
from metaxlm.experiments.layout import RunLayout
from metaxlm.phrasebook import PhrasebookSizes, write_phrasebook
from metaxlm.progress import Advance, track
from metaxlm.vocabulary.byte_bpe import train_byte_bpe
from metaxlm.vocabulary.sample import sample_counts, sample_sentences
from metaxlm.vocabulary.unigram import train_unigram

MULTILINGUAL = "multilingual"
MONOLINGUAL = "monolingual"


def prepare_corpus(recipe: Recipe, folder: Path) -> None:
    """Write `text/XX.txt`, a sentence a line, for every language of the recipe."""
    if recipe.corpus.source == "phrasebook":
        sizes = _phrasebook_sizes(recipe.corpus.phrasebook)
        write_phrasebook(folder, recipe.languages, recipe.seed, sizes)
        return
    assert recipe.corpus.path is not None  # the recipe checks it
    with track("corpus", len(recipe.languages), "languages") as advance:
        for language in recipe.languages:
            documents = read_documents(find_text(recipe.corpus.path, language))
            if recipe.corpus.split_sentences:
                documents = split_into_sentences(documents, language)
            write_documents(folder / "text" / f"{language}.txt", documents)
            advance()


def _phrasebook_sizes(wishes: PhrasebookRecipe) -> PhrasebookSizes:
    return PhrasebookSizes(
        english_sentences=wishes.source_sentences,
        other_sentences=wishes.sentences,
        tatoeba=wishes.test_pairs,
        wordalign=wishes.aligned_pairs,
        xnli_train=wishes.train_examples,
        pawsx_train=wishes.train_examples,
        tagging_train=wishes.train_examples,
        squad_train=max(1, wishes.train_examples // 6),
        cls_train=max(1, wishes.train_examples // 10),
        dev=max(1, wishes.test_examples // 2),
        test=wishes.test_examples,
        dictionary_sentences=max(200, wishes.source_sentences // 5),
    )


def prepare_vocabularies(recipe: Recipe, layout: RunLayout, folder: Path) -> None:
    """Train the shared vocabulary, and the monolingual one unless an encoder is imported."""
    settings = recipe.vocabulary
    paths = {language: layout.text(language) for language in recipe.languages}
    counts = {language: sum(1 for _ in read_sentences(path)) for language, path in paths.items()}
    texts = {language: read_sentences(path) for language, path in paths.items()}
    wanted = sample_counts(counts, settings.alpha, settings.sample_sentences)
    sample = sample_sentences(texts, counts, wanted, recipe.seed)
    with track("shared vocabulary", sum(wanted.values()), "sentences") as advance:
        tokenizer = train_unigram(_count_off(sample, advance), settings.size)
    tokenizer.save_pretrained(folder / MULTILINGUAL)
    if recipe.meta.model is None:
        sentences = read_sentences(layout.text(recipe.source_language))
        total = counts[recipe.source_language]
        with track("monolingual vocabulary", total, "sentences") as advance:
            tokenizer = train_byte_bpe(_count_off(sentences, advance), settings.monolingual_size)
        tokenizer.save_pretrained(folder / MONOLINGUAL)


def _count_off(sentences: Iterable[str], advance: Advance) -> Iterator[str]:
    for sentence in sentences:
        advance()
        yield sentence


def load_vocabulary(layout: RunLayout, name: str) -> PreTrainedTokenizerBase:
    """Load one of the run's tokenizers."""
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(layout.vocabulary / name)
    return tokenizer


def prepare_shards(recipe: Recipe, layout: RunLayout, folder: Path) -> None:
    """Tokenize every language with the shared vocabulary, the source also with its own."""
    work = [(MULTILINGUAL, language) for language in recipe.languages]
    if recipe.meta.model is None:
        work.append((MONOLINGUAL, recipe.source_language))
    with track("shards", len(work), "languages") as advance:
        for vocabulary, language in work:
            tokenizer = load_vocabulary(layout, vocabulary)
            sentences = read_sentences(layout.text(language))
            write_shard(folder / vocabulary / language, sentences, tokenizer)
            advance()


def open_shards(recipe: Recipe, layout: RunLayout) -> Mapping[str, Shard]:
    """Open the shards of cross-lingual pretraining."""
    folder = layout.shards / MULTILINGUAL
    return {language: open_shard(folder / language) for language in recipe.languages}
