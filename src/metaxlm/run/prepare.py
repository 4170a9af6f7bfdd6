"""The stages before training: corpus, vocabulary, shards."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from metaxlm import __version__
from metaxlm.data.decontaminate import TEST_SENTENCE, describe_removed, write_test_hashes
from metaxlm.data.demo import write_phrasebook
from metaxlm.data.shards import Shard, open_shard
from metaxlm.data.text import read_counts, read_sentences, seal_text
from metaxlm.errors import MetaXLMError
from metaxlm.init.pieces import extend_wordpiece
from metaxlm.init.start import trim
from metaxlm.languages import explain_unknown
from metaxlm.manifest import write_manifest
from metaxlm.progress import say
from metaxlm.recipe import Recipe
from metaxlm.run.layout import RunLayout
from metaxlm.vocab.tokenizer import load_tokenizer, train_byte_bpe
from metaxlm.vocab.unigram import sample_counts, sample_sentences, train_unigram

MULTILINGUAL = "multilingual"
MONOLINGUAL = "monolingual"
_TEST_HASHES = "test_sentences.bin"


def prepare_corpus(recipe: Recipe, layout: RunLayout, folder: Path) -> None:
    """Write `text/XX/` with one sentence per line for each language of the recipe."""
    if recipe.corpus.source == "phrasebook":
        write_phrasebook(folder, recipe.languages, recipe.seed, recipe.corpus.phrasebook)
        for language in recipe.languages:
            seal_text(folder / "text" / language)
        return
    # Imported here: a machine with finished shards does not need the readers of raw text.
    from metaxlm.data.pipeline import prepare_text

    for line in explain_unknown(recipe.languages):
        say(line)
    work_dir, text = layout.work("corpus"), folder / "text"
    tests = _collect_tests(recipe.corpus.decontaminate, work_dir)
    prepare_text(recipe.corpus, recipe.languages, recipe.engine, text, work_dir, tests)
    if tests is not None:
        counts = {code: read_counts(text / code).dropped or {} for code in recipe.languages}
        removed = [(code, one.get(TEST_SENTENCE, 0)) for code, one in counts.items()]
        say(f"corpus: {describe_removed(removed)}")


def _collect_tests(folder: Path | None, work_dir: Path) -> Path | None:
    """Write the hashes of the test sets in a folder for the workers."""
    if folder is None:
        return None
    from metaxlm.finetune.test_sentences import list_test_sentences

    names: Counter[str] = Counter()

    def list_texts() -> Iterator[str]:
        for name, text in list_test_sentences(folder):
            names[name] += 1
            yield text

    work_dir.mkdir(parents=True, exist_ok=True)
    path = work_dir.absolute() / _TEST_HASHES
    total = write_test_hashes(path, list_texts())
    say(f"corpus: removing {total:,} sentences of test sets ({', '.join(names)})")
    return path


def prepare_vocabularies(recipe: Recipe, layout: RunLayout, folder: Path) -> None:
    """Train or load the shared vocabulary; train the monolingual one unless one is imported."""
    settings, name = recipe.vocabulary, recipe.vocabulary.model
    tokenizer = _train_shared(recipe, layout) if name is None else load_tokenizer(name)
    if settings.min_count:
        tokenizer = _trim(tokenizer, recipe, layout)
    _save(tokenizer, folder / MULTILINGUAL)
    if recipe.meta.model is None:
        text = layout.text(recipe.source_language)
        total = read_counts(text).text.sentences
        monolingual = train_byte_bpe(read_sentences(text), settings.monolingual_size, total)
        _save(monolingual, folder / MONOLINGUAL)


def _train_shared(recipe: Recipe, layout: RunLayout) -> PreTrainedTokenizerBase:
    settings = recipe.vocabulary
    folders = {language: layout.text(language) for language in recipe.languages}
    counts = {name: read_counts(folder).text.sentences for name, folder in folders.items()}
    wanted = sample_counts(counts, settings.alpha, settings.sample_sentences)
    texts = {language: read_sentences(folder) for language, folder in folders.items()}
    if settings.extend:
        assert recipe.meta.model is not None  # the recipe checks it
        samples = {
            language: list(sample_sentences({language: text}, counts, wanted, recipe.seed))
            for language, text in texts.items()
        }
        encoder = load_tokenizer(recipe.meta.model)
        choices = recipe.source_language, settings.size, settings.character_coverage
        extension = extend_wordpiece(encoder, samples, *choices)
        say(f"vocabulary: {len(extension.words):,} pieces added to the encoder's {len(encoder):,}")
        return extension.tokenizer
    sample = sample_sentences(texts, counts, wanted, recipe.seed)
    total = sum(wanted.values())
    return train_unigram(sample, settings.size, total, coverage=settings.character_coverage)


def _trim(
    tokenizer: PreTrainedTokenizerBase, recipe: Recipe, layout: RunLayout
) -> PreTrainedTokenizerBase:
    trimmed = trim(tokenizer, layout.corpus, recipe.languages, recipe.vocabulary.min_count)
    worst = min(trimmed.losses, key=lambda language: trimmed.losses[language].same_share)
    say(f"vocabulary: keeping {len(trimmed.rows):,} of {len(tokenizer):,} tokens")
    share = f"{trimmed.losses[worst].same_share:.2%} of the held-out sentences"
    say(f"vocabulary: at least {share} keep their tokenization ({worst} has the fewest)")
    return trimmed.tokenizer


def _save(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    tokenizer.save_pretrained(folder)
    write_manifest(folder, {"metaxlm": __version__, "rows": len(tokenizer)})


def load_vocabulary(layout: RunLayout, name: str) -> PreTrainedTokenizerBase:
    """Load one of the run's tokenizers."""
    folder = layout.vocabulary / name
    if not folder.is_dir():
        raise MetaXLMError(f"{folder}: no such vocabulary; run the recipe to create it")
    return load_tokenizer(str(folder))


def prepare_shards(recipe: Recipe, layout: RunLayout, folder: Path) -> None:
    """Tokenize every language with the shared vocabulary, and the source also with its own."""
    from metaxlm.data.pipeline import tokenize_text

    work = [(MULTILINGUAL, language) for language in recipe.languages]
    if recipe.meta.model is None:
        work.append((MONOLINGUAL, recipe.source_language))
    shards = {
        f"{name}/{language}": (layout.vocabulary / name / "tokenizer.json", layout.text(language))
        for name, language in work
    }
    tokenize_text(shards, recipe.engine, folder, layout.work("shards"))


def open_shards(recipe: Recipe, layout: RunLayout) -> Mapping[str, Shard]:
    """Open the shards of cross-lingual pretraining."""
    folder = layout.shards / MULTILINGUAL
    return {language: open_shard(folder / language) for language in recipe.languages}
