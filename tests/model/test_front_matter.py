from __future__ import annotations

from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from metaxlm.errors import MetaXLMError
from metaxlm.model.front_matter import (
    Score,
    describe_class,
    list_codes,
    make_index,
    read_front_matter,
    read_inherited,
    write_front_matter,
)


def test_what_is_written_is_read_again() -> None:
    values = {"language": ["no", "zh"], "license": "mit", "tags": []}
    text = write_front_matter(values)
    found, body = read_front_matter(f"{text}\n# A model\n\n---\n", "card")
    assert found == {"language": ["no", "zh"], "license": "mit"}
    assert body == "\n# A model\n\n---\n"
    assert ModelCard(f"{text}\n# A model").data.language == ["no", "zh"]


@pytest.mark.parametrize("card", ["", "# A model\n", "text\n---\na: 1\n---\n", "---\nno end\n"])
def test_a_card_may_have_no_front_matter(card: str) -> None:
    assert read_front_matter(card, "card") == ({}, card)


@pytest.mark.parametrize("text", ["- a list", "a: [", "text"])
def test_a_broken_front_matter_is_rejected(text: str) -> None:
    with pytest.raises(MetaXLMError, match="card"):
        read_front_matter(f"---\n{text}\n---\n", "card")


def test_scores_replace_those_of_the_same_data() -> None:
    first = make_index("one", [Score("xnli", "de", "accuracy", 0.5), Score("x", "fr", "f1", 0.1)])
    index = make_index("two", [Score("xnli", "de", "accuracy", 0.75)], first)
    assert index[0]["name"] == "two"
    card = ModelCard(write_front_matter({"model-index": index}))
    found = {(one.dataset_type, one.metric_value) for one in card.data.eval_results}
    assert found == {("xnli", 75.0), ("x", 10.0)}
    assert make_index("none", []) == []


def test_a_new_model_inherits_from_the_card_of_its_source(tmp_path: Path) -> None:
    front = {"language": ["en"], "license": "mit", "base_model": "a/b", "tags": ["other"]}
    (tmp_path / "README.md").write_text(write_front_matter(front))
    assert read_inherited(tmp_path) == {"language": ["en"], "license": "mit", "base_model": "a/b"}
    assert read_inherited("hf:org/model") == {"base_model": "org/model"}
    assert read_inherited(tmp_path / "absent") == {}


def test_languages_and_classes_have_the_names_of_the_hub() -> None:
    assert list_codes(["de", "zh_min", "simple", "x"]) == ["de", "zh-min"]
    assert describe_class("BertModel", has_modules=False)["pipeline_tag"] == "feature-extraction"
    tagger = describe_class("BertForTokenClassification", has_modules=False)
    assert tagger["pipeline_tag"] == "token-classification"
    assert describe_class("", has_modules=True)["library_name"] == "sentence-transformers"
