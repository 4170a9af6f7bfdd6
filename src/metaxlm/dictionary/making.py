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
from metaxlm.languages import explain_unknown, language_name
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
    for warning in explain_unknown((source_language, language)):
        say(warning)
    output, text = Path(output), None if text is None else Path(text)
    files = _list_files(given, language, source_language, pivot)
    check_dictionary_output(output, language, source_language, [*files, text])
    direct = [one for one in given if isinstance(one, Entries)]
    direct += _open(files, language, source_language)
    loss = None
    if pivot is not None:
        joined, loss = _join(files, language, source_language, pivot)
        direct.append(joined)
    extra = _list_function_words(language) if source_language == "en" else []
    merged = merge([*direct, *extra])
    require_entries(merged.sources[: len(direct)], language)
    if text is not None:
        merged = merged.rank(count_words(text, language, merged.as_dictionary()))
    inputs = {str(file): _describe(file) for file in (*files, text) if file is not None}
    described = {"pivot": loss and asdict(loss), "inputs": inputs, **(facts or {})}
    write_dictionary(merged, output, described)
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
        "sources": list(map(asdict, merged.sources)), **facts, "files": described,
    }  # fmt: skip
    write_sealed(manifest, value)


def find_manifest(dictionary: Path) -> Path:
    """Return where the manifest of a dictionary file is."""
    return dictionary.with_suffix(".json")


def _describe(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": digest_file(path)}


def check_dictionary_output(
    output: Path, language: str, source_language: str, inputs: Sequence[Path | None]
) -> None:
    """Check the name of a dictionary, and that its files can be written."""
    wanted = f"{source_language}-{language}.txt"
    if output.name != wanted:
        raise MetaXLMError(f"{output}: name it {wanted}; `match` reads the direction from the name")
    for path in (output.with_suffix(".parquet"), find_manifest(output)):
        check_file_target(path)
    check_file_output(output, *inputs)


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


def _list_files(
    given: Sequence[Source], language: str, source_language: str, pivot: str | None
) -> dict[Path, tuple[str, str]]:
    """Return the files of the sources, each with the two languages that are read from it."""
    found: dict[Path, tuple[str, str]] = {}
    for path in (Path(one) for one in given if not isinstance(one, Entries)):
        if pivot is None:
            files = list_files(path, language, source_language)
            found |= dict.fromkeys(files, (source_language, language))
            continue
        languages = (source_language, pivot, language)
        direction = None if path.is_dir() else find_direction(path, languages)
        if direction is None:
            raise MetaXLMError(
                f"{path}: with --pivot, name files after their languages, such as "
                f"{source_language}-{pivot}.txt"
            )
        first, second = sorted(direction, key=languages.index)
        found[path] = (first, second)
    return found


def _open(files: dict[Path, tuple[str, str]], language: str, source_language: str) -> list[Entries]:
    wanted = (source_language, language)
    return [read_entries(path, *pair[::-1]) for path, pair in files.items() if pair == wanted]


def _join(
    files: dict[Path, tuple[str, str]], language: str, source_language: str, pivot: str
) -> tuple[Entries, PivotLoss]:
    legs = []
    for first, second in ((source_language, pivot), (pivot, language)):
        leg = _open(files, second, first)
        if not leg:
            raise MetaXLMError(
                f"--pivot {pivot}: no dictionary of {language_name(first)} and "
                f"{language_name(second)}; give a file named like {first}-{second}.txt"
            )
        legs.append(merge(leg))
    known = _open(files, language, source_language)
    joined, loss = join(legs[0], legs[1], merge(known) if known else None)
    say(_tell_loss(loss, language, source_language))
    return joined, loss


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
