from __future__ import annotations

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.probe.pool import parse_layers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", [(8,)]),
        ("0", [(0,)]),
        ("-1", [(12,)]),
        ("-13", [(0,)]),
        ("6..8", [(6, 7, 8)]),
        ("-2..-1", [(11, 12)]),
        ("12+1", [(1, 12)]),
        ("0, 4..5 ,8", [(0,), (4, 5), (8,)]),
        ("all", [(k,) for k in range(13)]),
    ],
)
def test_choices_are_parsed(text: str, expected: list[tuple[int, ...]]) -> None:
    assert [choice.numbers for choice in parse_layers(text, 12)] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("13", "the encoder has 12 layers; name one from 0"),
        ("-14", "the encoder has 12 layers"),
        ("last", "cannot be read; write 8, -1"),
        ("", "cannot be read"),
        ("8..6", "write 6..8"),
        ("6..8+7", "a layer is listed twice"),
        ("8,-5", "one of them is listed twice"),
    ],
)
def test_bad_choices_are_rejected(text: str, message: str) -> None:
    with pytest.raises(MetaXLMError, match=message):
        parse_layers(text, 12)
