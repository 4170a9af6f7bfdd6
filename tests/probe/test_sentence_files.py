from __future__ import annotations

from pathlib import Path

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.probe.retrieval_io import open_sentences


def test_lines_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    # Of all that Unicode calls a line end, only the newline ends a line.
    path.write_bytes("\ufeffone\u2028still one\r\ntwo\x0bstill two\nthree".encode())
    with open_sentences(str(path)) as sentences:
        assert len(sentences) == 3
        assert list(sentences) == ["one\u2028still one", "two\x0bstill two", "three"]
        assert list(sentences) == list(sentences)
        assert sentences.place(3) == f"{path}:3"


@pytest.mark.parametrize("later", ["one\ntwo\n", "one\ntwo\nthree\nfour\n"])
def test_a_file_that_changes_is_noticed(tmp_path: Path, later: str) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\nthree\n", encoding="utf-8")
    with open_sentences(str(path)) as sentences:
        path.write_text(later, encoding="utf-8")
        found = []
        with pytest.raises(MetaXLMError, match=r"a.txt: changed while it was read; start again"):
            for text in sentences:
                found.append(text)
        assert found == later.split()[:3]
