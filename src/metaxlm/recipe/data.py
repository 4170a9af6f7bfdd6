"""The recipe's sections before any training: corpus, engine, vocabulary."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from metaxlm.recipe.values import Count, Fraction, Location, Positive, Section


class PhrasebookRecipe(Section):
    """How much to take of the built-in corpus."""

    source_sentences: Positive = 60_000
    """English sentences, the large monolingual corpus of meta-pretraining; at most 96,000."""
    sentences: Positive = 6_000
    """Sentences in each other language; at most 9,600."""
    test_pairs: Positive = 500
    """Sentence pairs per language in the retrieval test; at most 500."""
    aligned_pairs: Positive = 200
    """Sentence pairs per language with gold word alignments; at most 300."""
    train_examples: Positive = 6_000
    """English training examples of a task; at most 6,000. SQuAD has a sixth, reviews a tenth."""
    test_examples: Positive = 400
    """Test examples per language of a task; at most 400. The dev sets have half as many."""


class CleaningRecipe(Section):
    """Which paragraphs are kept; every drop is counted by its reason."""

    deduplicate: bool = True
    """Keep only the first of identical paragraphs of a language."""
    min_characters: Count = 0
    """Drop paragraphs that are shorter."""
    max_characters: Positive = 100_000
    """Drop paragraphs that are longer: they are data, not prose."""
    script: bool = False
    """Drop paragraphs of which less than half the letters are in the language's script."""
    language: bool = False
    """Drop paragraphs that py3langid takes for another language."""
    min_language_characters: Count = 100
    """Shorter paragraphs are not judged by `language`: there is too little to go by."""


class CorpusRecipe(Section):
    """Where the text comes from, and what is kept of it."""

    source: Literal["phrasebook", "text", "jsonl", "parquet", "dump"] = "phrasebook"
    """`phrasebook` samples the built-in corpus; the others read files of `path`: `text` (`.txt`),
    `jsonl` (`.jsonl`), `parquet` (Hugging Face's `wikimedia/wikipedia`), `dump` (MediaWiki XML);
    all but parquet also as `.gz`, `.bz2`, `.xz`, `.zst`."""
    path: Location | None = None
    """Folder with a file or a folder of files a language: `en.txt.xz`, `en/*.jsonl`,
    `20231101.en/*.parquet`, `enwiki-20240101-pages-articles-multistream.xml.bz2`."""
    text_key: str = "text"
    """Which key of a JSON line holds the text (`source: jsonl`)."""
    split_sentences: bool = True
    """Split each paragraph into sentences; `false` if every line already is a sentence."""
    cleaning: CleaningRecipe = CleaningRecipe()
    """Which paragraphs are kept."""
    max_rejected: Fraction = 0.01
    """Stop if a larger share of a language's records cannot be read (broken encoding, broken JSON);
    records left out on purpose, such as redirects, do not count."""
    task_mb: Positive = 64
    """Large files that can be split are split into tasks of about this size."""
    phrasebook: PhrasebookRecipe = PhrasebookRecipe()
    """Sizes of the built-in corpus (`source: phrasebook`)."""

    @model_validator(mode="after")
    def _files_need_a_path(self) -> CorpusRecipe:
        if self.source != "phrasebook" and self.path is None:
            raise ValueError(f"`source: {self.source}` needs `path`, a folder with the files")
        return self


class SlurmRecipe(Section):
    """How tasks are submitted to Slurm (`engine.name: slurm`)."""

    partition: str | None = None
    """Partition of the jobs; required for Slurm."""
    time: str = "20:00:00"
    """Time limit of one task."""
    memory_gb: Positive = 4
    """Memory of one task."""
    max_jobs: Positive | None = None
    """Largest number of tasks at once; null leaves it to the scheduler."""
    setup: str = ""
    """Shell command before each task, such as `source .venv/bin/activate`; without it, tasks use
    the environment of the submitting process."""
    options: dict[str, str] = {}
    """Further options of sbatch, such as `account: nlp`."""


class EngineRecipe(Section):
    """Where corpus preparation and tokenization run; the result does not depend on it."""

    name: Literal["local", "slurm", "ray"] = "local"
    """`local` uses this machine's cores; `engine: slurm` is short for `engine: {name: slurm}`."""
    workers: Positive | None = None
    """Number of tasks at once; null means one per core."""
    slurm: SlurmRecipe = SlurmRecipe()
    """Settings of Slurm."""
    ray_address: str | None = None
    """Address of a Ray cluster, or `auto`; null starts one on this machine."""


def parse_engine(value: object) -> object:
    """Read the short form `engine: ray`."""
    return {"name": value} if isinstance(value, str) else value


class VocabularyRecipe(Section):
    """The shared vocabulary of cross-lingual pretraining, and the monolingual one."""

    size: Positive = 8_000
    """Rows of the shared SentencePiece vocabulary, special tokens included."""
    monolingual_size: Positive = 4_000
    """Rows of the byte-level BPE vocabulary of meta-pretraining, special tokens included."""
    alpha: Fraction = 0.7
    """Exponent that rebalances the languages in the vocabulary's training sample."""
    sample_sentences: Positive = 1_000_000
    """At most so many sentences train the vocabulary."""
    character_coverage: Annotated[float, Field(ge=0.9, le=1)] = 0.9995
    """Share of the sample whose characters become pieces; the rarest ones are unknown. Raise it for
    Chinese and Japanese if there are rows to spare."""
    model: str | None = None
    """Folder of an existing tokenizer, or its name on the Hugging Face hub, such as
    `xlm-roberta-base`; then no shared vocabulary is trained."""
    min_count: Count = 0
    """Keep only the pieces of `model` that the text uses at least so often; 0 keeps all."""

    @model_validator(mode="after")
    def _trims_what_exists(self) -> VocabularyRecipe:
        if self.min_count and self.model is None:
            raise ValueError("min_count trims an existing vocabulary; name one with `model`")
        return self
