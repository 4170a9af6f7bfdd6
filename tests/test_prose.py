"""Keep phrases out of the text that readers of English documentation have to decode.

The rule: write as the PyTorch and Hugging Face docs do. `python tests/test_prose.py src/metaxlm/x`
prints the places below one folder.
"""

import io
import json
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXT = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
PHRASES = {
    r"\b(?:comes?|came|coming) in\b|\b(?:goes?|went|going) out\b": "take, return, read, write",
    r"\b(?<!out)(?<!under)stands?\b|\bstood\b": "is, is stored in",
    r"\b(?:lies|lie|lay|lying)\b": "is, is stored in",
    r"\b(?:is|are|was|were|gets?) (?:told|said|asked)\b": "logs, warns, raises",
    r"\bso (?:many|often)\b": "N, at most N",
    r"(?<!there )\b(?:is|are|was|were) no\b(?! (?:more|longer|less|\w+er|worse)\b)": "is not a",
    r"\b(?:whoever|nobody|somebody)\b": "name the user, process or caller",
    r"\bat hand\b": "available",
    r"\banew\b": "again",
    r"\bmend(?:s|ed|ing)?\b": "fix, repair",
    r"\b(?:one|a|an) \w+ an? (?:line|pair|core|file|language|step|word|sentence|GPU|row)\b": "per",
    r"\bone an? (?:line|pair|core|file|language|step|word|sentence|GPU|row|process)\b": "per",
    r"\brefus(?:e|es|ed|ing|al)\b": "reject, raise",
    r"\bjudg(?:e|es|ed|ing)\b": "evaluate, decide",
    r"^[\"']{3}(?:Say|Tell) ": "Return, report",
}
PATTERNS = {re.compile(pattern, re.IGNORECASE): advice for pattern, advice in PHRASES.items()}


def list_files(root: Path) -> Iterator[Path]:
    for path in [root] if root.is_file() else sorted(root.rglob("*")):
        if path.suffix in {".py", ".md", ".yaml", ".ipynb"} and ".venv" not in path.parts:
            yield path


def find_text(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line number and the text of every string, comment, test name or paragraph."""
    source = path.read_text("utf-8")
    if path.suffix == ".py":
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type in TEXT:
                yield token.start[0], token.string
            elif token.type == tokenize.NAME and token.string.startswith("test_"):
                yield token.start[0], token.string.replace("_", " ")
        return
    if path.suffix == ".ipynb":
        for number, cell in enumerate(json.loads(source)["cells"], 1):
            yield number, "".join(cell["source"])
        return
    in_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code and (path.suffix == ".md" or "#" in line):
            yield number, line if path.suffix == ".md" else line.partition("#")[2]


def find_phrases(path: Path) -> list[str]:
    return [
        f"{path}:{number}: {' '.join(match[0].split())!r}; write: {advice}"
        for number, text in find_text(path)
        for pattern, advice in PATTERNS.items()
        for match in pattern.finditer(" ".join(text.split()))
    ]


@pytest.mark.parametrize("folder", ["src", "tests", "docs", "benchmarks", "notebooks", "README.md"])
def test_text_uses_plain_english(folder: str) -> None:
    this = Path(__file__)
    found = [
        place for path in list_files(ROOT / folder) if path != this for place in find_phrases(path)
    ]
    assert not found, f"{len(found)} phrases\n" + "\n".join(found[:50])


def test_phrases_are_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""Rows come in."""\nprint("the file stands here")  # nobody is told\n')
    assert len(find_phrases(path)) == 4


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        for file in list_files(Path(argument)):
            print(*find_phrases(file), sep="\n", end="\n" if find_phrases(file) else "")
