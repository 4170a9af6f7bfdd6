"""`metaxlm dictionary induce`: a dictionary from text, by word vectors or by a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from metaxlm.cli.embed import LayerOption
from metaxlm.cli.options import Device, Quiet, print_table
from metaxlm.errors import MetaXLMError
from metaxlm.progress import say, set_quiet

if TYPE_CHECKING:
    from metaxlm.dictionary.entries import Entries

EXAMPLES = """
\b
Three ways:
  without --model     word vectors of two texts, mapped with the seed's pairs; without
                      a seed, words that both languages spell alike are the seed
  --model, --pairs    words that a trained model links in parallel text
  --model             the same in sentence pairs that the model finds in both texts;
                      a sentence encoder finds them with its own vectors
The output also has the seed's entries; the .parquet file beside it tells them apart.
\b
Examples:
  metaxlm dictionary induce --source-text en.txt --text sw.txt --language sw \\
      --seed-dictionary small/en-sw.txt --output dictionaries/en-sw.txt
  metaxlm dictionary induce --model runs/demo/variants/metaxlm --pairs en-de.tsv \\
      --language de --output dictionaries/en-de.txt
"""


def induce_command(
    language: Annotated[str, Option(help="Language to translate into, such as sw.")],
    output: Annotated[Path, Option(help="File to write, named like en-sw.txt.")],
    source_text: Annotated[
        list[Path] | None, Option(help="Text of the language to translate from; repeatable.")
    ] = None,
    text: Annotated[
        list[Path] | None, Option(help="Text of the language to translate into; repeatable.")
    ] = None,
    seed_dictionary: Annotated[
        list[Path] | None, Option(help="Known translations, in any format of `make`; repeatable.")
    ] = None,
    precision: Annotated[
        float, Option(min=0, max=1, help="Wanted precision on held-out words of the seed.")
    ] = 0.5,
    model: Annotated[
        str | None, Option(help="A variant or checkpoint of a run, a folder or a hub id.")
    ] = None,
    pairs: Annotated[
        str | None, Option(help="With --model: lines `source ||| target` or TSV.")
    ] = None,
    layer: LayerOption = None,
    source_language: Annotated[str, Option(help="Language to translate from.")] = "en",
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Induce a dictionary from text of two languages; write it with a manifest."""
    set_quiet(quiet)
    from dataclasses import asdict

    from metaxlm.dictionary.coverage import source_table
    from metaxlm.dictionary.making import check_dictionary_output, find_manifest, make_dictionary

    texts = source_text or [], text or []
    if (pairs is None) != all(texts) or (pairs is not None and model is None):
        raise MetaXLMError(
            "dictionary induce: needs --source-text and --text, or --model and --pairs; see --help"
        )
    seeds = seed_dictionary or []
    for path in (*texts[0], *texts[1], *([] if pairs is None else [Path(pairs)])):
        if not path.is_file():
            raise MetaXLMError(f"{path}: no such file")
    inputs = [*texts[0], *texts[1], *seeds, *([] if pairs is None else [Path(pairs)])]
    check_dictionary_output(output, language, source_language, inputs)
    languages = source_language, language
    if model is None:
        entries, facts = _map_vectors(texts, languages, seeds, precision)
    else:
        entries, facts = _align(model, pairs, texts, languages, layer, device)
    merged = make_dictionary(
        [*seeds, entries], language, output, source_language=source_language,
        facts={"induction": facts},
    )  # fmt: skip
    print_table(source_table(asdict(one) for one in merged.sources))
    say(f"{output}: {len(merged.entries):,} entries; sources and origins: {find_manifest(output)}")


def _map_vectors(
    texts: tuple[list[Path], list[Path]],
    languages: tuple[str, str],
    seeds: list[Path],
    precision: float,
) -> tuple[Entries, dict[str, Any]]:
    from dataclasses import asdict

    from metaxlm.dictionary.induction import induce, read_seed
    from metaxlm.dictionary.vectors import train_vectors

    seed = read_seed(seeds, *languages) if seeds else None
    known = [[pair[side] for pair in seed or ()] for side in (0, 1)]
    source, target = (
        train_vectors(paths, code, known=words)
        for paths, code, words in zip(texts, languages, known, strict=True)
    )
    found = induce(source, target, seed, precision=precision)
    reached = found.reached
    say(
        f"threshold {reached.threshold:.3f}: {reached.num_right:,} of {reached.num_found:,} "
        f"translations of held-out seed words are right ({reached.share:.0%}); "
        f"{reached.num_words - reached.num_found:,} words get none"
    )
    if reached.share < precision:
        raise MetaXLMError(
            f"no threshold has a precision of {precision:.0%} on held-out seed words; give more "
            "text or a larger seed dictionary, or lower --precision"
        )
    names = " and ".join(path.name for paths in texts for path in paths)
    facts = {
        "method": "word vectors", "texts": names, "seed_pairs": found.num_seeds,
        "self_learned_pairs": found.num_added, "precision": reached.share, **asdict(reached),
    }  # fmt: skip
    return found.make_entries(f"induced from {names}"), facts


def _align(
    model: str,
    pairs: str | None,
    texts: tuple[list[Path], list[Path]],
    languages: tuple[str, str],
    layer: str | None,
    device: str,
) -> tuple[Entries, dict[str, Any]]:
    from metaxlm.dictionary.alignments import align_pairs, embed_lines, mine_sentences
    from metaxlm.dictionary.vectors import TextLines, make_splitter
    from metaxlm.pretrain.distributed import choose_device
    from metaxlm.probe.alignment_io import PairFiles
    from metaxlm.probe.pool import default_layer, parse_layers
    from metaxlm.run.models import open_one_model

    chosen = choose_device(device)
    if pairs is not None:
        sentences = [(pair.source_text, pair.target_text) for pair in PairFiles(pairs)]
        names = Path(pairs).name
    encoder = open_one_model(model)
    depth = encoder.encoder.config.num_layers
    chosen_layer = None
    if layer is not None:
        chosen_layer, *others = parse_layers(layer, depth)
        if others:
            raise MetaXLMError(f"--layer {layer}: choose one")
    if pairs is None:
        source, target = (
            embed_lines(encoder, TextLines(paths), layer=chosen_layer, device=chosen)
            for paths in texts
        )
        sentences = mine_sentences(source, target, device=chosen)
        names = " and ".join(path.name for paths in texts for path in paths)
    splits = [
        make_splitter([pair[side] for pair in sentences], language)
        for side, language in enumerate(languages)
    ]
    linking = chosen_layer or default_layer(depth)[0]
    counts = align_pairs(encoder, sentences, splits, layer=linking, device=chosen)
    facts = {
        "method": "alignment", "model": model, "layer": str(linking), "texts": names,
        "sentence_pairs": len(sentences), "is_mined": pairs is None,
    }  # fmt: skip
    return counts.make_entries(f"links of {names}", languages), facts
