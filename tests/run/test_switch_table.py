"""The table of dictionary switching: which pieces are words, and which spelling is taken."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.commands import Command
from tests.conftest import PARTS, sentences
from tests.pretrain.code_switching_cases import list_tokenizer

from metaxlm.init.dictionaries import load_dictionaries
from metaxlm.model.huggingface import load_pretrained
from metaxlm.run.switch_table import build_switch_table

TEXT = {
    "en": {"▁the": 9, "▁The": 3, "▁house": 5, "▁House": 1, "▁HOUSE": 1, "▁cat": 2, "▁noodles": 2,
           "▁we": 4, "▁a": 7, "cat": 6, "▁radio": 3, "▁caf": 1},
    "de": {"▁die": 9, "▁Die": 3, "▁der": 8, "▁haus": 1, "▁Haus": 6, "▁HAUS": 1, "▁Katze": 2,
           "▁radio": 1, "▁ein": 3},
    "zh": {"我们": 5, "▁我们": 1, "面": 8, "猫": 3},
    "sw": {"▁paka": 4},
}  # fmt: skip
UNUSED = ["▁Feline", "▁ＣＡＴ"]
MUSE = {
    "en-de.txt": "the die\nthe der\nhouse haus\ncat katze\ncat feline\nradio radio\na ein\n",
    "en-zh.txt": "we 我们\nnoodles 面\ncat 猫\nhouse 房子\n",
}


@pytest.fixture
def muse(tmp_path: Path) -> Path:
    folder = tmp_path / "muse"
    folder.mkdir()
    for name, text in MUSE.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def build(muse: Path, text: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, list[str]]]:
    """Return what each piece may become in text of each language."""
    pieces = dict.fromkeys([piece for counts in text.values() for piece in counts] + UNUSED)
    tokenizer = list_tokenizer(list(pieces))
    ids = tokenizer.get_vocab()
    counts = {}
    for language, used in text.items():
        counts[language] = np.zeros(len(tokenizer), np.int64)
        for piece, count in used.items():
            counts[language][ids[piece]] = count
    table = build_switch_table(load_dictionaries(muse), tokenizer, counts)
    assert table.languages == tuple(text)
    names = tokenizer.convert_ids_to_tokens
    return {
        language: {
            piece: [" ".join(names(group)) for group in table.find(language, row)]
            for piece, row in ids.items()
            if table.find(language, row)
        }
        for language in text
    }


def test_words_go_both_ways_in_the_spelling_that_the_text_uses(muse: Path) -> None:
    found = build(muse, TEXT)
    assert found["en"] == {
        "▁the": ["▁die ▁der"],
        # Unusual spellings keep their case where they can.
        "▁The": ["▁Die ▁der"],
        "▁house": ["▁Haus"],
        "▁House": ["▁Haus"],
        "▁HOUSE": ["▁HAUS"],
        "▁cat": ["▁Katze", "猫"],
        "▁noodles": ["面"],
        "▁we": ["我们"],
        "▁a": ["▁ein"],
    }
    assert found["de"] == {
        "▁die": ["▁the"],
        "▁Die": ["▁The"],
        "▁der": ["▁the"],
        "▁Haus": ["▁house"],
        "▁haus": ["▁house"],
        "▁HAUS": ["▁HOUSE"],
        "▁Katze": ["▁cat"],
        "▁ein": ["▁a"],
    }
    # Single characters are parts of words more often than words.
    assert found["zh"] == {"我们": ["▁we"], "▁我们": ["▁we"]}
    assert found["sw"] == {}


def test_the_text_decides_which_spelling_is_usual(muse: Path) -> None:
    text = {**TEXT, "de": {**TEXT["de"], "▁haus": 7}, "zh": {**TEXT["zh"], "▁我们": 9}}
    found = build(muse, text)
    assert found["en"]["▁house"] == ["▁haus"]
    assert found["en"]["▁House"] == ["▁Haus"]
    assert found["en"]["▁we"] == ["▁我们"]


def test_languages_without_text_are_left_out(muse: Path) -> None:
    found = build(muse, {"de": TEXT["de"], "en": TEXT["en"]})
    assert found["en"]["▁cat"] == ["▁Katze"]
    assert found["de"]["▁Katze"] == ["▁cat"]
    assert build(muse, {"de": TEXT["de"], "zh": TEXT["zh"]}) == {"de": {}, "zh": {}}


def test_pieces_are_compared_in_compatibility_form(muse: Path) -> None:
    found = build(muse, {**TEXT, "en": {"▁ＣＡＴ": 2}})
    assert found["en"] == {"▁ＣＡＴ": ["▁Katze", "猫"]}
    assert found["de"] == {"▁Katze": ["▁ＣＡＴ"]}


RECIPE = """\
name: switched
languages: [en, de, ru]
corpus: {{source: text, path: {text}, cleaning: {{deduplicate: false}}}}
vocabulary: {{size: 110}}
meta: {{model: {encoder}}}
model: {{layers: 1, hidden: 16, heads: 2, ffn: 32, max_positions: 64}}
matching: {{dictionaries: {muse}}}
pretraining: {{steps: 6, length: 32, batch_size: 4, warmup_steps: 2, learning_rate: 1e-2}}
variants:
  xlm: {{initialize: none}}
  switched: {{initialize: none, switch: {{probability: 0.5}}}}
evaluation: {{retrieval: null, alignment: null}}
"""


@pytest.fixture
def run_folder(tmp_path: Path, encoder: Path, muse: Path) -> Path:
    text = tmp_path / "text"
    text.mkdir()
    for language in PARTS:
        (text / f"{language}.txt").write_text("\n".join(sentences(language)), encoding="utf-8")
    recipe = RECIPE.format(text=text, encoder=encoder, muse=muse)
    (tmp_path / "switched.yaml").write_text(recipe, encoding="utf-8")
    return tmp_path / "runs" / "switched"


@pytest.mark.filterwarnings("ignore")
def test_a_variant_with_switching_sees_other_text(metaxlm: Command, run_folder: Path) -> None:
    command = ("run", "switched.yaml", "--device", "cpu", "--stage", "pretrain")
    code, printed, errors = metaxlm(*command, "--variant", "xlm", "--variant", "switched")
    assert code == 0, errors
    assert "pieces that may switch into another language: en 3, de 4, ru 0" in printed
    places = [run_folder / "variants" / name for name in ("xlm", "switched")]
    starts, ends = (
        [load_pretrained(place / part).model.state_dict() for place in places]
        for part in ("initialization/model", "model")
    )
    assert all(torch.equal(starts[0][key], starts[1][key]) for key in starts[0])
    key = "encoder.layers.0.ffn_in.weight"
    assert not torch.equal(ends[0][key], ends[1][key])


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_switched_is_refused(metaxlm: Command, run_folder: Path, muse: Path) -> None:
    command = ("run", "switched.yaml", "--device", "cpu", "--stage", "pretrain")
    told = metaxlm.complaint(*command, "--set", "variants.switched.distill={pooled: 1.0}")
    assert "variants.switched: switch and distill do not go together" in told
    for path in muse.iterdir():
        path.unlink()
    (muse / "en-de.txt").write_text("unheard nie\n")
    told = metaxlm.complaint(*command, "--variant", "switched")
    assert "no word of the dictionaries is one piece of the vocabulary" in told
