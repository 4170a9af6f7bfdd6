"""`metaxlm trim`: keep the pieces of a vocabulary that the user's languages use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metaxlm.cli.options import LanguageList, Quiet, split_list
from metaxlm.errors import MetaXLMError
from metaxlm.progress import say, set_quiet

if TYPE_CHECKING:
    from metaxlm.init.trimming import Trimmed


def trim_command(
    corpus: Annotated[
        Path, typer.Option("--corpus", help="Text of the languages: a run, or files like de.txt.")
    ],
    output: Annotated[Path, typer.Option("--output", help="Folder to write; must not exist yet.")],
    model: Annotated[
        str | None, typer.Option("--model", help="A finished model: a folder or hub id.")
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="Or a tokenizer alone, to match later.")
    ] = None,
    languages: LanguageList = None,
    min_count: Annotated[
        int, typer.Option("--min-count", min=1, help="Keep pieces that occur so often.")
    ] = 1,
    size: Annotated[
        int | None, typer.Option("--size", min=1, help="Keep the most frequent, so many rows.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Keep only the pieces that a text uses; measure what that costs on text held out."""
    set_quiet(quiet)
    if (model is None) == (tokenizer is None):
        raise MetaXLMError("trim: needs either --model or --tokenizer")
    from metaxlm.cli.options import print_table
    from metaxlm.init.start import check_output
    from metaxlm.init.trimming import trim
    from metaxlm.vocab.loading import load_tokenizer
    from metaxlm.vocab.trimming_loss import loss_table

    check_output(output)
    wanted = split_list(languages)
    if model is None:
        assert tokenizer is not None
        trimmed = trim(load_tokenizer(tokenizer), corpus, wanted, min_count, size)
        _save_tokenizer(trimmed, output)
        print_table(loss_table(trimmed.losses))
    else:
        _trim_model(model, corpus, wanted, min_count, size, output)
    say(f"written: {output}")


def _save_tokenizer(trimmed: Trimmed, output: Path) -> None:
    from metaxlm.manifest import atomic_folder

    with atomic_folder(output) as temporary:
        trimmed.tokenizer.save_pretrained(temporary)


def _trim_model(
    model: str,
    corpus: Path,
    languages: list[str] | None,
    min_count: int,
    size: int | None,
    output: Path,
) -> None:
    import torch

    from metaxlm.cli.options import print_table
    from metaxlm.init.start import match
    from metaxlm.init.trimming import trim
    from metaxlm.model.any_encoder import AnyEncoder
    from metaxlm.model.hugging_face import load_pretrained
    from metaxlm.probe.embedding import compare_vectors
    from metaxlm.vocab.trimming_loss import loss_table

    pretrained = load_pretrained(model)
    trimmed = trim(pretrained.tokenizer, corpus, languages, min_count, size)
    start = match(pretrained, trimmed.tokenizer)
    start.save(output)
    before = sum(parameter.numel() for parameter in pretrained.model.parameters())
    after = sum(parameter.numel() for parameter in start.model.parameters())
    similarities = {
        language: compare_vectors(
            AnyEncoder(model, pretrained.tokenizer, pretrained.model.encoder),
            AnyEncoder(str(output), start.tokenizer, start.model.encoder),
            texts,
            torch.device("cpu"),
        )
        for language, texts in trimmed.held_out.items()
    }
    print_table(loss_table(trimmed.losses, similarities))
    say(f"parameters: {before / 1e6:,.1f} to {after / 1e6:,.1f} million")
    for remark in start.remarks:
        say(f"note: {remark}")
