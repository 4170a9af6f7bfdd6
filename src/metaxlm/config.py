"""The recipe: one YAML file is one experiment, and nothing is hidden.

Every key has its meaning below it; `docs/recipe.md` is made from here. Checking is strict: no
unknown keys, no converted types. `recipe_file.py` reads the YAML and words the complaints.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

Fraction = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
# Strict mode wants Path objects; YAML has only strings.
Location = Annotated[Path, BeforeValidator(lambda v: Path(v) if isinstance(v, str) else v)]


# YAML 1.1 reads an unquoted `no`, which is Norwegian, as false.
LanguageCode = Annotated[str, BeforeValidator(lambda v: "no" if v is False else v)]


def _parse_exponent(value: object) -> object:
    """YAML 1.1 reads `1e-4` as text because it wants `1.0e-4`; people write the former."""
    try:
        return float(value) if isinstance(value, str) and "e" in value.lower() else value
    except ValueError:
        return value


Real = Annotated[float, BeforeValidator(_parse_exponent), Field(ge=0)]


class Section(BaseModel):
    """Base of every part of a recipe: strict types, no unknown keys, immutable."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )


class PhrasebookRecipe(Section):
    """How much of the built-in corpus to generate."""

    source_sentences: Positive = 60_000
    """Sentences of English: the large monolingual corpus of meta-pretraining."""
    sentences: Positive = 6_000
    """Sentences in each of the other languages."""
    test_pairs: Positive = 500
    """Sentence pairs a language in the retrieval test."""
    aligned_pairs: Positive = 200
    """Sentence pairs a language with gold word alignments."""
    train_examples: Positive = 6_000
    """English training examples of a finetuned task."""
    test_examples: Positive = 400
    """Test examples a language of a finetuned task; the dev sets have half as many."""


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
    """`phrasebook` generates the built-in corpus; the others read files of `path`: `text` (`.txt`),
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
    """Partition of the jobs; null takes the cluster's default."""
    time: str = "20:00:00"
    """Time limit of one task."""
    memory_gb: Positive = 4
    """Memory of one task."""
    max_jobs: Positive | None = None
    """At most so many tasks at once; null leaves it to the scheduler."""
    setup: str = ""
    """Shell command before each task, such as `source .venv/bin/activate`; tasks then call
    `python`, without it the interpreter that runs metaxlm."""
    options: dict[str, str] = {}
    """Further options of sbatch, such as `account: nlp`."""


class EngineRecipe(Section):
    """Where corpus preparation and tokenization run; the result is the same everywhere."""

    name: Literal["local", "slurm", "ray"] = "local"
    """`local` uses this machine's cores; `engine: slurm` is short for `engine: {name: slurm}`."""
    workers: Positive | None = None
    """Tasks at once on this machine; null means one a core."""
    slurm: SlurmRecipe = SlurmRecipe()
    """Settings of Slurm."""
    ray_address: str | None = None
    """Address of a Ray cluster, or `auto`; null starts one on this machine."""


def _parse_engine(value: object) -> object:
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
    """Folder or hub id of an existing tokenizer, such as `xlm-roberta-base`; then no shared
    vocabulary is trained."""
    min_count: Count = 0
    """Keep only the pieces of `model` that the text uses at least so often; 0 keeps all."""

    @model_validator(mode="after")
    def _trims_what_exists(self) -> VocabularyRecipe:
        if self.min_count and self.model is None:
            raise ValueError("min_count trims an existing vocabulary; name one with `model`")
        return self


class ModelRecipe(Section):
    """The encoder's shape: RoBERTa's architecture at any size."""

    layers: Positive = 12
    """Transformer layers."""
    hidden: Positive = 768
    """Width of the hidden states."""
    heads: Positive = 12
    """Attention heads; they divide `hidden`."""
    ffn: Positive = 3_072
    """Inner width of the feed-forward network."""
    max_positions: Positive = 512
    """Longest sequence, special tokens included."""
    dropout: Fraction = 0.1
    """Dropout on hidden states and attention weights."""

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> ModelRecipe:
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) is not a multiple of heads ({self.heads})")
        return self


class TrainingRecipe(Section):
    """One masked-language-model training; the defaults are the paper's (its appendix table)."""

    steps: Count = 200_000
    """Optimizer steps; with 0 the start itself is measured."""
    batch_size: Positive = 64
    """Blocks in a step."""
    length: Positive = 512
    """Tokens in a block: whole sentences up to this length, `<s>` and `</s>` included."""
    learning_rate: Real = 1e-4
    """Peak of the linear schedule."""
    warmup_steps: Count = 10_000
    """Steps of linear warm-up; afterwards the rate falls linearly to zero."""
    weight_decay: Real = 0.01
    """Decoupled weight decay; biases and LayerNorms are left out."""
    adam_betas: Annotated[list[Fraction], Field(min_length=2, max_length=2)] = [0.9, 0.98]
    """Adam's two decay rates."""
    adam_epsilon: Real = 1e-6
    """Adam's epsilon."""
    clip: Real = 1.0
    """Largest gradient norm; 0 turns clipping off."""
    alpha: Fraction = 0.7
    """Exponent of the rebalanced distribution p_i = N_i^alpha / sum_j N_j^alpha."""
    size_unit: Literal["bytes", "characters", "tokens"] = "bytes"
    """What N_i counts."""
    mask_probability: Fraction = 0.15
    """Share of positions to predict; of these 80 % are masked, 10 % replaced, 10 % kept."""
    exclude_special: bool = False
    """Never choose `<s>` and `</s>` for prediction (fairseq chooses them too)."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """`auto` is bfloat16 where the GPU has it, and float32 elsewhere."""
    checkpoint_every: Positive = 1_000
    """Steps between two checkpoints."""
    keep_checkpoints: Positive = 2
    """How many of the newest checkpoints stay on the disk."""
    log_every: Positive = 50
    """Steps between two rows of the training log."""


class MetaRecipe(TrainingRecipe):
    """Phase (a): train a monolingual encoder, or take one that exists."""

    steps: Positive = 200_000
    """Optimizer steps."""
    model: str | None = None
    """Folder or hub id of an existing encoder; then nothing is trained in this phase."""


class MatchingRecipe(Section):
    """How rows of the shared vocabulary find their start in the monolingual one (section 3.2)."""

    rules: list[Literal["direct", "nfkc", "lower", "capitalized", "word_start", "accents"]] = [
        "direct", "nfkc", "lower", "capitalized", "word_start", "accents",
    ]  # fmt: skip
    """Which rules compare texts; they are tried in this order, whatever order the list has."""
    dictionaries: Location | None = None
    """Folder of dictionaries such as MUSE's `en-de.txt`; the built-in corpus brings its own."""
    pieces: Literal["any", "word_start"] = "any"
    """Which pieces are looked up in the dictionaries: all, or only those that start a word."""
    precedence: Literal["text", "dictionary", "use"] = "text"
    """What goes first where a piece is spelled like a source token and also stands in a dictionary:
    the text match, the dictionary, or both mixed by how often each language's text uses the piece,
    where a piece that the source language uses much keeps its text match."""
    one_to_many: Literal["first", "mean", "frequency", "mean_per_language", "order"] = (
        "mean_per_language"
    )
    """What several translations of one piece become: the first; their mean; a mean weighted by how
    often the source language uses them; the mean of each language, then of the languages; the same
    with the n-th translation of a language counting 1/n. With `precedence: use` languages count by
    how often they use the piece."""
    multi_token: bool = True
    """A translation of several words or tokens counts as the mean of their rows."""
    split_words: Literal["none", "first", "all"] = "none"
    """Dictionary words that are several pieces here lend their translation to none of these pieces,
    to the first, or to all, where a piece has no other match."""
    segments: bool = False
    """Pieces without a match whose text falls into matched pieces take the mean of those."""
    filler: Literal["random", "normal", "subwords"] = "random"
    """Rows without a match: N(0, 0.02); the source rows' mean and deviation; or the mean of the
    source's own tokens for that text, and random where it has none."""


class PartsRecipe(Section):
    """The five switches of initialization."""

    words: bool = False
    """Word rows, which are also the decoder's."""
    positions: bool = False
    """Position rows."""
    embedding_norm: bool = False
    """LayerNorm of the embeddings."""
    layers: bool = False
    """The Transformer body."""
    head: bool = False
    """The MLM head: dense, LayerNorm, and the decoder's bias."""


class VariantRecipe(Section):
    """One model of the experiment; variants differ in nothing but what stands here."""

    initialize: Literal["none", "body", "embeddings", "both"] | PartsRecipe = "both"
    """What is copied from the meta-pretrained model: a preset, or the five switches."""
    dictionaries: bool = False
    """Match through bilingual dictionaries as well (+Dict)."""
    matching: MatchingRecipe | None = None
    """Instead of the recipe's `matching`, whose dictionaries serve unless others are named."""

    @property
    def needs_source(self) -> bool:
        """Whether anything at all is copied from the meta-pretrained model."""
        if isinstance(self.initialize, PartsRecipe):
            return any(self.initialize.model_dump().values())
        return self.initialize != "none"


class RetrievalRecipe(Section):
    """Tatoeba-style sentence retrieval without finetuning."""

    batch_tokens: Positive = 16_384
    """Tokens, padding included, in one forward pass."""


class AlignmentRecipe(Section):
    """Word alignment without finetuning, by optimal transport."""

    batch_tokens: Positive = 8_192
    """Tokens, padding included, in one forward pass."""
    drawn_pairs: Count = 2
    """Sentence pairs a language that the report draws."""


class FinetuneRecipe(Section):
    """A task finetuned in the source language; what is left out is the paper's for that task."""

    epochs: Positive | None = None
    """Passes over the training examples."""
    learning_rate: Real | None = None
    """Peak of the linear schedule."""
    batch_size: Positive | None = None
    """Examples in a step."""
    weight_decay: Real | None = None
    """Decoupled weight decay."""
    warmup: Fraction | None = None
    """Share of the steps that warm up."""
    length: Positive | None = None
    """Longest input, special tokens included."""
    select_by: Literal["source", "all"] | None = None
    """Which dev set picks the best epoch: the source language's, or the mean of all."""
    seeds: Positive = 1
    """How many seeds."""


class EvaluationRecipe(Section):
    """Phase (c): what is measured."""

    data: Location | None = None
    """Folder with the task data; the built-in corpus brings its own."""
    retrieval: RetrievalRecipe | None = RetrievalRecipe()
    """Sentence retrieval; `null` leaves it out."""
    alignment: AlignmentRecipe | None = AlignmentRecipe()
    """Word alignment; `null` leaves it out."""
    finetune: dict[str, FinetuneRecipe] = {}
    """Finetuned tasks by name."""


class Recipe(Section):
    """One experiment: variants that share everything else."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$")]
    """Names the run folder."""
    seed: Count = 1
    """Everything random follows from it."""
    languages: Annotated[list[LanguageCode], Field(min_length=2)]
    """Languages of cross-lingual pretraining."""
    source_language: LanguageCode = "en"
    """Language of meta-pretraining and of the finetuning data."""
    corpus: CorpusRecipe = CorpusRecipe()
    engine: Annotated[EngineRecipe, BeforeValidator(_parse_engine)] = EngineRecipe()
    """Where corpus preparation and tokenization run: `local`, `slurm`, `ray`."""
    vocabulary: VocabularyRecipe = VocabularyRecipe()
    model: ModelRecipe = ModelRecipe()
    meta: MetaRecipe = MetaRecipe()
    """Phase (a), meta-pretraining."""
    matching: MatchingRecipe = MatchingRecipe()
    pretraining: TrainingRecipe = TrainingRecipe()
    """Phase (b), cross-lingual pretraining."""
    variants: Annotated[dict[str, VariantRecipe], Field(min_length=1)]
    """Models to compare, by name."""
    evaluation: EvaluationRecipe = EvaluationRecipe()
    """Phase (c)."""

    def find_matching(self, variant: VariantRecipe) -> MatchingRecipe:
        """Return how a variant's vocabulary is matched."""
        if variant.matching is None:
            return self.matching
        folder = variant.matching.dictionaries or self.matching.dictionaries
        return variant.matching.model_copy(update={"dictionaries": folder})

    @property
    def measures_anything(self) -> bool:
        """Whether any task data is needed."""
        measures = self.evaluation
        return bool(measures.retrieval or measures.alignment or measures.finetune)

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Recipe:
        if self.source_language not in self.languages:
            raise ValueError(f"source_language {self.source_language!r} is not among languages")
        if self.corpus.source == "phrasebook" and self.source_language != "en":
            raise ValueError("the built-in corpus wants `source_language: en`")
        if len(set(self.languages)) < len(self.languages):
            raise ValueError("languages names one language twice")
        longest = max(self.meta.length, self.pretraining.length)
        if longest > self.model.max_positions:
            raise ValueError(
                f"length {longest} exceeds model.max_positions {self.model.max_positions}"
            )
        for name in self.variants:
            if not name or any(c in name for c in "/\\ ") or name.startswith("."):
                raise ValueError(f"variant name {name!r} does not make a folder name")
        return self
