"""Recipe sections of models: shape, training, vocabulary matching, variants."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from metaxlm.recipe.values import Count, Fraction, Location, Positive, Real, Scheduled, Section

Rule = Literal["direct", "nfkc", "lower", "capitalized", "word_start", "accents"]
OneToMany = Literal["first", "mean", "frequency", "mean_per_language", "order"]
RENAMED_PRECEDENCE = {"use": "frequency_weighted"}
"""Values of earlier versions, which saved recipes and ledgers still contain."""

CHANGED_TRAINING = ("alpha", "learning_rate", "body_rate", "anchor")
"""Keys of `pretraining` that a variant can replace."""


def rename_precedence(value: Any) -> Any:
    """Accept the names of earlier versions."""
    return RENAMED_PRECEDENCE.get(value, value) if isinstance(value, str) else value


class ModelRecipe(Section):
    """Shape of the encoder, which has RoBERTa's architecture."""

    layers: Positive = 12
    """Number of Transformer layers."""
    hidden: Positive = 768
    """Size of the hidden states."""
    heads: Positive = 12
    """Number of attention heads; must divide `hidden`."""
    ffn: Positive = 3_072
    """Inner size of the feed-forward network."""
    max_positions: Positive = 512
    """Maximum sequence length, including special tokens."""
    dropout: Fraction = 0.1
    """Dropout on hidden states and attention weights."""

    @model_validator(mode="after")
    def _heads_divide_hidden(self) -> Self:
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) is not a multiple of heads ({self.heads})")
        return self


class TrainingRecipe(Section):
    """One run of masked-language-model training; defaults as in the paper's table 7, and as in
    RoBERTa where it names no value."""

    steps: Count = 200_000
    """Number of optimizer steps; 0 evaluates the initialization itself."""
    batch_size: Positive = 64
    """Blocks per step."""
    micro_batches: Positive = 1
    """Number of micro-batches per step, over all processes; more need less memory. Each has its own
    dropout, so results depend on their number and not on the number of processes. With more
    processes than micro-batches, every process computes one."""
    length: Positive = 512
    """Tokens per block: whole sentences up to this length, including `<s>` and `</s>`."""
    learning_rate: Real = 1e-4
    """Peak of the linear schedule."""
    warmup_steps: Count = 10_000
    """Steps of linear warm-up, at most `steps`; the rate then decays linearly to zero."""
    body_rate: Real = 1.0
    """Learning rate of the Transformer layers, relative to that of all other parameters."""
    weight_decay: Real = 0.01
    """Decoupled weight decay; biases and LayerNorms are excluded."""
    anchor: Real = 0.0
    """Pull token embeddings back to their initialization: the share of the distance that a step
    removes, relative to the learning rate. It keeps the alignment that dictionaries gave."""
    adam_betas: Annotated[list[Fraction], Field(min_length=2, max_length=2)] = [0.9, 0.98]
    """Adam's betas."""
    adam_epsilon: Real = 1e-6
    """Adam's epsilon."""
    clip: Real = 1.0
    """Maximum gradient norm; 0 disables clipping."""
    alpha: Scheduled = 0.7
    """Exponent in p_i = N_i^alpha / sum_j N_j^alpha; a number, or interpolated `{step: number}`."""
    size_unit: Literal["bytes", "characters", "tokens"] = "bytes"
    """Unit of N_i."""
    mask_probability: Scheduled = 0.15
    """Share of positions to predict (80 % masked, 10 % replaced, 10 % kept); as `alpha`."""
    whole_words: bool = False
    """Mask whole words instead of single tokens."""
    exclude_special: bool = False
    """Do not predict `<s>` and `</s>` (fairseq does)."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Type of matrix products; `auto` is bfloat16 on GPUs from compute capability 8.0 on, float16
    (with a scaled loss) on older ones, and float32 elsewhere."""
    checkpoint_every: Positive = 1_000
    """Steps between checkpoints."""
    keep_checkpoints: Positive = 2
    """Number of latest checkpoints to keep."""
    keep_steps: list[Positive] = []
    """Steps up to `steps` whose checkpoints are kept permanently, also as Hugging Face folders."""
    log_every: Positive = 50
    """Steps between rows of the training log."""
    held_out: Count = 32
    """Blocks per language that are held out to measure the loss; at most 5 % of its blocks."""
    evaluate_every: Positive = 1_000
    """Steps between evaluations on the held-out blocks; the last step is always evaluated."""
    rewind: bool = False
    """After a jump of the loss or of the gradient norm (five times its running median), return to
    the last checkpoint and skip the batches since then; `false` only warns."""
    max_bad_steps: Positive = 10
    """Stop after this many consecutive steps with a non-finite loss or gradient (all skipped)."""

    def list_kept(self) -> list[int]:
        """Return the steps before the last one whose checkpoints are kept permanently."""
        return [step for step in sorted(set(self.keep_steps)) if step < self.steps]

    @property
    def is_trained(self) -> bool:
        """Whether this phase trains a model."""
        return self.steps > 0

    @model_validator(mode="after")
    def _steps_fit(self) -> Self:
        if self.is_trained and self.warmup_steps > self.steps:
            raise ValueError(
                f"warmup_steps ({self.warmup_steps}) is above steps ({self.steps}), so that the "
                "learning rate never reaches its peak; lower warmup_steps"
            )
        size, parts = self.batch_size, self.micro_batches
        if size % parts:
            raise ValueError(f"batch_size ({size}) is not a multiple of micro_batches ({parts})")
        return self


class MetaRecipe(TrainingRecipe):
    """Phase (a): train a monolingual encoder, or import an existing one."""

    steps: Positive = 200_000
    """Number of optimizer steps."""
    model: str | None = None
    """Import this encoder instead: a folder, or a name on the hub such as `roberta-base`."""

    @property
    def is_trained(self) -> bool:
        """Whether this phase trains a model."""
        return self.model is None


class MatchingRecipe(Section):
    """How to match tokens of the shared vocabulary to the monolingual one (section 3.2)."""

    rules: list[Rule] = ["direct", "nfkc", "lower", "capitalized", "word_start", "accents"]
    """Rules that compare texts; always applied in this order."""
    dictionaries: Location | None = None
    """Folder of dictionaries such as MUSE's `en-de.txt`; the built-in corpus contains its own."""
    pieces: Literal["any", "word_start"] = "any"
    """Tokens to look up in the dictionaries: all, or only those that start a word."""
    precedence: Annotated[
        Literal["text", "dictionary", "frequency_weighted"], BeforeValidator(rename_precedence)
    ] = "text"
    """Which match to use for a token that both a text rule and a dictionary match: the text match,
    the dictionary (the paper's sentence on +Dict can be read either way), or an average weighted by
    the token's relative frequency in each language's text. In the last case, tokens that are
    frequent in the source language keep their text match."""
    one_to_many: OneToMany = "mean_per_language"
    """How to combine several translations of a token: the first; their mean; a mean weighted by
    their frequency in the source language; the mean per language, then over languages; the same
    with weight 1/n for the n-th translation of a language. With `precedence: frequency_weighted`,
    languages are weighted by the token's relative frequency."""
    multi_token: bool = True
    """Represent a translation of several words or tokens by the mean of their embeddings."""
    split_words: Literal["none", "first", "all"] = "none"
    """Where a dictionary word is several tokens: use its translation for none of them, for the
    first, or for all that have no other match."""
    segments: bool = False
    """Initialize unmatched tokens that split into matched tokens with the mean of those."""
    filler: Literal["random", "normal", "subwords"] = "random"
    """Embeddings of unmatched tokens: N(0, 0.02); normal with the mean and deviation of the source
    embeddings; or the mean of the source's own tokens for that text, random if there are none."""


class PartsRecipe(Section):
    """Which parts to copy from the meta-pretrained model."""

    words: bool = False
    """Token embeddings, shared with the decoder."""
    positions: bool = False
    """Position embeddings."""
    embedding_norm: bool = False
    """LayerNorm of the embeddings."""
    layers: bool = False
    """The Transformer body."""
    head: bool = False
    """The MLM head: dense, LayerNorm, and decoder bias."""


class DistillationRecipe(Section):
    """Distillation from the meta-pretrained model on source-language blocks (section 5.3)."""

    pooled: Annotated[float, Field(gt=0)] = 1.0
    """Weight of the squared distance between the mean hidden states of both models."""

    @model_validator(mode="before")
    @classmethod
    def _drop_removed_keys(cls, values: Any) -> Any:
        """Accept recipes saved by earlier versions that did not use the removed loss."""
        if isinstance(values, dict) and not values.get("tokens"):
            return {k: v for k, v in values.items() if k not in ("tokens", "temperature")}
        return values


class SwitchRecipe(Section):
    """Code switching by dictionary, which is not part of the paper."""

    probability: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of the words with a translation to replace."""


class GrowRecipe(Section):
    """A second round: add words that the finished model of another variant links."""

    variant: str
    """Variant whose model links words in sentence pairs."""
    pairs: Location | None = None
    """File or folder of parallel text, in the layouts of `sentences.parallel`; null finds pairs in
    the run's own text, by the sentence encoder of the variant if it has one."""


class VariantRecipe(Section):
    """One model of the experiment; variants differ only in these keys."""

    initialize: Literal["none", "body", "embeddings", "remainder", "both"] | PartsRecipe = "both"
    """What to copy from the meta-pretrained model: single parts, or a preset. `body` is `layers`,
    `embeddings` is `words`, `remainder` is all other parts, and `both` is all three."""
    dictionaries: bool = False
    """Also match through bilingual dictionaries (+Dict)."""
    matching: MatchingRecipe | None = None
    """Replaces the recipe's `matching`, except for its dictionaries if none are set here."""
    grow: GrowRecipe | None = None
    """Add entries to the dictionaries of this variant, found by another variant."""
    freeze: Literal["none", "body"] = "none"
    """Parts to freeze: with `body`, only embeddings and head are trained."""
    distill: DistillationRecipe | None = None
    """Also distill from the meta-pretrained model on text in its language (XLM+KD)."""
    switch: SwitchRecipe | None = None
    """Replace some words of the text by dictionary translations before masking."""
    alpha: Scheduled | None = None
    """Replaces `pretraining.alpha`, to compare distributions of languages (figure 1)."""
    learning_rate: Real | None = None
    """Replaces `pretraining.learning_rate`."""
    body_rate: Real | None = None
    """Replaces `pretraining.body_rate`."""
    anchor: Real | None = None
    """Replaces `pretraining.anchor`."""
    seed: Count | None = None
    """Replaces `seed` in initialization and pretraining, to repeat a variant."""
    sentences: Literal[False] | None = None
    """`false` trains no sentence encoder of this variant, if the recipe has `sentences`."""

    @model_validator(mode="after")
    def _a_teacher_reads_its_own_language(self) -> Self:
        if self.switch is not None and self.distill is not None:
            raise ValueError("switch and distill exclude each other: a teacher has one language")
        return self

    def change_training(self, training: TrainingRecipe) -> TrainingRecipe:
        """Return the recipe's settings of pretraining with those of this variant."""
        own = {name: getattr(self, name) for name in CHANGED_TRAINING}
        return training.model_copy(update={k: v for k, v in own.items() if v is not None})

    @property
    def needs_source(self) -> bool:
        """Whether anything is copied from the meta-pretrained model."""
        if isinstance(self.initialize, PartsRecipe):
            return any(self.initialize.model_dump().values())
        return self.initialize != "none"


class ExecutionRecipe(Section):
    """How to run training; these keys do not change the result, so no stage runs again."""

    workers: Count = 1
    """Threads that prepare batches in advance; 0 prepares each batch on demand."""
    sharding: Literal["ddp", "fsdp"] = "ddp"
    """With several processes: replicate the model, or shard it (FSDP2)."""
    timeout_s: Positive = 600
    """Timeout of collective operations: a process that hangs for this many seconds ends the run."""
    kernels: Literal["auto", "plain"] = "auto"
    """`auto` uses the fused GPU kernels where supported; `plain` uses torch only."""
    gradient_checkpointing: bool = False
    """Compute each layer again in the backward pass instead of keeping its activations: less
    memory, and about a third more compute."""
    trackers: list[Literal["tensorboard", "wandb", "trackio"]] = ["tensorboard"]
    """Trackers of the training log besides `log.jsonl`; TensorBoard is skipped if not installed."""
