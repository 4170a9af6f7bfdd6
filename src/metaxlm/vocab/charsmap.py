"""SentencePiece's text normalization, exactly, as a normalizer of the `tokenizers` library.

The character map of a SentencePiece model is a table of rewrites (`ﬁ` to `fi`, `a` + `̂` to `â`); at
every position the longest match is applied. The library's normalizer for these maps, `Precompiled`,
works on whole grapheme clusters: it leaves long ones uncomposed (Tamil `ெ` + `ா`) and loses accents
in short ones (decomposed Vietnamese `ậ` becomes `ạ`). Here it sees single characters only, and NFC
composes them. Separators prevent NFC from composing or reordering more than SentencePiece does.
Remaining differences: scripts of Unicode 16, U+1FFFE, which is removed, and, in models that fold
case, `İ` and Greek iota subscripts written as two characters.
"""

import struct
from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import lru_cache

from tokenizers import Regex, normalizers

# NFC does not compose over a barrier: a noncharacter, which text should not contain.
_BARRIER = "\U0001fffe"
# A divider breaks clusters for `Precompiled`: this, or preferably a character the map deletes.
_DIVIDER = "\U0002fffe"
_SPACES = "^ +| +$| +(?= )"
_NO_CHARACTER = 0x10FFFF
_MAX_KEY_BYTES, _MAX_NODES = 32, 1_000_000
# Characters besides marks that extend the cluster of the character before them.
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
    """Return a normalizer that rewrites text as SentencePiece does and removes extra spaces."""
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


@lru_cache(maxsize=2)  # decoding takes a second, and all our models have the same map
def _find_places(blob: bytes) -> tuple[str, str, str] | None:
    rewrites = decode_charsmap(blob)
    if rewrites.get("e\u0301") != "é":  # a custom map that does not compose
        return None
    deleted = [key for key, value in rewrites.items() if len(key) == 1 and not value]
    divider = min(deleted, default=_DIVIDER)
    return _find_barriers(rewrites), _find_short_clusters(rewrites), divider


def _find_barriers(rewrites: dict[str, str]) -> str:
    """Return a pattern of the positions over which nothing may be composed.

    Compositions start with a character of `first` and continue with some of `later`. A mark gets a
    barrier after a mark and after a character that only NFC might compose, unless it is inside a
    composition. A character that becomes a mark gets one too.
    """
    compositions = [key for key in rewrites if len(key) > 1]
    first = {key[0] for key in compositions}
    later = {character for key in compositions for character in key[1:]}
    single = {key for key in rewrites if len(key) == 1}
    closed = (single | {rewrites[key][-1] for key in compositions}) - first
    # The combining marks, by the Unicode tables of the regular expressions.
    marks = normalizers.Replace(Regex(r"\P{M}"), "").normalize_str("".join(sorted(first | later)))
    barred = closed | set(marks)
    inside = [
        f"(?<={''.join(f'[{_ranges(one)}]' for one in sets[:-1])})[{_ranges(sets[-1])}]"
        for length in sorted(set(map(len, compositions)))
        for sets in _factor({k for k in compositions if len(k) == length and k[-2] in barred})
    ]
    opening = {key for key in closed - later if rewrites.get(key, "")[:1] in later}
    after = rf"(?=[\p{{M}}{_ranges(later)}])(?<=[\p{{M}}{_ranges(closed)}])"
    outside = f"(?!{'|'.join(inside)})" if inside else ""
    return rf"{after}{outside}|(?!\A)(?=[{_ranges(opening)}])"


def _find_short_clusters(rewrites: dict[str, str]) -> str:
    """Return a pattern of where `Precompiled` must not take a cluster, below six bytes, as one."""
    alone = {key for key in rewrites if len(key) == 1}
    first = {key[0] for key in rewrites if len(key) > 1} & alone
    marks = {mark for key in rewrites for mark in filter(_is_short, key[1:])}
    return (
        rf"(?!\A)(?=[{_ranges(marks)}])|(?=\p{{M}})(?<=[{_ranges(first)}])|"
        rf"(?=[{_ranges(_JOINERS)}])(?<=[{_ranges(filter(_is_short, alone))}])"
    )


def _is_short(character: str) -> bool:
    return character < "\u0800"


def _factor(words: Collection[str]) -> list[tuple[frozenset[str], ...]]:
    """Write words of one length as products of character sets: 140,000 Hangul words as six."""
    if not words or len(next(iter(words))) == 1:
        return [(frozenset(words),)] if words else []
    heads_of: dict[str, set[str]] = defaultdict(set)
    for word in words:
        heads_of[word[-1]].add(word[:-1])
    tails_of: dict[frozenset[str], set[str]] = defaultdict(set)
    for tail, heads in heads_of.items():
        tails_of[frozenset(heads)].add(tail)
    # Sorted: the same map gives the same bytes.
    return [
        (*sets, frozenset(tails))
        for heads, tails in sorted(tails_of.items(), key=lambda item: min(item[1]))
        for sets in _factor(heads)
    ]


def _ranges(characters: Iterable[str]) -> str:
    """Write characters as the inside of a character class, which must not be empty."""
    runs: list[list[int]] = []
    for code in sorted(map(ord, characters)) or [_NO_CHARACTER]:
        if runs and code == runs[-1][1] + 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "".join(
        rf"\x{{{start:x}}}" + (rf"-\x{{{end:x}}}" if end > start else "") for start, end in runs
    )
