"""The data files: counts, coverage, and errors that name the place."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from metaxlm.errors import MetaXLMError
from metaxlm.phrasebook.concepts import NAME_KINDS, load_concepts, read_concepts
from metaxlm.phrasebook.datafiles import DATA_FOLDER, Entry, read_entries
from metaxlm.phrasebook.lexicon import UPOS, load_lexicon, read_lexicon
from metaxlm.phrasebook.patterns import load_patterns
from metaxlm.phrasebook.realization import available_languages, load_realizer
from metaxlm.phrasebook.sampling import Sampler
from metaxlm.phrasebook.templates import TemplateParser, read_templates

LANGUAGES = available_languages()


def test_there_are_enough_concepts_and_patterns() -> None:
    concepts = load_concepts()
    assert sum(concept.kind not in NAME_KINDS for concept in concepts) >= 320
    assert len(load_patterns()) >= 64
    assert "en" in LANGUAGES


def test_every_lexicon_has_a_template_file_and_a_morphology() -> None:
    lexicons = sorted(path.stem for path in (DATA_FOLDER / "lexicon").glob("*.tsv"))
    assert lexicons == sorted(LANGUAGES)


def test_every_concept_but_the_superordinates_is_used() -> None:
    sampler = Sampler(Random(3))
    seen: set[str] = set()
    for pattern in sampler.patterns:
        for _ in range(400):
            for phrase in sampler.sample(pattern).slots.values():
                seen |= {phrase.concept, phrase.adjective, phrase.numeral}
    unused = [c.id for c in load_concepts() if c.id not in seen]
    assert set(unused) <= {"any_animal", "vehicle", "instrument"}


@pytest.mark.parametrize("language", LANGUAGES)
def test_lexicon_is_complete_and_tagged(language: str) -> None:
    lexicon = load_lexicon(language)
    assert set(lexicon) == {concept.id for concept in load_concepts()}
    for lexeme in lexicon.values():
        assert lexeme.words and all(tag in UPOS for _, tag in lexeme.words)


@pytest.mark.parametrize("language", LANGUAGES)
def test_names_are_distinct(language: str) -> None:
    lexicon = load_lexicon(language)
    names = [lexicon[c.id].text for c in load_concepts() if c.kind in NAME_KINDS]
    assert len(names) == len(set(names))


def test_antonyms_go_both_ways() -> None:
    concepts = load_concepts()
    for concept in concepts:
        if concept.kind == "adjective" and concept.antonym:
            assert concepts[concept.antonym].antonym == concept.id


def test_unknown_concept_in_a_lexicon_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "xx.tsv"
    path.write_text("concept\twords\nunicorn\tunicorn\n", encoding="utf-8")
    with pytest.raises(MetaXLMError, match=r"xx\.tsv:2: 'unicorn'"):
        read_lexicon(path, load_concepts())


def test_incomplete_lexicon_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "xx.tsv"
    path.write_text("concept\twords\ndog\tdog\n", encoding="utf-8")
    with pytest.raises(MetaXLMError, match="no entry for"):
        read_lexicon(path, load_concepts())


def test_concept_twice_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "concepts.tsv"
    path.write_text("id\tkind\ndog\tanimal\ndog\tanimal\n", encoding="utf-8")
    with pytest.raises(MetaXLMError, match=r"concepts\.tsv:3"):
        read_concepts(path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{nobody}", "names no slot"),
        ("{theme|sideways}", "unknown flag 'sideways'"),
        ("word", "should be word/UPOS"),
        ("[ {theme}", "without `]`"),
        ("[verb? {theme} ]", "is no feature and no slot"),
        ("{theme|agree=verb}", "which is no slot"),
    ],
)
def test_broken_template_is_refused(text: str, complaint: str) -> None:
    parser = TemplateParser(["theme"], ["copula"], ["subject"], load_concepts())
    with pytest.raises(MetaXLMError, match=complaint):
        parser.parse(Entry("quality", text, "xx.yaml:7"))


def test_missing_template_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "xx.yaml"
    path.write_text('clock: "It/PRON"\n', encoding="utf-8")
    with pytest.raises(MetaXLMError, match="no template for 1 patterns"):
        read_templates(path, {"clock": [], "quality": ["theme"]}, [], [], load_concepts())


def test_yaml_key_twice_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "xx.yaml"
    path.write_text("a: 1\nb: 2\na: 3\n", encoding="utf-8")
    with pytest.raises(MetaXLMError, match=r"xx\.yaml:3"):
        read_entries(path)


def test_unknown_language_is_a_users_error() -> None:
    with pytest.raises(MetaXLMError, match="no language 'qq'"):
        load_realizer("qq")
