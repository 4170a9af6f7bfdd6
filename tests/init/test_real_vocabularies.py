"""The counts of vocabulary matching with XLM-R's and RoBERTa's real vocabularies.

The files are not part of the project; without them these tests skip.
"""

from __future__ import annotations

import json
import lzma
import tarfile
from pathlib import Path

import numpy as np
import pytest

from metaxlm.init.dictionaries import load_dictionaries
from metaxlm.init.ledger import coverage
from metaxlm.init.match_plan import make_plan
from metaxlm.init.rules import RULES
from metaxlm.init.vocabulary import NormalizedVocab, list_vocabulary
from metaxlm.recipe import MatchingRecipe
from metaxlm.vocab.tokens import Kind

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
PIECES = DATA / "vocabulary" / "xlmr-pieces.txt.xz"
TOKENS = DATA / "vocabulary" / "roberta-encoder.json"
MUSE = DATA / "eval" / "muse.tar.xz"

needs_vocabularies = pytest.mark.skipif(
    not (PIECES.exists() and TOKENS.exists()), reason="needs the vocabularies of XLM-R and RoBERTa"
)
needs_muse = pytest.mark.skipif(not MUSE.exists(), reason="needs the MUSE dictionaries")


@pytest.fixture(scope="module")
def xlmr() -> NormalizedVocab:
    text = lzma.decompress(PIECES.read_bytes()).decode()
    # Not splitlines: one of the pieces is itself a line separator.
    return list_vocabulary(text.removesuffix("\n").split("\n"), Kind.SENTENCEPIECE)


@pytest.fixture(scope="module")
def roberta() -> NormalizedVocab:
    rows = json.loads(TOKENS.read_text(encoding="utf-8"))
    return list_vocabulary(sorted(rows, key=rows.__getitem__), Kind.BYTE_BPE)


@needs_vocabularies
def test_vocabularies_as_published(xlmr: NormalizedVocab, roberta: NormalizedVocab) -> None:
    assert len(xlmr) == 249_997
    assert len(roberta) == 50_257
    assert sum(form is None for form in roberta.forms) == 344
    assert None not in xlmr.forms


@needs_vocabularies
def test_counts_of_the_rules(xlmr: NormalizedVocab, roberta: NormalizedVocab) -> None:
    plan = make_plan(xlmr, roberta, MatchingRecipe())
    counts = plan.count_rules()
    assert counts["direct"] == 17_580
    assert counts["nfkc"] == 2
    assert counts["nfkc"] + counts["lower"] == 19_018 - 17_580
    assert counts["capitalized"] + counts["word_start"] == 21_954 - 19_018
    assert counts["accents"] == 26_819 - 21_954
    assert int(plan.is_matched.sum()) == 26_819
    scripts = coverage(plan)["by_script"]
    shares = {name: one["matched"] / one["rows"] for name, one in scripts.items()}
    assert round(shares["Latin"], 2) == 0.22
    assert round(shares["Cyrillic"], 3) == 0.003
    assert round(shares["Han"], 3) == 0.002
    assert shares["Hangul"] == 0


@needs_vocabularies
@needs_muse
@pytest.mark.slow
def test_counts_with_44_dictionaries(
    xlmr: NormalizedVocab, roberta: NormalizedVocab, tmp_path: Path
) -> None:
    with tarfile.open(MUSE) as archive:
        archive.extractall(tmp_path, filter="data")
    [folder] = {file.parent for file in tmp_path.rglob("en-*.txt")}
    dictionaries = load_dictionaries(folder)
    assert len(dictionaries.by_language) == 44
    plan = make_plan(xlmr, roberta, MatchingRecipe(multi_token=False), dictionaries)
    assert int(plan.is_matched.sum()) == 116_727
    # Looking only word starts up gives what is left without the other pieces' translations.
    starts_word = np.array([form is not None and form[1] for form in xlmr.forms])
    translated = plan.rules == RULES.index("dictionary")
    assert int((plan.is_matched & ~(translated & ~starts_word)).sum()) == 94_328
    # The other reading of the paper looks every word up: as many rows have a match, and of those
    # whose text matches, many start from a translation instead.
    first = MatchingRecipe(multi_token=False, precedence="dictionary")
    other = make_plan(xlmr, roberta, first, dictionaries)
    assert int(other.is_matched.sum()) == 116_727
    is_text = plan.is_matched & ~translated
    assert int(is_text.sum()) == 26_819
    changed = sum(
        plan.origin(row)[2:5] != other.origin(row)[2:5] for row in np.flatnonzero(is_text)
    )
    assert changed == 15_796
