"""Damage to the bytes of a file, drawn from a seeded generator.

`mutate` takes the bytes of a valid file and returns damaged ones. About half of the mutations know
the format (numbers, JSON values, YAML anchors, compressed streams), the others change bytes.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import random
import re
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

Mutation = Callable[[bytes, random.Random], bytes]

_PIECES = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\r", b"\xc3", b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80", b"\\ud800", b'"\\ud83d"', b"\xe2\x80\xa8", b"\xc2\x85", b"\x1a",
    b"\x1b[31m", b"\t", b"\t\t\t", b"\n\n", b" ||| ", b"0-0 1-1", b"<page>", b"</page>",
    b"<!DOCTYPE a>", b"{{{{", b"[[[[", b"<item>", b"<text>", b"NaN",
    b"-Infinity", b"1e999", b"&a [*a]", b"*a", b"!!python/object:os.system", b"!!int x",
    b"!!timestamp x", b"!!bool x", b"? [a]", b"<<: *a", b": ", b"- ", b"#", b"\"", b"'", b",",
    b"{}", b"[]",
)  # fmt: skip
_NUMBERS = (
    b"9" * 5_000, b"9" * 40, b"-1", b"0", b"NaN", b"1e999", b"-Infinity", b"9223372036854775808",
    b"4294967296", b"1000000000", b"1.5", b'"1"', b"null", b"-0", b"1e400", b"\xd9\xa3", b"0x10",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, "", "x", "\0", "\ud800", [], {}, [[]], {"": None}, -1, 0, 10**18, 10**40,
    10**400, 1.5, float("nan"), float("inf"), "9" * 5_000, "../../etc", ["x"] * 3, {"x": 1},
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")


def flip_bits(data: bytes, draw: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 8))):
        bit = draw.randrange(8 * len(data))
        damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def set_bytes(data: bytes, draw: random.Random) -> bytes:
    start = draw.randrange(len(data))
    size = draw.choice((1, 2, 4, 8))
    value = draw.choice((b"\0", b"\xff", b"\x7f", b"\x80", b"\x01"))
    return data[:start] + value * size + data[start + size :]


def truncate(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def delete(data: bytes, draw: random.Random) -> bytes:
    start, stop = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[stop:]


def insert(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data) + 1)
    piece = draw.choice(_PIECES) if draw.random() < 0.8 else draw.randbytes(draw.randint(1, 40))
    return data[:place] + piece + data[place:]


def replace(data: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(data))
    piece = draw.choice(_PIECES)
    return data[:place] + piece + data[place + len(piece) :]


def duplicate(data: bytes, draw: random.Random) -> bytes:
    start, stop = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[start:stop] * draw.choice((2, 2, 3, 20)) + data[stop:]


def shuffle_lines(data: bytes, draw: random.Random) -> bytes:
    lines = data.split(b"\n")
    for _ in range(draw.choice((1, 1, 3))):
        i, j = draw.randrange(len(lines)), draw.randrange(len(lines))
        lines[i], lines[j] = lines[j], draw.choice((lines[i], b"", lines[j]))
    return b"\n".join(lines)


def swap_columns(data: bytes, draw: random.Random) -> bytes:
    one, other = draw.sample((b"\t", b" ", b",", b":", b"\n", b"-", b'"'), 2)
    return data.replace(one, other, draw.choice((1, 1, 10_000)))


def grow_number(data: bytes, draw: random.Random) -> bytes:
    places = list(_NUMBER.finditer(data))
    if not places:
        return insert(data, draw)
    place = draw.choice(places)
    return data[: place.start()] + draw.choice(_NUMBERS) + data[place.end() :]


def nest(data: bytes, draw: random.Random) -> bytes:
    depth = draw.choice((60, 1_100, 100_000))
    opening = draw.choice((b"[", b'{"a":', b"(", b"{{", b"<b>", b"- ", b"&a [", b"[["))
    place = draw.choice((0, draw.randrange(len(data) + 1)))
    return data[:place] + opening * depth + data[place:]


def encode(data: bytes, draw: random.Random) -> bytes:
    if draw.random() < 0.2:
        return draw.choice((b"\xef\xbb\xbf" + data, data.replace(b"\n", b"\r\n"), data + b"\r"))
    code = draw.choice(("utf-16", "utf-16-be", "utf-32", "cp1251", "utf-7", "shift-jis"))
    return data.decode("utf-8", "replace").encode(code, "replace")


def change_json(data: bytes, draw: random.Random) -> bytes:
    """Put another value, or another key, into a JSON value or into one of the lines of a file."""
    try:
        value = json.loads(data)
        lines: list[bytes] | None = None
    except (ValueError, RecursionError):
        lines = data.split(b"\n")
        index = draw.randrange(len(lines))
        try:
            value = json.loads(lines[index])
        except (ValueError, RecursionError):
            return grow_number(data, draw)
    try:
        text = json.dumps(_change(value, draw), ensure_ascii=draw.random() < 0.9)
    except RecursionError:
        return truncate(data, draw)
    new = text.encode("utf-8", "surrogatepass")
    if lines is None:
        return new
    lines[index] = new
    return b"\n".join(lines)


def _change(value: Any, draw: random.Random) -> Any:
    if not isinstance(value, dict | list) or not value or draw.random() < 0.1:
        return draw.choice(_VALUES)
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = draw.choice(keys)
    if draw.random() < 0.1:
        if isinstance(value, dict):
            return {("x" if k == key else k): v for k, v in value.items()}
        return value[:key] + value[key + 1 :]
    changed = _change(value[key], draw)
    if isinstance(value, dict):
        return {**value, key: changed}
    return [*value[:key], changed, *value[key + 1 :]]


def repack(data: bytes, draw: random.Random) -> bytes:
    """Return the data compressed another way, as another kind of file, or with junk after it."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("arr_0.npy", data[:200])
    return draw.choice(
        (
            bz2.compress(data), gzip.compress(data), lzma.compress(data), archive.getvalue(),
            data + b"junk", data + data, data + bytes(16), lzma.compress(data)[:-9],
            gzip.compress(data)[:-5], b"\x80\x04\x95", b"\x93NUMPY\x01\x00",
            b"PAR1" + data[:40] + b"PAR1", b"\x28\xb5\x2f\xfd",
        )
    )  # fmt: skip


def damage_stream(data: bytes, draw: random.Random) -> bytes:
    """Damage what a compressed file holds, and compress it again; other data is repacked."""
    for kind in (lzma, gzip):
        try:
            content = kind.decompress(data)
        except (lzma.LZMAError, zlib.error, OSError, EOFError):
            continue
        return kind.compress(draw.choice(_TEXT)(content, draw)) if content else b""
    return repack(data, draw)


def empty(data: bytes, draw: random.Random) -> bytes:
    return draw.choice((b"", b"\n", b"\0" * 100, b" ", data[:1], b"\xef\xbb\xbf", b"null\n", b"{}"))


_TEXT: tuple[Mutation, ...] = (
    change_json, change_json, change_json, change_json, grow_number, grow_number, insert, replace,
    duplicate, shuffle_lines, swap_columns, nest, encode, flip_bits,
)  # fmt: skip
_ALL: tuple[Mutation, ...] = (
    *_TEXT, damage_stream, damage_stream, flip_bits, flip_bits, set_bytes, truncate, delete,
    repack, empty,
)  # fmt: skip


def mutate(data: bytes, draw: random.Random) -> tuple[str, bytes]:
    """Return the names of one to three mutations, and the data after them."""
    names = []
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        mutation = draw.choice(_ALL)
        names.append(mutation.__name__)
        data = mutation(data or b"\n", draw)
    return "+".join(names), data
