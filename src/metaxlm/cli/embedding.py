"""`metaxlm embed` and `metaxlm export`: sentence vectors for use elsewhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from metaxlm.cli.options import Device, ModelOption, Quiet, open_one_model
from metaxlm.errors import MetaXLMError
from metaxlm.progress import say, set_quiet, track

EXAMPLES = """
\b
A layer is counted from 0, the embedding output: 8, -1 (the last), 6..8 or 1+12
(their mean), all, or several with commas. A .npy file has the shape [texts,
numbers], or [layers, texts, numbers]; a .parquet file has the columns line, text
and layer_8, say.
\b
Examples:
  metaxlm embed --model xlm-roberta-base --layer 8 --input a.txt --output a.npy
  metaxlm embed --model runs/demo/variants/xlm --input a.txt --output a.parquet
  zcat a.gz | metaxlm embed --model DIR --input - --output a.npy --type float32
"""


class TypeName(StrEnum):
    """What a number of a vector is stored as."""

    FLOAT16 = "float16"
    FLOAT32 = "float32"


class PrecisionName(StrEnum):
    """What the encoder computes in."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


def embed_command(
    model: ModelOption,
    source: Annotated[str, typer.Option("--input", help="A text a line; - is stdin.")],
    output: Annotated[Path, typer.Option("--output", help="A .npy or .parquet file to write.")],
    layer: Annotated[str, typer.Option("--layer", help="As 8, -1, 6..8, all or 0,4,8.")] = "-1",
    specials: Annotated[
        bool, typer.Option("--specials/--no-specials", help="Whether <s> and </s> count.")
    ] = True,
    stored: Annotated[
        TypeName, typer.Option("--type", help="What numbers are stored as.")
    ] = TypeName.FLOAT16,
    precision: Annotated[
        PrecisionName,
        typer.Option("--precision", help="What the encoder computes in; bfloat16 is for GPUs."),
    ] = PrecisionName.FLOAT32,
    batch_tokens: Annotated[
        int, typer.Option("--batch-tokens", min=1, help="Tokens at a time, at most.")
    ] = 16_384,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Turn each line of a file into a vector, the mean of a layer's hidden states."""
    set_quiet(quiet)
    from metaxlm.files import check_file_output
    from metaxlm.pretrain.distributed import choose_device
    from metaxlm.probe.embedding import EmbedSettings, embed_stream
    from metaxlm.probe.layers import parse_layers
    from metaxlm.probe.sentence_files import open_sentences
    from metaxlm.probe.vector_files import check_ending, write_vectors

    check_ending(output)
    check_file_output(output, source)
    chosen = choose_device(device)
    with open_sentences(source) as sentences:
        encoder = open_one_model(model)
        config = encoder.encoder.config
        layers = parse_layers(layer, config.num_layers)
        settings = EmbedSettings(layers, specials, precision.value, batch_tokens)
        with track("embed", len(sentences), "sentences") as advance:
            chunks = embed_stream(
                encoder,
                sentences,
                chosen,
                settings,
                place=sentences.place,
                needs_tokens=True,
                advance=advance,
            )
            write_vectors(
                output,
                chunks,
                num_texts=len(sentences),
                width=config.hidden_size,
                layers=layers,
                dtype=stored.value,
            )
    named = f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers))}"
    say(
        f"{len(sentences):,} vectors of {config.hidden_size} numbers in {stored.value}, "
        f"{named} of {config.num_layers}: {output}"
    )


def export_command(
    model: ModelOption,
    output: Annotated[Path, typer.Option("--output", help="Folder to write; must not exist yet.")],
    layer: Annotated[str, typer.Option("--layer", help="The layer of the vectors.")] = "-1",
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Scale vectors to length 1.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Write a model as a sentence-transformers folder that gives the vectors of `embed`."""
    set_quiet(quiet)
    from metaxlm.init.start import check_output
    from metaxlm.probe.layers import parse_layers
    from metaxlm.probe.sentence_folder import export_sentence_transformers

    check_output(output)
    encoder = open_one_model(model)
    layers = parse_layers(layer, encoder.encoder.config.num_layers)
    if len(layers) > 1:
        raise MetaXLMError(f"--layer {layer}: {len(layers)} layers; a folder has one, name it")
    export_sentence_transformers(encoder, output, layers[0], normalize=normalize)
    say(f'written: {output}, for SentenceTransformer("{output}")')
