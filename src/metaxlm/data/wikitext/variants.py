"""Text that a wiki shows in one of several scripts or spellings.

Comes in: wikitext of a language with variants (Chinese, Serbian, Kazakh ...), where
`-{zh-hans:计算机;zh-hant:電腦}-` shows either word. Goes out: wikitext with one of them.
"""

from __future__ import annotations

import re

from metaxlm.data.wikitext.words import read_words

_LANGUAGES = read_words("ban crh gan iu kk ku sh shi sr tg uz wuu zh zh-yue")
_MARKUP = re.compile(r"-\{([^{}]*)\}-")
_RULE = re.compile(r"(?:^|;)\s*([a-z]{2,3}(?:-[a-z]+)*)\s*:")
# Rules that only tell the wiki how to convert elsewhere, and show nothing.
_SILENT = re.compile(r"^[\sA-Z;-]*[HT-][\sA-Z;-]*$")
_PREFERRED = ("zh-hans", "zh-cn", "zh", "zh-hant", "zh-tw", "zh-hk", "sr-ec", "kk-cyrl")
_MAX_NESTING = 3


def choose_variants(text: str, language: str) -> str:
    """Replace each choice between variants by one of them, always the same."""
    if "-{" not in text or (language and language not in _LANGUAGES):
        return text
    for _ in range(_MAX_NESTING):
        text, num_found = _MARKUP.subn(_choose, text)
        if not num_found:
            break
    return text


def _choose(match: re.Match[str]) -> str:
    flags, bar, rest = match[1].partition("|")
    if bar and not re.search(r"[:\[\]]", flags):
        if _SILENT.match(flags):
            return ""
        content = rest
    else:
        content = match[1]
    parts = _RULE.split(content)
    if len(parts) < 3:
        return content
    texts = dict(zip(parts[1::2], parts[2::2], strict=True))
    code = next((code for code in _PREFERRED if code in texts), parts[1])
    return texts[code].strip().removesuffix(";")
