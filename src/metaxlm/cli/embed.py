"""`metaxlm embed` and `metaxlm export`: sentence vectors for other tools."""

from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from metaxlm.cli.options import Device, ModelOption, Quiet
from metaxlm.errors import MetaXLMError
from metaxlm.progress import say, set_quiet, track

EXAMPLES = """
\b
Layers are counted from 0, the embedding output: 8, -1 (the last), 6..8 or 1+12
(their mean), all, or several with commas. A .npy file has the shape [texts,
numbers], or [layers, texts, numbers]; a .parquet file has the columns line, text
and one per layer, such as layer_8.
\b
--sif, --center and --remove-components change the vectors by the texts of the
file, in this order: give each language a file of its own.
\b
Examples:
  metaxlm embed --model xlm-roberta-base --layer 8 --input a.txt --output a.npy
  metaxlm embed --model runs/demo/variants/xlm --input a.txt --output a.parquet
  metaxlm embed --model DIR --sif --center --input de.txt --output de.npy
  zcat a.gz | metaxlm embed --model DIR --input - --output a.npy --type float32
"""

Specials = Annotated[
    bool, Option("--specials/--no-specials", help="Include <s> and </s> in the mean.")
]
BatchTokens = Annotated[
    int, Option("--batch-tokens", min=1, help="Largest number of tokens of a batch.")
]
Sif = Annotated[
    bool, Option("--sif", help="Weight tokens: those that are frequent in the texts count less.")
]
Center = Annotated[bool, Option("--center", help="Subtract the mean vector of the texts.")]
RemoveComponents = Annotated[
    int,
    Option("--remove-components", metavar="K", min=0, help="Remove the first K components."),
]
LayerOption = Annotated[
    str | None,
    Option(
        "--layer",
        help="Layer to use: 8, -1 (last), 6..8 (mean) or all. Default: two thirds of depth.",
    ),
]


def embed_command(
    model: ModelOption,
    source: Annotated[str, Option("--input", help="Texts, one per line; - is stdin.")],
    output: Annotated[Path, Option(help="A .npy or .parquet file to write.")],
    layer: Annotated[
        str | None,
        Option(
            help="Layers: 8, -1 (last), 6..8 (mean), all or 0,4,8. Default: a sentence encoder's "
            "own vectors (modules.json), else the last."
        ),
    ] = None,
    specials: Specials = True,
    sif: Sif = False,
    center: Center = False,
    remove_components: RemoveComponents = 0,
    stored: Annotated[
        Literal["float16", "float32"], Option("--type", help="Data type of the file.")
    ] = "float16",
    precision: Annotated[
        Literal["float32", "bfloat16", "float16"],
        Option(help="Data type of the computation; bfloat16 and float16 are for GPUs."),
    ] = "float32",
    batch_tokens: BatchTokens = 16_384,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Turn each line of a file into a vector, the mean of a layer's hidden states.

    A sentence-transformers folder gives its own vectors, unless --layer is given.
    """
    set_quiet(quiet)
    from metaxlm.files import check_file_output
    from metaxlm.pretrain.distributed import choose_device
    from metaxlm.probe.corrections import Corrections
    from metaxlm.probe.embedding import MEAN, embed_stream, find_width
    from metaxlm.probe.pool import parse_layers
    from metaxlm.probe.retrieval_io import (
        check_ending,
        find_own_vectors,
        open_sentences,
        write_vectors,
    )
    from metaxlm.run.models import open_one_model

    check_ending(output)
    check_file_output(output, source)
    chosen = choose_device(device)
    with open_sentences(source) as sentences:
        encoder = open_one_model(model)
        depth = encoder.encoder.config.num_layers
        modules = (find_own_vectors(encoder) if layer is None else None) or MEAN
        layers = parse_layers("-1" if layer is None else layer, depth)
        with track("embed", len(sentences), "sentences") as advance:
            chunks = embed_stream(
                encoder, sentences, chosen, layers=layers, modules=modules, specials=specials,
                precision=precision, batch_tokens=batch_tokens, place=sentences.place,
                needs_tokens=True, advance=advance,
                corrections=Corrections(sif, center, remove_components),
            )  # fmt: skip
            num_texts, width = len(sentences), find_width(encoder, modules)
            write_vectors(
                output, chunks, num_texts=num_texts, width=width, layers=layers, dtype=stored
            )
    named = f"layer{'s' if len(layers) > 1 else ''} {', '.join(map(str, layers))}"
    say(f"{len(sentences):,} vectors of {width} numbers in {stored}, {named} of {depth}: {output}")


def export_command(
    model: ModelOption,
    output: Annotated[Path, Option(help="Folder to write; must not exist yet.")],
    layer: Annotated[
        str | None, Option(help="The layer of the vectors. Default: the last.")
    ] = None,
    normalize: Annotated[bool, Option("--normalize", help="Scale vectors to length 1.")] = False,
    file_format: Annotated[
        Literal["torch", "onnx"],
        Option("--format", help="onnx adds onnx/model.onnx, for onnxruntime."),
    ] = "torch",
    quantize: Annotated[
        Literal["int8"] | None, Option(help="Also write onnx/model_int8.onnx.")
    ] = None,
    text: Annotated[
        Path | None,
        Option(help="Texts to measure ONNX files with, or pairs: source TAB target."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Write a model as a sentence-transformers folder that gives the vectors of `embed`.

    With --format onnx, a task model is written as such, and its ONNX files compute logits.
    """
    set_quiet(quiet)
    from metaxlm.init.start import check_output
    from metaxlm.manifest import atomic_folder
    from metaxlm.model.sentence_modules import SentenceModules, find_sentence_modules
    from metaxlm.probe.onnx_folder import (
        add_onnx,
        copy_task_model,
        find_task,
        read_sample,
        require_onnx,
    )
    from metaxlm.probe.pool import parse_layers
    from metaxlm.probe.sentence_folder import export_sentence_transformers
    from metaxlm.run.models import open_one_model

    check_output(output)
    sample = None
    if file_format == "onnx":
        require_onnx()
        sample = read_sample(text)
    elif quantize or text:
        name = "--quantize" if quantize else "--text"
        raise MetaXLMError(f"{name}: only ONNX files have it; add --format onnx")
    encoder = open_one_model(model)
    layers = parse_layers(layer or "-1", encoder.encoder.config.num_layers)
    if len(layers) > 1:
        raise MetaXLMError(f"--layer {layer}: {len(layers)} layers; a folder has one, name it")
    task = None if sample is None else find_task(encoder)
    if task is not None and (normalize or layer is not None):
        raise MetaXLMError(
            f"{model}: has a task head, and its ONNX files compute logits; leave out --layer and "
            "--normalize, or export it without --format onnx first and then that folder"
        )
    # A sentence-transformers folder keeps its own steps.
    own = (find_sentence_modules(encoder.source) if layer is None else None) or SentenceModules()
    if task is None and (own.layers or own.lower_case):
        what = "a Dense module" if own.layers else "do_lower_case"
        raise MetaXLMError(
            f"{model}: has {what}, which an exported folder has not; use the folder as it is, or "
            "choose a layer with --layer"
        )
    with atomic_folder(output) as folder:
        if task is not None:
            copy_task_model(encoder, task, folder)
        else:
            export_sentence_transformers(
                encoder, folder, layers[0], normalize=normalize or own.normalize,
                pooling=own.pooling, max_length=own.max_length,
            )  # fmt: skip
        if sample is not None:
            add_onnx(folder, sample, int8=quantize is not None)
    backend = "" if sample is None else ', backend="onnx"'
    use = "onnxruntime" if task else f'SentenceTransformer("{output}"{backend})'
    say(f"written: {output}, for {use}")
