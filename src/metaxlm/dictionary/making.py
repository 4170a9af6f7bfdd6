"""Make a dictionary file from any sources, with the origin of every entry beside it.

`en-sw.txt` has one entry per line, best first, as `match` and `sentences` read it. `en-sw.parquet`
has the votes, the score and the sources of each line. `en-sw.json` is the manifest: languages, what
each source gave and left out, and digests.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from metaxlm import __version__
from metaxlm.dictionary.entries import Entries, Entry
from metaxlm.dictionary.merging import MergedDictionary, PivotLoss, join, merge, require_entries
from metaxlm.dictionary.readers import find_direction, list_files, read_entries
from metaxlm.errors import MetaXLMError
from metaxlm.files import atomic_file, check_file_output, check_file_target, digest_file
from metaxlm.languages import language_name
from metaxlm.manifest import write_sealed
from metaxlm.progress import say
from metaxlm.sentences.translations import DROPPED, count_words, load_short_words

Source = str | Path | Entries


def make_dictionary(
    sources: Source | Sequence[Source],
    language: str,
    output: str | Path,
    *,
    source_language: str = "en",
    text: str | Path | None = None,
    pivot: str | None = None,
    facts: Mapping[str, Any] | None = None,
) -> MergedDictionary:
    """Merge dictionaries of a language into one file; return its entries.

    A source is a file in any supported format, a folder with files such as `en-sw.txt`, or
    `Entries`. `text` is a file in the language, whose word counts order the translations. With
    `pivot`, files named after it and another language are joined through it. English function
    words, which most dictionaries lack, are added for the languages of `short_words.tsv`. The
    manifest also has the `facts`.
    """
    given = [sources] if isinstance(sources, str | Path | Entries) else list(sources)
    output = Path(output)
    check_dictionary_output(output, language, source_language, [*given, text])
    read, loss = _read(given, language, source_language, pivot)
    extra = _list_function_words(language) if source_language == "en" else []
    merged = merge([*read, *extra])
    require_entries(merged.sources[: len(read)], language)
    if text is not None:
        merged = merged.rank(count_words(Path(text), language, merged.as_dictionary()))
    counted = None if text is None else _describe(Path(text))
    write_dictionary(merged, output, {"text": counted, "pivot": loss, **(facts or {})})
    return merged


def write_dictionary(merged: MergedDictionary, output: Path, facts: dict[str, Any]) -> None:
    """Write the dictionary, the origins of its entries and the manifest."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    origins, manifest = output.with_suffix(".parquet"), find_manifest(output)
    entries = merged.entries
    table = pa.table(
        {
            "source": [one.source for one in entries],
            "target": [one.target for one in entries],
            "votes": pa.array([one.votes for one in entries], pa.float32()),
            "score": pa.array([one.score for one in entries], pa.float32()),
            "origins": pa.array([one.origins for one in entries], pa.list_(pa.int16())),
        }
    )
    with atomic_file(output) as temporary:
        lines = (f"{one.source}\t{one.target}\n" for one in entries)
        with temporary.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(lines)
    with atomic_file(origins) as temporary:
        pq.write_table(table, temporary, compression="zstd")
    described = {path.name: _describe(path) for path in (output, origins)}
    value = {
        "metaxlm": __version__, "source_language": merged.source_language,
        "language": merged.language, "entries": len(entries), "phrases": merged.num_phrases,
        "sources": [
            asdict(one) | ({"file": _describe(Path(one.name))} if Path(one.name).is_file() else {})
            for one in merged.sources
        ],
        **facts, "files": described,
    }  # fmt: skip
    write_sealed(manifest, value)


def find_manifest(dictionary: Path) -> Path:
    """Return where the manifest of a dictionary file is."""
    return dictionary.with_suffix(".json")


def _describe(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": digest_file(path)}


def check_dictionary_output(
    output: Path, language: str, source_language: str, inputs: Sequence[Source | None]
) -> None:
    """Check the name of a dictionary, and that its files can be written."""
    wanted = f"{source_language}-{language}.txt"
    if output.name != wanted:
        raise MetaXLMError(f"{output}: name it {wanted}; `match` reads the direction from the name")
    paths = [one for one in inputs if one is not None and not isinstance(one, Entries)]
    for path in (output.with_suffix(".parquet"), find_manifest(output)):
        check_file_target(path)
    check_file_output(output, *paths)


def _list_function_words(language: str) -> list[Entries]:
    words = load_short_words().get(language)
    if words is None:
        return []
    entries = [
        Entry(english, form)
        for english, forms in words.items()
        for form in forms
        if form != DROPPED
    ]
    return [Entries("function words of metaxlm", "en", language, entries)]


def _read(
    given: Sequence[Source], language: str, source_language: str, pivot: str | None
) -> tuple[list[Entries], dict[str, Any] | None]:
    """Return all sources of the pair of languages, and what was lost through a third one."""
    direct, *legs = _sort(given, language, source_language, pivot)
    if pivot is None:
        return direct, None
    for leg, (first, second) in zip(
        legs, ((source_language, pivot), (pivot, language)), strict=True
    ):
        if not leg:
            raise MetaXLMError(
                f"--pivot {pivot}: no dictionary of {language_name(first)} and "
                f"{language_name(second)}; give a file named like {first}-{second}.txt"
            )
    known = merge(direct) if direct else None
    joined, loss = join(merge(legs[0]), merge(legs[1]), known)
    say(_tell_loss(loss, language, source_language))
    # The direct sources were read to their end, so they are opened again.
    return [*_sort(given, language, source_language, pivot)[0], joined], asdict(loss)


def _sort(
    given: Sequence[Source], language: str, source_language: str, pivot: str | None
) -> tuple[list[Entries], list[Entries], list[Entries]]:
    """Return direct dictionaries, those into the third language, and those from there."""
    pairs = [(source_language, language)]
    if pivot is not None:
        pairs += [(source_language, pivot), (pivot, language)]
    found: tuple[list[Entries], list[Entries], list[Entries]] = ([], [], [])
    for source in given:
        if isinstance(source, Entries):
            source.entries = list(source.entries)  # with a pivot, it is read twice
            found[0].append(source)
            continue
        path = Path(source)
        if pivot is None:
            files = list_files(path, language, source_language)
            found[0].extend(read_entries(one, language, source_language) for one in files)
            continue
        if path.is_dir():
            raise MetaXLMError(f"{path}: a folder; with --pivot, name the files")
        direction = find_direction(path, (source_language, language, pivot))
        if direction is None:
            raise MetaXLMError(
                f"{path}: with --pivot, name files after their languages, such as "
                f"{source_language}-{pivot}.txt"
            )
        place = next(place for place, pair in enumerate(pairs) if {*pair} == {*direction})
        first, second = pairs[place]
        found[place].append(read_entries(path, second, first))
    return found


def _tell_loss(loss: PivotLoss, language: str, source_language: str) -> str:
    share = 1 - loss.joined / loss.words if loss.words else 1.0
    told = (
        f"through {language_name(loss.pivot)}: {loss.words - loss.joined:,} of {loss.words:,} "
        f"words of {language_name(language)} ({share:.0%}) have no translation into "
        f"{language_name(source_language)}; {loss.pairs:,} entries"
    )
    if loss.agreeing is None:
        return told
    return f"{told}, of which direct dictionaries have {loss.agreeing:.0%} where they have the word"
