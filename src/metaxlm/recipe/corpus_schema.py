"""Recipe sections of data preparation: corpus, engine, vocabulary."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from metaxlm.recipe.values import Count, Fraction, Location, Positive, Section


class PhrasebookRecipe(Section):
    """Sizes of the sample of the built-in corpus."""

    source_sentences: Positive = 60_000
    """English sentences, the monolingual corpus of meta-pretraining; at most 96,000."""
    sentences: Positive = 6_000
    """Sentences per other language; at most 9,600."""
    test_pairs: Positive = 500
    """Sentence pairs per language in the retrieval test; at most 500."""
    aligned_pairs: Positive = 200
    """Sentence pairs per language with gold word alignments; at most 300."""
    train_examples: Positive = 6_000
    """English training examples of a task; at most 6,000. SQuAD has a sixth, reviews a tenth."""
    test_examples: Positive = 400
    """Test examples per language of a task; at most 400. The dev sets have half as many."""


class CleaningRecipe(Section):
    """Which paragraphs to keep; dropped paragraphs are counted by reason."""

    deduplicate: bool = True
    """Keep only the first of identical paragraphs within a language."""
    min_characters: Count = 0
    """Drop shorter paragraphs."""
    max_characters: Positive = 100_000
    """Drop longer paragraphs, which are data rather than prose."""
    script: bool = False
    """Drop paragraphs with less than half of their letters in the language's script."""
    language: bool = False
    """Drop paragraphs that py3langid classifies as another language."""
    min_language_characters: Count = 100
    """Do not apply `language` to shorter paragraphs."""


class CorpusRecipe(Section):
    """Where to read text, and which of it to keep."""

    source: Literal["phrasebook", "text", "jsonl", "parquet", "dump"] = "phrasebook"
    """`phrasebook` samples the built-in corpus; the others read files of `path`: `text` (`.txt`),
    `jsonl` (`.jsonl`), `parquet` (Hugging Face's `wikimedia/wikipedia`), `dump` (MediaWiki XML);
    all but parquet also as `.gz`, `.bz2`, `.xz`, `.zst`."""
    path: Location | None = None
    """Folder with a file or a folder of files per language: `en.txt.xz`, `en/*.jsonl`,
    `20231101.en/*.parquet`, `enwiki-20240101-pages-articles-multistream.xml.bz2`."""
    text_key: str = "text"
    """Key of the text in a JSON line (`source: jsonl`)."""
    split_sentences: bool = True
    """Split each paragraph into sentences; `false` if every line is a sentence."""
    cleaning: CleaningRecipe = CleaningRecipe()
    """Which paragraphs to keep."""
    decontaminate: Location | None = None
    """Folder of test sets, such as `evaluation.data`: remove lines and sentences that are in one of
    their dev or test sets, apart from case, white space and punctuation."""
    max_rejected: Fraction = 0.01
    """Stop if a larger share of a language's records is unreadable (skipped ones do not count)."""
    task_mb: Positive = 64
    """Split large files into tasks of about this size, where the format allows it."""
    phrasebook: PhrasebookRecipe = PhrasebookRecipe()
    """Sizes of the built-in corpus (`source: phrasebook`)."""

    @model_validator(mode="after")
    def _files_need_a_path(self) -> Self:
        if self.source != "phrasebook" and self.path is None:
            raise ValueError(f"`source: {self.source}` needs `path`, a folder with the files")
        if self.source == "phrasebook" and self.decontaminate is not None:
            raise ValueError("`decontaminate` is for files; the built-in corpus has its own tests")
        return self


class SlurmRecipe(Section):
    """How to submit tasks to Slurm (`engine.name: slurm`)."""

    partition: str | None = None
    """Partition of the jobs; required."""
    time: str = "20:00:00"
    """Time limit per task."""
    memory_gb: Positive = 4
    """Memory per task."""
    max_jobs: Positive | None = None
    """Maximum number of concurrent tasks; null leaves it to the scheduler."""
    setup: str = ""
    """Shell command to run before each task, such as `source .venv/bin/activate`."""
    options: dict[str, str] = {}
    """Other options of sbatch, such as `account: nlp`."""


class EngineRecipe(Section):
    """Where to run corpus preparation and tokenization; the result does not depend on it."""

    name: Literal["local", "slurm", "ray"] = "local"
    """`local` uses this machine's cores; `engine: slurm` is short for `engine: {name: slurm}`."""
    workers: Positive | None = None
    """Number of concurrent tasks; null means one per core."""
    slurm: SlurmRecipe = SlurmRecipe()
    """Settings of Slurm."""
    ray_address: str | None = None
    """Address of a Ray cluster, or `auto`; null starts one on this machine."""


class VocabularyRecipe(Section):
    """The shared vocabulary of cross-lingual pretraining, and the monolingual one."""

    size: Positive = 8_000
    """Size of the shared SentencePiece vocabulary, including special tokens."""
    monolingual_size: Positive = 4_000
    """Size of the byte-level BPE vocabulary of meta-pretraining, including special tokens."""
    alpha: Fraction = 0.7
    """Exponent of the language sampling distribution for vocabulary training."""
    sample_sentences: Positive = 1_000_000
    """Maximum number of sentences that the vocabulary is trained on."""
    character_coverage: Annotated[float, Field(ge=0.9, le=1)] = 0.9995
    """Share of the sample covered by characters of the vocabulary; rarer characters are unknown.
    Increase it for Chinese and Japanese if the vocabulary is large."""
    model: str | None = None
    """Use this tokenizer instead: a folder, or a name on the hub such as `xlm-roberta-base`."""
    min_count: Count = 0
    """Keep only the tokens of `model` with at least this count in the text; 0 keeps all."""
    extend: bool = False
    """Keep the vocabulary of `meta.model` (WordPiece, such as BERT's) and add about `size` pieces
    of the other languages: the encoder loses almost nothing in its own language."""

    @model_validator(mode="after")
    def _trims_what_exists(self) -> Self:
        if self.min_count and self.model is None:
            raise ValueError("min_count trims an existing vocabulary; name one with `model`")
        if self.extend and self.model is not None:
            raise ValueError(
                "extend keeps the vocabulary of meta.model; remove `model` or `extend`"
            )
        return self
