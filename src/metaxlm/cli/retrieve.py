"""`metaxlm retrieve` and `metaxlm mine`: nearest sentences and translation pairs of two files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Option

from metaxlm.cli.embed import BatchTokens, Center, RemoveComponents, Sif, Specials
from metaxlm.cli.options import Device, Quiet, keep_output_clean
from metaxlm.errors import MetaXLMError
from metaxlm.files import STANDARD, check_file_output, open_output
from metaxlm.progress import console, say, set_quiet

if TYPE_CHECKING:
    import torch

    from metaxlm.model.any_encoder import AnyEncoder
    from metaxlm.probe.nearest import FaissIndex
    from metaxlm.probe.retrieval import MiningScores
    from metaxlm.probe.retrieval_io import Sides

RETRIEVE_EXAMPLES = """
\b
Both sides are texts, one per line, or .npy and .parquet files of `metaxlm embed`.
Writes k lines for each query, the nearest key first:
  query's line TAB key's line TAB cosine TAB query TAB key
--sif, --center and --remove-components are fitted on each side by itself.
\b
Examples:
  metaxlm retrieve --model DIR --queries de.txt --keys en.txt --k 5 --output found.tsv
  metaxlm retrieve --model DIR --queries de.txt --keys en.txt --parallel
  metaxlm retrieve --queries de.npy --keys en.npy --output found.tsv
"""
MINE_EXAMPLES = """
\b
Writes the pairs, the best first: score TAB source TAB target (line numbers instead
of texts for vectors; both ids before the texts with --ids).
The score of a pair is its cosine over the mean cosine of both sentences' k
neighbors (ratio), minus that mean (distance), or the cosine (absolute).
Only the k nearest neighbors of a sentence are its candidates, as in LASER.
Pairs are mutual best candidates (mutual), the best of every source (forward) or
target (backward), or the highest of both with each sentence once (max).
Known pairs (--calibrate) are mixed into the texts, two thirds of them without
their partner. One half chooses the threshold (best F1, or --precision), the
other half measures it; the output has pairs of the two texts only. The last
message is the one to trust where few sentences of the texts have a translation.
\b
Examples:
  metaxlm mine --model DIR --source de.txt --target en.txt --threshold 1.06 \\
      --output pairs.tsv
  metaxlm mine --model DIR --source de.txt --target en.txt --calibrate known.tsv \\
      --precision 0.9 --output pairs.tsv
  metaxlm mine --source de.npy --target en.npy --gold gold.tsv --output pairs.tsv
  metaxlm mine --model DIR --source de-en.dev.de --target de-en.dev.en --ids \\
      --gold de-en.dev.gold --output pairs.tsv
"""

ModelOption = Annotated[
    str | None,
    Option(
        "--model", help="A variant or checkpoint, a folder or a hub id; not needed for vectors."
    ),
]
LayerOption = Annotated[
    str | None,
    Option(
        "--layer",
        help="Layer to use: 8, -1 (last), 6..8 (mean) or all. Default: a sentence encoder's own "
        "vectors (modules.json), else two thirds of depth.",
    ),
]
FaissOption = Annotated[
    str | None, Option("--faiss", metavar="INDEX", help="Search by faiss, as Flat or IVF4096,Flat.")
]
FaissSearchOption = Annotated[
    str, Option("--faiss-search", metavar="NAME=VALUE", help="As nprobe=32, efSearch=128.")
]


def retrieve_command(
    queries: Annotated[str, Option(help="Text or vectors; - is stdin.")],
    keys: Annotated[str, Option(help="Text or vectors to search.")],
    model: ModelOption = None,
    k: Annotated[int, Option(min=1, help="Number of keys for each query.")] = 1,
    layer: LayerOption = None,
    parallel: Annotated[
        bool, Option("--parallel", help="Line i translates line i: print the accuracy by layer.")
    ] = False,
    output: Annotated[str | None, Option(help="File to write; - is stdout.")] = None,
    specials: Specials = True,
    sif: Sif = False,
    center: Center = False,
    remove_components: RemoveComponents = 0,
    batch_tokens: BatchTokens = 16_384,
    faiss: FaissOption = None,
    faiss_search: FaissSearchOption = "",
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Find the sentences nearest to each sentence, exactly; or measure the accuracy."""
    set_quiet(quiet)
    target = output if output is not None or parallel else STANDARD
    with keep_output_clean(target):
        from metaxlm.pretrain.distributed import choose_device
        from metaxlm.probe.corrections import Corrections
        from metaxlm.probe.nearest import find_by_faiss, find_nearest
        from metaxlm.probe.retrieval_io import load_indexes

        check_file_output(target, queries, keys)
        index = _make_index(faiss, faiss_search)
        if parallel and index is not None:
            raise MetaXLMError("--parallel measures the exact search; leave out --faiss")
        chosen = choose_device(device)
        sides, _ = load_indexes(
            (queries, keys), layer, _opener(model), chosen, specials=specials,
            batch_tokens=batch_tokens, is_parallel=parallel, takes_several=target is None,
            corrections=Corrections(sif, center, remove_components),
        )  # fmt: skip
        if parallel:
            _show_accuracy(sides, chosen)
        if target is None:
            return
        first, second = (side.vectors[0] for side in sides)
        if index is None:
            found = find_nearest(first, second, k=k, device=chosen, title="retrieve")
        else:
            found = find_by_faiss(first, second, index, k=k, title="retrieve")
        rows = zip(found.indices_Qk.tolist(), found.similarities_Qk.tolist(), strict=True)
        left, right = sides
        lines = (
            f"{query + 1}\t{key + 1}\t{cosine:.6f}\t{left.describe(query)}\t{right.describe(key)}"
            for query, row in enumerate(rows)
            for key, cosine in zip(*row, strict=True)
        )
        _write_lines(target, lines, f"neighbors of {len(first):,} queries")


def mine_command(
    source: Annotated[str, Option(help="Text or vectors; - is stdin.")],
    target: Annotated[str, Option(help="Text or vectors of the translations.")],
    model: ModelOption = None,
    margin: Annotated[
        Literal["ratio", "distance", "absolute"], Option(help="Score of a pair; see below.")
    ] = "ratio",
    mode: Annotated[
        Literal["mutual", "forward", "backward", "max"],
        Option(help="Which candidates become pairs; see below."),
    ] = "mutual",
    k: Annotated[
        int, Option(min=1, help="Neighbors of a sentence: its candidates, and the margin's mean.")
    ] = 4,
    threshold: Annotated[float | None, Option(help="Leave out pairs that score lower.")] = None,
    gold: Annotated[
        Path | None, Option(help="True pairs: source's line TAB target's line.")
    ] = None,
    known: Annotated[
        Path | None,
        Option("--calibrate", help="Known pairs, source TAB target: they set the threshold."),
    ] = None,
    precision: Annotated[
        float | None,
        Option(min=0, max=1, help="With --calibrate: lowest threshold with this precision."),
    ] = None,
    ids: Annotated[bool, Option("--ids", help="Lines are id TAB text (BUCC).")] = False,
    output: Annotated[str, Option(help="File to write; - is stdout.")] = "-",
    layer: LayerOption = None,
    specials: Specials = True,
    sif: Sif = False,
    center: Center = False,
    remove_components: RemoveComponents = 0,
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
        from metaxlm.probe.calibration import calibrate
        from metaxlm.probe.corrections import Corrections
        from metaxlm.probe.retrieval import mine_pairs, score_mining, tune_threshold
        from metaxlm.probe.retrieval_io import load_indexes

        check_file_output(output, source, target, gold, known)
        if precision is not None and (known is None or threshold is not None):
            raise MetaXLMError("--precision: needs --calibrate FILE, and no --threshold")
        index = _make_index(faiss, faiss_search)
        chosen = choose_device(device)
        (first, second), true = load_indexes(
            (source, target), layer, _opener(model), chosen, specials=specials,
            batch_tokens=batch_tokens, has_ids=ids, gold=gold,
            corrections=Corrections(sif, center, remove_components), known=known,
        )  # fmt: skip
        sides = first.vectors[0], second.vectors[0]
        reached = None
        if known is not None:
            reached = calibrate(
                first.known[0], second.known[0], sides, precision=precision, threshold=threshold,
                margin=margin, k=k, mode=mode, device=chosen, faiss_index=index, title="calibrate",
            )  # fmt: skip
            threshold = reached.threshold
            told = _describe_scores(reached.scores, "held-out known")
            say(f"threshold {threshold:.4f}: {told}")
        found = mine_pairs(
            *sides, margin=margin, k=k, mode=mode, device=chosen, faiss_index=index, title="mine"
        )
        say(f"candidates: the {k} nearest neighbors of each sentence; --k changes it")
        kept = found if threshold is None else found.cut(threshold)
        lines = (
            f"{score:.6f}\t"
            + (f"{first.ids[a]}\t{second.ids[b]}\t" if first.ids else "")
            + f"{first.describe(a)}\t{second.describe(b)}"
            for (a, b), score in zip(kept.list_rows(), kept.score_P.tolist(), strict=True)
        )
        counts = f"{len(first):,} sources and {len(second):,} targets"
        _write_lines(output, lines, f"pairs of {counts}")
        if reached is not None:
            wrong = reached.count_wrong(len(first), len(kept))
            say(
                f"{reached.false_rate:.1%} of the known sources without a translation got one; at "
                f"this rate, {wrong:,} of the {len(kept):,} pairs are wrong"
            )
        if gold is not None:
            scope = "all pairs" if threshold is None else f"threshold {threshold:g}"
            say(f"{scope}: {_describe_scores(score_mining(kept, true))}")
            best, scores = tune_threshold(found, true)
            if scores.num_found:
                say(f"threshold {best:.4f}, tuned on this gold: {_describe_scores(scores)}")


def _opener(model: str | None) -> Callable[[], AnyEncoder] | None:
    if model is None:
        return None
    from metaxlm.run.models import open_one_model

    return lambda: open_one_model(model)


def _make_index(factory: str | None, search: str) -> FaissIndex | None:
    from metaxlm.probe.nearest import FaissIndex

    if factory is None and search:
        raise MetaXLMError(f"--faiss-search {search}: needs --faiss, as --faiss IVF4096,Flat")
    return None if factory is None else FaissIndex(factory, search)


def _show_accuracy(sides: Sides, device: torch.device) -> None:
    from rich.table import Table

    from metaxlm.probe.retrieval import measure_pairs

    rows = []
    layers = next((side.layers for side in sides if side.texts), sides[1].layers)
    for name, first, second in zip(layers, sides[0].vectors, sides[1].vectors, strict=True):
        forward, backward = measure_pairs(first, second, device)[0].double().mean(dim=0).tolist()
        rows.append((name, forward, backward, (forward + backward) / 2))
    best = max(rows, key=lambda row: row[-1])
    names = [Path(side.name).name for side in sides]
    table = Table(title=f"Accuracy at 1 in percent, {len(sides[0]):,} pairs")
    for heading in ("layer", f"{names[0]} → {names[1]}", f"{names[1]} → {names[0]}", "mean"):
        table.add_column(heading, justify="right")
    for name, *values in rows:
        is_best = len(rows) > 1 and values[-1] == best[-1]
        cells = [f"{100 * value:.1f}" for value in values]
        table.add_row(name, *cells, style="bold" if is_best else None)
    console.print(table)
    if len(rows) > 1:
        say(f"best: layer {best[0]}, {100 * best[-1]:.1f}")


def _describe_scores(scores: MiningScores, kind: str = "gold") -> str:
    return (
        f"F1 {100 * scores.f1:.1f}, precision {100 * scores.precision:.1f}, recall "
        f"{100 * scores.recall:.1f} ({scores.num_right:,} of {scores.num_found:,} found are "
        f"among {scores.num_gold:,} {kind} pairs)"
    )


def _write_lines(target: str, lines: Iterable[str], what: str) -> None:
    count = 0
    try:
        with open_output(target) as file:
            for line in lines:
                file.write(f"{line}\n")
                count += 1
    except OSError as error:
        why = f"cannot be written ({error.strerror or error})"
        raise MetaXLMError(f"{target}: {why}; choose another --output") from error
    say(f"{count:,} {what}" + ("" if target == STANDARD else f": {target}"))
