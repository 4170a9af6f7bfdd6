"""The table of languages, and how often each language is sampled.

The table is `languages.tsv`: the 87 languages of the paper's appendix table; XLM-R's list of 94
(its 100 codes less five romanized ones and Burmese in the Zawgyi encoding), which has 81 of them;
and Yoruba, in two of the tasks. The paper's text has 94 languages and 67.4 GB, its table 87 that
already sum to 67.40 GB; XLM-R's list cannot be the paper's 94, because it lacks six of the 87.
"""

import csv
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources

TASKS = (
    "udpos", "panx", "xquad", "mlqa", "tydiqa", "xnli", "pawsx", "cls", "tatoeba", "wordalign",
)  # fmt: skip
"""The paper's ten tasks, by the names of their folders."""

TASK_TITLES = {
    "udpos": "POS", "panx": "NER", "xquad": "XQuAD", "mlqa": "MLQA", "tydiqa": "TyDiQA",
    "xnli": "XNLI", "pawsx": "PAWS-X", "amazon-books": "Amazon Books", "amazon-dvd": "Amazon DVD",
    "amazon-music": "Amazon Music", "tatoeba": "Tatoeba", "alignment": "Word alignment",
}  # fmt: skip
"""The tasks of results and recipes, by the names in tables, in the paper's order."""


@dataclass(frozen=True)
class Language:
    """One row of the table."""

    code: str
    name: str
    iso3: str  # in Tatoeba's file names; no two languages share one
    scripts: tuple[str, ...]  # the usual one first; names as in `metaxlm.scripts`
    family: str  # `IE` is Indo-European, with its branch
    paper_gb: float | None  # GB of text in the paper's appendix table, if it has the language
    in_xlmr: bool  # among the 94 of XLM-R's list
    wiki: str  # Wikipedia's code, as in `XXwiki` dumps and in Hugging Face's `20231101.XX`
    has_dictionary: bool  # MUSE has an English dictionary of it
    tasks: tuple[str, ...]  # the `TASKS` with test data in it (besides English)

    @property
    def script(self) -> str:
        """The usual script."""
        return self.scripts[0]


def _read_table() -> dict[str, Language]:
    text = resources.files("metaxlm").joinpath("languages.tsv").read_text(encoding="utf-8")
    table: dict[str, Language] = {}
    for row in csv.DictReader(text.splitlines(), delimiter="\t"):
        table[row["code"]] = Language(
            **{key: row[key] for key in ("code", "name", "iso3", "family", "wiki")},
            scripts=tuple(row["scripts"].split()),
            paper_gb=None if row["paper_gb"] == "-" else float(row["paper_gb"]),
            in_xlmr=row["xlmr"] == "yes",
            has_dictionary=row["muse"] == "yes",
            tasks=() if row["tasks"] == "-" else tuple(row["tasks"].split()),
        )
    return table


LANGUAGES: dict[str, Language] = _read_table()  # by code, in alphabetical order

# Other codes in use: retired and country codes, the bibliographic three-letter codes, and parts of
# macrolanguages.
ALIASES = {
    "alb": "sq", "arm": "hy", "baq": "eu", "bur": "my", "chi": "zh", "cn": "zh", "cz": "cs",
    "cze": "cs", "dk": "da", "dut": "nl", "fas": "fa", "farsi": "fa", "fil": "tl", "fre": "fr",
    "geo": "ka", "ger": "de", "gr": "el", "gre": "el", "ice": "is", "in": "id", "iw": "he",
    "ji": "yi", "jp": "ja", "jw": "jv", "kmr": "ku", "kr": "ko", "lav": "lv", "mac": "mk",
    "may": "ms", "mo": "ro", "msa": "ms", "nb": "no", "nep": "ne", "nor": "no", "ory": "or",
    "per": "fa", "rum": "ro", "se": "sv", "sh": "sr", "slo": "sk", "swa": "sw", "ua": "uk",
    "vn": "vi", "wel": "cy", "zho": "zh", "zh-hk": "zh-Hant", "zh-mo": "zh-Hant",
    "zh-tw": "zh-Hant", "zht": "zh-Hant",
}  # fmt: skip

# FLORES has codes of individual languages where the table has their macrolanguage.
_MEMBERS = {
    "als": "sq", "arb": "ar", "azj": "az", "ekk": "et", "gaz": "om", "khk": "mn", "pbt": "ps",
    "plt": "mg", "uzn": "uz", "ydd": "yi",
}  # fmt: skip

# Wiktionary has one heading for several languages.
_SHARED_CODES = {"bs": "sh", "hr": "sh", "zh-Hant": "cmn"}


def list_codes(code: str) -> frozenset[str]:
    """Return the codes by which files name a language, in lower case: `sw`, `swa` and `swh`."""
    known = LANGUAGES.get(code)
    own = {code, *((known.iso3, known.wiki) if known else ())}
    own |= {alias for alias, meant in ALIASES.items() if meant == code}
    return frozenset(one.lower() for one in (*own, _SHARED_CODES.get(code, code)))


def list_iso3(code: str) -> list[str]:
    """Return the three-letter codes of a language, the table's own first: `swh`, then `swa`."""
    own = [LANGUAGES[code].iso3] if code in LANGUAGES else []
    return own + [alias for alias, meant in ALIASES.items() if meant == code and len(alias) == 3]


def language_name(code: str) -> str:
    """Return the English name of a language, or its code when the table does not have it."""
    known = LANGUAGES.get(code)
    return known.name if known else code


def wiki_code(code: str) -> str:
    """Return Wikipedia's code of a language; by default the code itself."""
    known = LANGUAGES.get(code)
    return known.wiki if known else code


def task_languages(task: str) -> tuple[str, ...]:
    """Return the languages that one of `TASKS` tests in the paper, in alphabetical order."""
    assert task in TASKS, task
    return tuple(code for code, known in LANGUAGES.items() if task in known.tasks)


def suggest_code(code: str) -> str | None:
    """Return the most likely code of the table for another one, or None."""
    wanted = code.strip().lower().replace("_", "-")
    known: dict[str, str] = {}
    for key in ("code", "iso3", "name"):
        known |= {getattr(entry, key).lower(): code for code, entry in LANGUAGES.items()}
    known |= ALIASES
    while wanted:
        if wanted in known:
            return known[wanted]
        wanted = wanted.rpartition("-")[0]
    # Names may be misspelled; codes are too short for their neighbors to mean anything.
    names = [name for name in known if len(name) > 3]
    close = difflib.get_close_matches(code.strip().lower(), names, n=1, cutoff=0.8)
    return known[close[0]] if close else None


def find_code(name: str) -> str:
    """Return the table's code for one such as `deu_Latn` or `de-DE`, or the name as it is.

    A romanized text (`arb_Latn`) keeps its name.
    """
    code, _, script = name.replace("-", "_").partition("_")
    found = _MEMBERS.get(code) or suggest_code(code)
    if found is None or code.lower() not in {*list_codes(found), *_MEMBERS}:
        return name
    if found == "zh" and script.upper() in ("HANT", "TW", "HK", "MO"):
        return "zh-Hant"
    return name if script == "Latn" and "Latin" not in LANGUAGES[found].scripts else found


def explain_unknown(codes: Iterable[str]) -> list[str]:
    """Return a warning for each code that is not in the table, which may be mistyped."""
    lines = []
    for code in dict.fromkeys(codes):
        if code not in LANGUAGES:
            meant = suggest_code(code)
            advice = f"did you mean {meant}?" if meant else "its text is used as it is"
            lines.append(f"{code}: not in the language table; {advice}")
    return lines


def rebalance(sizes: Mapping[str, float], alpha: float) -> dict[str, float]:
    """Return the rebalanced distribution over languages, p_i = N_i^alpha / sum_j N_j^alpha."""
    weights = {language: size**alpha for language, size in sizes.items()}
    total = sum(weights.values())
    return {language: weight / total for language, weight in weights.items()}
