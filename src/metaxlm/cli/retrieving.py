"""`metaxlm retrieve` and `metaxlm mine`: the nearest sentences of two files, and their pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metaxlm.cli.options import Device, Quiet, keep_output_clean, open_one_model
from metaxlm.errors import MetaXLMError
from metaxlm.files import check_file_output
from metaxlm.progress import console, say, set_quiet

if TYPE_CHECKING:
    import torch

    from metaxlm.model.any_encoder import AnyEncoder
    from metaxlm.probe.faiss_search import FaissIndex
    from metaxlm.probe.mining import MinedPairs
    from metaxlm.probe.search_sides import SearchSides

RETRIEVE_EXAMPLES = """
\b
Both sides are a text a line, or .npy and .parquet files of `metaxlm embed`.
Writes k lines for each query, the nearest key first:
  query's line TAB key's line TAB cosine TAB query TAB key
\b
Examples:
  metaxlm retrieve --model DIR --queries de.txt --keys en.txt --k 5 --output found.tsv
  metaxlm retrieve --model DIR --queries de.txt --keys en.txt --parallel
  metaxlm retrieve --queries de.npy --keys en.npy --output found.tsv
"""
MINE_EXAMPLES = """
\b
Writes the pairs, the best first: score TAB source TAB target (with vectors instead
of texts, their numbers; with --ids, both ids come before the texts).
A pair's score is its cosine over the mean cosine of both sentences' k neighbors
(ratio), less that mean (distance), or alone (absolute).
Pairs are each other's best (mutual), the best of every source (forward) or target
(backward), or the highest of both, each sentence once (max).
\b
Examples:
  metaxlm mine --model DIR --source de.txt --target en.txt --threshold 1.06 \\
      --output pairs.tsv
  metaxlm mine --source de.npy --target en.npy --gold gold.tsv --output pairs.tsv
  metaxlm mine --model DIR --source de-en.dev.de --target de-en.dev.en --ids \\
      --gold de-en.dev.gold --output pairs.tsv
"""

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="An encoder: a variant or checkpoint of a run, a Hugging Face folder or a hub id; "
        "vectors need none.",
    ),
]
LayerOption = Annotated[
    str | None,
    typer.Option("--layer", help="As 8, -1, 6..8 (their mean); without it two thirds of depth."),
]
SpecialsOption = Annotated[
    bool, typer.Option("--specials/--no-specials", help="Whether <s> and </s> count.")
]
FaissOption = Annotated[
    str | None,
    typer.Option("--faiss", metavar="INDEX", help="Search by faiss, as Flat or IVF4096,Flat."),
]
FaissSearchOption = Annotated[
    str, typer.Option("--faiss-search", metavar="NAME=VALUE", help="As nprobe=32, efSearch=128.")
]
BatchTokens = Annotated[
    int, typer.Option("--batch-tokens", min=1, help="Tokens at a time, at most.")
]


class MarginName(StrEnum):
    """What a pair's cosine is compared with."""

    RATIO = "ratio"
    DISTANCE = "distance"
    ABSOLUTE = "absolute"


class ModeName(StrEnum):
    """Which best candidates become pairs."""

    MUTUAL = "mutual"
    FORWARD = "forward"
    BACKWARD = "backward"
    MAX = "max"


def retrieve_command(
    queries: Annotated[str, typer.Option("--queries", help="Text or vectors; - is stdin.")],
    keys: Annotated[str, typer.Option("--keys", help="Text or vectors to search.")],
    model: ModelOption = None,
    k: Annotated[int, typer.Option("--k", min=1, help="How many keys for each query.")] = 1,
    layer: LayerOption = None,
    parallel: Annotated[
        bool,
        typer.Option(
            "--parallel",
            help="Line i translates line i: print accuracy both ways, of all layers or --layer's.",
        ),
    ] = False,
    output: Annotated[
        str | None, typer.Option("--output", help="File to write; - is stdout.")
    ] = None,
    specials: SpecialsOption = True,
    batch_tokens: BatchTokens = 16_384,
    faiss: FaissOption = None,
    faiss_search: FaissSearchOption = "",
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Find the sentences nearest to each sentence, exactly; or measure how often that is right."""
    set_quiet(quiet)
    target = output if output is not None or parallel else "-"
    with keep_output_clean(target):
        from metaxlm.pretrain.distributed import choose_device
        from metaxlm.probe.faiss_search import find_by_faiss
        from metaxlm.probe.nearest import find_nearest
        from metaxlm.probe.search_sides import SearchRequest, open_sides

        check_file_output(target, queries, keys)
        index = _make_index(faiss, faiss_search)
        if parallel and index is not None:
            raise MetaXLMError("--parallel measures the exact search; leave out --faiss")
        chosen = choose_device(device)
        request = SearchRequest(
            (queries, keys),
            layer,
            specials,
            batch_tokens,
            is_parallel=parallel,
            takes_several=target is None,
        )
        with open_sides(request, has_model=model is not None) as sides:
            sides.embed(_model_opener(model), chosen)
            if parallel:
                _show_accuracy(sides, chosen)
            if target is None:
                return
            first, second = (side.vectors[0] for side in (sides.first, sides.second))
            title = "retrieve"
            if index is None:
                found = find_nearest(first, second, k=k, device=chosen, title=title)
            else:
                found = find_by_faiss(first, second, index, k=k, title=title)
            rows = zip(found.indices_Qk.tolist(), found.similarities_Qk.tolist(), strict=True)
            count = _write_lines(
                target,
                (
                    f"{query + 1}\t{key + 1}\t{cosine:.6f}\t{sides.first.describe(query)}\t"
                    f"{sides.second.describe(key)}"
                    for query, row in enumerate(rows)
                    for key, cosine in zip(*row, strict=True)
                ),
            )
            say(f"{count:,} neighbors of {len(first):,} queries" + _tell_target(target))


def mine_command(
    source: Annotated[str, typer.Option("--source", help="Text or vectors; - is stdin.")],
    target: Annotated[str, typer.Option("--target", help="Text or vectors to find them in.")],
    model: ModelOption = None,
    margin: Annotated[MarginName, typer.Option("--margin")] = MarginName.RATIO,
    mode: Annotated[ModeName, typer.Option("--mode")] = ModeName.MUTUAL,
    k: Annotated[int, typer.Option("--k", min=1, help="Neighbors of the margin.")] = 4,
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="Leave out pairs that score lower.")
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option("--gold", help="True pairs to score by: source's line TAB target's line."),
    ] = None,
    ids: Annotated[
        bool, typer.Option("--ids", help="Lines are id TAB text, and gold pairs ids (BUCC).")
    ] = False,
    output: Annotated[str, typer.Option("--output", help="File to write; - is stdout.")] = "-",
    layer: LayerOption = None,
    specials: SpecialsOption = True,
    batch_tokens: BatchTokens = 16_384,
    faiss: FaissOption = None,
    faiss_search: FaissSearchOption = "",
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Find pairs of translations in two texts that need not be parallel."""
    set_quiet(quiet)
    with keep_output_clean(output):
        from metaxlm.pretrain.distributed import choose_device
        from metaxlm.probe.mining import mine_pairs
        from metaxlm.probe.search_sides import SearchRequest, open_sides, read_gold_pairs

        check_file_output(output, source, target, gold)
        index = _make_index(faiss, faiss_search)
        chosen = choose_device(device)
        request = SearchRequest((source, target), layer, specials, batch_tokens, has_ids=ids)
        with open_sides(request, has_model=model is not None) as sides:
            true = None if gold is None else read_gold_pairs(gold, sides)
            sides.embed(_model_opener(model), chosen)
            found = mine_pairs(
                sides.first.vectors[0],
                sides.second.vectors[0],
                margin=margin.value,
                k=k,
                mode=mode.value,
                device=chosen,
                faiss_index=index,
                title="mine",
            )
            kept = found if threshold is None else found.cut(threshold)
            count = _write_lines(output, _list_mined(kept, sides))
        say(f"{count:,} pairs of {_count_rows(sides)}" + _tell_target(output))
        if true is not None:
            _show_scores(found, kept, true, threshold)


def _model_opener(model: str | None) -> Callable[[], AnyEncoder] | None:
    return None if model is None else lambda: open_one_model(model)


def _make_index(factory: str | None, search: str) -> FaissIndex | None:
    from metaxlm.probe.faiss_search import FaissIndex

    if factory is None:
        if search:
            raise MetaXLMError(f"--faiss-search {search}: needs --faiss, as --faiss IVF4096,Flat")
        return None
    return FaissIndex(factory, search)


def _show_accuracy(sides: SearchSides, device: torch.device) -> None:
    """Print accuracy@1 by layer and direction."""
    from rich.table import Table

    from metaxlm.probe.retrieval import measure_pairs

    measured = [
        measure_pairs(first, second, device)
        for first, second in zip(sides.first.vectors, sides.second.vectors, strict=True)
    ]
    means = [(right.forward + right.backward) / 2 for right in measured]
    names = [Path(side.name).name for side in (sides.first, sides.second)]
    table = Table(title=f"Accuracy at 1 in percent, {len(sides.first.vectors[0]):,} pairs")
    table.add_column("layer", justify="right")
    for heading in (f"{names[0]} → {names[1]}", f"{names[1]} → {names[0]}", "mean"):
        table.add_column(heading, justify="right")
    for name, right, mean in zip(sides.layers, measured, means, strict=True):
        is_best = len(means) > 1 and mean == max(means)
        values = [f"{100 * value:.1f}" for value in (right.forward, right.backward, mean)]
        table.add_row(name, *values, style="bold" if is_best else None)
    console.print(table)
    if len(means) > 1:
        best = means.index(max(means))
        say(f"best: layer {sides.layers[best]}, {100 * means[best]:.1f}")


def _show_scores(
    found: MinedPairs, kept: MinedPairs, gold: list[tuple[int, int]], threshold: float | None
) -> None:
    from metaxlm.probe.mining import MiningScores, score_mining, tune_threshold

    def tell(scores: MiningScores) -> str:
        return (
            f"F1 {100 * scores.f1:.1f}, precision {100 * scores.precision:.1f}, recall "
            f"{100 * scores.recall:.1f} ({scores.num_right:,} of {scores.num_found:,} found are "
            f"among {scores.num_gold:,} gold pairs)"
        )

    scope = "all pairs" if threshold is None else f"threshold {threshold:g}"
    say(f"{scope}: {tell(score_mining(kept, gold))}")
    tuned = tune_threshold(found, gold)
    if tuned.scores.num_found:
        say(f"threshold {tuned.threshold:.4f}, tuned on this gold: {tell(tuned.scores)}")


def _list_mined(pairs: MinedPairs, sides: SearchSides) -> Iterator[str]:
    for source, target, score in zip(
        pairs.source_P.tolist(), pairs.target_P.tolist(), pairs.score_P.tolist(), strict=True
    ):
        ids = f"{sides.first.ids[source]}\t{sides.second.ids[target]}\t" if sides.first.ids else ""
        yield f"{score:.6f}\t{ids}{sides.first.describe(source)}\t{sides.second.describe(target)}"


def _count_rows(sides: SearchSides) -> str:
    return f"{len(sides.first):,} sources and {len(sides.second):,} targets"


def _write_lines(target: str, lines: Iterable[str]) -> int:
    """Write lines to the standard output, or whole or not at all to a file."""
    from metaxlm.files import open_output

    count = 0
    try:
        with open_output(target) as file:
            for line in lines:
                file.write(f"{line}\n")
                count += 1
    except OSError as error:
        raise MetaXLMError(
            f"{target}: cannot be written ({error.strerror or error}); choose another --output"
        ) from error
    return count


def _tell_target(target: str) -> str:
    return "" if target == "-" else f": {target}"
