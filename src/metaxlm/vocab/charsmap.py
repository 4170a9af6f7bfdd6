"""SentencePiece's text normalization, exactly, as a normalizer of the `tokenizers` library.

Comes in: the character map of a SentencePiece model, a table of rewrites (`ﬁ` to `fi`, `a` + `̂` to
`â`) of which the longest that fits is taken at every place. Goes out: a normalizer that does the
same inside a fast tokenizer. The library's own one for these maps, `Precompiled`, looks at whole
grapheme clusters: it leaves long ones uncomposed (Tamil `ெ` + `ா`) and loses accents in short ones
(decomposed Vietnamese `ậ` becomes `ạ`). Here it only ever sees single characters, and Unicode's NFC
composes them. Separators stand wherever NFC would compose or reorder what SentencePiece does not:
between the vowel signs of Arabic and Hebrew, between a composed letter and another accent.
What still differs: scripts that came with Unicode 16, later than the library's tables; U+1FFFE,
which is dropped; and, in models that fold case, `İ` and Greek iota subscripts that are written as
two characters.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import lru_cache

from tokenizers import Regex, normalizers

# A barrier keeps NFC from composing over it: a noncharacter, which no text should have.
_BARRIER = "\U0001fffe"
# A divider breaks clusters for `Precompiled`: this, or better a character that the map deletes.
_DIVIDER = "\U0002fffe"
_SPACES = "^ +| +$| +(?= )"
_NO_CHARACTER = 0x10FFFF
_MAX_KEY_BYTES = 32
_MAX_NODES = 1_000_000
# What Unicode counts to the cluster of the character before it, marks apart.
_JOINERS = "\u0e33\u0eb3\u200c\u200d"


def decode_charsmap(blob: bytes) -> dict[str, str]:
    """Return the rewrites of a character map: a double-array trie, then its values."""
    (size,) = struct.unpack_from("<I", blob)
    units = struct.unpack_from(f"<{size // 4}I", blob, 4)
    values = blob[4 + size :]
    children: dict[int, list[tuple[int, bytes]]] = defaultdict(list)
    for place, unit in enumerate(units):
        if 0 < (label := unit & 0x800000FF) < 256:
            children[place ^ label].append((place, bytes([label])))
    rewrites = {}
    stack = [(0, b"")]
    num_seen = 0
    while stack:
        place, key = stack.pop()
        num_seen += 1
        if num_seen > _MAX_NODES or len(key) > _MAX_KEY_BYTES:
            raise ValueError("a character map without end")
        unit = units[place]
        base = place ^ ((unit >> 10) << ((unit & 0x200) >> 6))
        if unit & 0x100:
            start = units[base] & 0x7FFFFFFF
            rewrites[key.decode()] = values[start : values.index(b"\0", start)].decode()
        stack.extend((child, key + label) for child, label in children.get(base, ()))
    return rewrites


def charsmap_normalizer(blob: bytes) -> normalizers.Normalizer:
    """Return the steps that rewrite text as SentencePiece does with this map, and trim spaces."""
    places = _find_places(blob) if blob else None
    if places is None:
        own = [normalizers.Precompiled(blob)] if blob else []
        return normalizers.Sequence([*own, normalizers.Replace(Regex(_SPACES), "")])
    barriers, clusters, divider = places
    return normalizers.Sequence(
        [
            normalizers.Replace(Regex(barriers), _BARRIER),
            normalizers.Replace(Regex(clusters), divider),
            normalizers.Precompiled(blob),
            *([normalizers.Replace(divider, "")] if divider == _DIVIDER else []),
            normalizers.NFC(),
            normalizers.Replace(Regex(f"{_BARRIER}|{_SPACES}"), ""),
        ]
    )


@lru_cache(maxsize=2)  # all models trained here have the same map, and decoding takes a second
def _find_places(blob: bytes) -> tuple[str, str, str] | None:
    """Return patterns of where barriers and dividers go, and the divider; None without any."""
    rewrites = decode_charsmap(blob)
    if rewrites.get("e\u0301") != "é":  # a map of somebody's own that does not compose
        return None
    deleted = [key for key, value in rewrites.items() if len(key) == 1 and not value]
    divider = min(deleted, default=_DIVIDER)
    return _find_barriers(rewrites), _find_short_clusters(rewrites), divider


def _find_barriers(rewrites: dict[str, str]) -> str:
    """Return a pattern of the places, all before marks, over which nothing may be composed.

    Compositions start with a character of `first` and go on with some of `later`. A mark after
    another mark, or after a character that no composition starts with but that NFC might compose
    or turn into one it composes, gets a barrier, unless the place is inside a composition. So does
    a character that becomes a mark.
    """
    compositions = [key for key in rewrites if len(key) > 1]
    first = {key[0] for key in compositions}
    later = {character for key in compositions for character in key[1:]}
    closed = {key for key in rewrites if len(key) == 1} | {
        rewrites[key][-1] for key in compositions
    }
    closed -= first
    barred = closed | _select_marks(first | later)
    inside = [
        f"(?<={''.join(map(_class_of, sets[:-1]))}){_class_of(sets[-1])}"
        for length in sorted(set(map(len, compositions)))
        for sets in _factor({k for k in compositions if len(k) == length and k[-2] in barred})
    ]
    opening = {key for key in closed - later if rewrites.get(key, "")[:1] in later}
    after = rf"(?=[\p{{M}}{_ranges(later)}])(?<=[\p{{M}}{_ranges(closed)}])"
    outside = f"(?!{'|'.join(inside)})" if inside else ""
    return rf"{after}{outside}|(?!\A)(?=[{_ranges(opening)}])"


def _find_short_clusters(rewrites: dict[str, str]) -> str:
    """Return a pattern of the places where `Precompiled` must see two characters apart.

    It takes clusters below six bytes as one: marks of two bytes, and whatever joins a character
    that is rewritten itself.
    """
    alone = {key for key in rewrites if len(key) == 1}
    first = {key[0] for key in rewrites if len(key) > 1} & alone
    marks = {mark for key in rewrites for mark in filter(_is_short, key[1:])}
    return "|".join(
        [
            rf"(?!\A)(?=[{_ranges(marks)}])",
            rf"(?=\p{{M}})(?<=[{_ranges(first)}])",
            rf"(?=[{_ranges(_JOINERS)}])(?<=[{_ranges(filter(_is_short, alone))}])",
        ]
    )


def _is_short(character: str) -> bool:
    """Whether UTF-8 has it in two bytes."""
    return character < "\u0800"


def _select_marks(characters: Iterable[str]) -> set[str]:
    """Return the combining marks, by the same Unicode tables that the pattern will use."""
    return set(normalizers.Replace(Regex(r"\P{M}"), "").normalize_str("".join(sorted(characters))))


def _factor(words: Collection[str]) -> list[tuple[frozenset[str], ...]]:
    """Write words of one length as few products of character sets: 140,000 Hangul ones as six."""
    if not words or len(next(iter(words))) == 1:
        return [(frozenset(words),)] if words else []
    heads_of: dict[str, set[str]] = defaultdict(set)
    for word in words:
        heads_of[word[-1]].add(word[:-1])
    tails_of: dict[frozenset[str], set[str]] = defaultdict(set)
    for tail, heads in heads_of.items():
        tails_of[frozenset(heads)].add(tail)
    # Sorted, so that the same map gives the same bytes.
    return [
        (*sets, frozenset(tails))
        for heads, tails in sorted(tails_of.items(), key=lambda item: min(item[1]))
        for sets in _factor(heads)
    ]


def _class_of(characters: Iterable[str]) -> str:
    return f"[{_ranges(characters)}]"


def _ranges(characters: Iterable[str]) -> str:
    """Write characters as the inside of a regular expression's brackets, which cannot be empty."""
    runs: list[list[int]] = []
    for code in sorted(map(ord, characters)) or [_NO_CHARACTER]:
        if runs and code == runs[-1][1] + 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "".join(
        rf"\x{{{start:x}}}" + (rf"-\x{{{end:x}}}" if end > start else "") for start, end in runs
    )
