"""The recipe's sections of models: shape, training, vocabulary matching, variants."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from metaxlm.recipe.values import Count, Fraction, Location, Positive, Real, Scheduled, Section


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
    micro_batches: Positive = 1
    """Pieces that a step is computed in, over all processes: more need less memory. Each piece has
    its own dropout, so that a result depends on their number and not on who computes them. With
    more processes than pieces, every process computes one."""
    length: Positive = 512
    """Tokens in a block: whole sentences up to this length, `<s>` and `</s>` included."""
    learning_rate: Real = 1e-4
    """Peak of the linear schedule."""
    warmup_steps: Count = 10_000
    """Steps of linear warm-up, at most `steps`; afterwards the rate falls linearly to zero."""
    weight_decay: Real = 0.01
    """Decoupled weight decay; biases and LayerNorms are left out."""
    adam_betas: Annotated[list[Fraction], Field(min_length=2, max_length=2)] = [0.9, 0.98]
    """Adam's two decay rates."""
    adam_epsilon: Real = 1e-6
    """Adam's epsilon."""
    clip: Real = 1.0
    """Largest gradient norm; 0 turns clipping off."""
    alpha: Scheduled = 0.7
    """Exponent of the rebalanced distribution p_i = N_i^alpha / sum_j N_j^alpha; a number, or
    `{step: number}` with straight lines between."""
    size_unit: Literal["bytes", "characters", "tokens"] = "bytes"
    """What N_i counts."""
    mask_probability: Scheduled = 0.15
    """Share of positions to predict; of these 80 % are masked, 10 % replaced, 10 % kept; a number,
    or `{step: number}` with straight lines between."""
    whole_words: bool = False
    """Choose words with all their pieces instead of single pieces."""
    exclude_special: bool = False
    """Never choose `<s>` and `</s>` for prediction (fairseq chooses them too)."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """`auto` is bfloat16 where the GPU has it, and float32 elsewhere."""
    checkpoint_every: Positive = 1_000
    """Steps between two checkpoints."""
    keep_checkpoints: Positive = 2
    """How many of the newest checkpoints stay on the disk."""
    keep_steps: list[Positive] = []
    """Steps whose checkpoints stay for good, each also as a Hugging Face folder; steps beyond the
    last one are never met."""
    log_every: Positive = 50
    """Steps between two rows of the training log."""
    held_out: Count = 32
    """Blocks of each language that are never trained on and measure its loss; at most a twentieth
    of a language's blocks."""
    evaluate_every: Positive = 1_000
    """Steps between two measurements on the held-out blocks; the last step is always measured."""
    max_bad_steps: Positive = 10
    """Steps in a row whose loss or gradient is not finite before the run stops; such a step
    changes nothing."""

    def list_kept(self) -> list[int]:
        """Return the steps before the last whose checkpoints stay for good."""
        return [step for step in sorted(set(self.keep_steps)) if step < self.steps]

    @property
    def is_trained(self) -> bool:
        """Whether this training takes any step."""
        return self.steps > 0

    @model_validator(mode="after")
    def _warmup_ends(self) -> TrainingRecipe:
        if self.is_trained and self.warmup_steps > self.steps:
            raise ValueError(
                f"warmup_steps ({self.warmup_steps}) is above steps ({self.steps}), so that the "
                "learning rate never reaches its peak; lower warmup_steps"
            )
        return self

    @model_validator(mode="after")
    def _pieces_are_equal(self) -> TrainingRecipe:
        if self.batch_size % self.micro_batches:
            raise ValueError(
                f"batch_size ({self.batch_size}) is not a multiple of micro_batches "
                f"({self.micro_batches})"
            )
        return self


class MetaRecipe(TrainingRecipe):
    """Phase (a): train a monolingual encoder, or take one that exists."""

    steps: Positive = 200_000
    """Optimizer steps."""
    model: str | None = None
    """Folder of an existing encoder, or its name on the Hugging Face hub, such as `roberta-base`;
    then nothing is trained in this phase."""

    @property
    def is_trained(self) -> bool:
        """Whether this phase trains its encoder."""
        return self.model is None


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


class DistillationRecipe(Section):
    """Learning from the meta-pretrained model on the source language's blocks (section 5.3)."""

    pooled: Annotated[float, Field(gt=0)] = 1.0
    """Weight of the squared distance between the mean hidden states of both models."""

    @model_validator(mode="before")
    @classmethod
    def _drop_removed_keys(cls, values: Any) -> Any:
        """Accept recipes saved by earlier versions, if they did not use the removed loss."""
        if isinstance(values, dict) and not values.get("tokens"):
            return {k: v for k, v in values.items() if k not in ("tokens", "temperature")}
        return values


class SwitchRecipe(Section):
    """Words of the training text in another language: not the paper's, an idea beyond its +Dict."""

    probability: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of the words with a translation that are switched."""


class VariantRecipe(Section):
    """One model of the experiment; variants differ in nothing but what stands here."""

    initialize: Literal["none", "body", "embeddings", "both"] | PartsRecipe = "both"
    """What is copied from the meta-pretrained model: a preset, or the five switches."""
    dictionaries: bool = False
    """Match through bilingual dictionaries as well (+Dict)."""
    matching: MatchingRecipe | None = None
    """Instead of the recipe's `matching`, whose dictionaries serve unless others are named."""
    freeze: Literal["none", "body"] = "none"
    """What pretraining leaves as it is: with `body`, only embeddings and head are trained."""
    distill: DistillationRecipe | None = None
    """Learn from the meta-pretrained model too, where the text is in its language (XLM+KD)."""
    switch: SwitchRecipe | None = None
    """Put dictionary translations in place of some words of the text before they are masked."""

    @model_validator(mode="after")
    def _a_teacher_reads_its_own_language(self) -> VariantRecipe:
        if self.switch is not None and self.distill is not None:
            raise ValueError("switch and distill do not go together: a teacher reads one language")
        return self

    @property
    def needs_source(self) -> bool:
        """Whether anything at all is copied from the meta-pretrained model."""
        if isinstance(self.initialize, PartsRecipe):
            return any(self.initialize.model_dump().values())
        return self.initialize != "none"


class ExecutionRecipe(Section):
    """How trainings run; nothing here changes what is learned, so nothing is repeated for it."""

    workers: Count = 1
    """Threads that prepare batches ahead; 0 prepares each when it is needed."""
    sharding: Literal["ddp", "fsdp"] = "ddp"
    """With several processes: each holds the whole model, or a shard of it (FSDP2)."""
    timeout_s: Positive = 600
    """Timeout of collective operations: a process that hangs for this many seconds ends the run."""
    kernels: Literal["auto", "plain"] = "auto"
    """`auto` takes the fused GPU kernels where they run; `plain` is torch alone."""
    trackers: list[Literal["tensorboard", "wandb", "trackio"]] = ["tensorboard"]
    """Where the training log goes beside `log.jsonl`; TensorBoard is left out if not installed."""
