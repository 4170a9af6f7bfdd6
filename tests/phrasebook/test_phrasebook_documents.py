"""Documents, entailment and paraphrase: coherent, balanced, and true."""

from __future__ import annotations

from random import Random

import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from metaxlm.phrasebook.documents import Documents
from metaxlm.phrasebook.entailment import LABELS, Entailment
from metaxlm.phrasebook.meaning import Meaning
from metaxlm.phrasebook.paraphrase import Paraphrases
from metaxlm.phrasebook.patterns import load_patterns
from metaxlm.phrasebook.realization import available_languages, load_realizer, realize
from metaxlm.phrasebook.sampling import Sampler

LANGUAGES = available_languages()


def texts(meanings: list[Meaning], language: str = "en") -> list[str]:
    return [realize(meaning, language).text for meaning in meanings]


def test_documents_are_a_function_of_the_seed() -> None:
    one, same, other = (Documents(Random(seed)) for seed in (4, 4, 5))
    lines = [[texts(source.draw().meanings) for _ in range(30)] for source in (one, same, other)]
    assert lines[0] == lines[1] != lines[2]


def test_text_speaks_every_pattern_that_can_be_drawn() -> None:
    documents = Documents(Random(1))
    seen = {m.pattern for _ in range(3000) for m in documents.draw().meanings}
    drawn = {p.id for p in load_patterns().values() if p.weight > 0 and p.genre != "question"}
    assert drawn <= seen


def test_a_story_names_its_hero_before_any_pronoun() -> None:
    documents = Documents(Random(2))
    for _ in range(200):
        story = documents.story()
        assert not story.meanings[0].slots["agent"].pronoun
        heroes = {m.slots["agent"].concept for m in story.meanings}
        assert len(heroes) == 1


@pytest.mark.parametrize("language", LANGUAGES)
def test_questions_have_answers(language: str) -> None:
    documents, realizer = Documents(Random(3)), load_realizer(language)
    asked = answered = 0
    for _ in range(150):
        story = documents.story()
        for question in story.questions:
            asked += 1
            sentence = realizer.realize(story.meanings[question.sentence])
            span = sentence.span(question.role)
            if span is not None:
                answered += 1
                assert sentence.text[slice(*span)].strip() == sentence.text[slice(*span)] != ""
    assert asked > 150 and answered / asked > 0.95


def test_reviews_keep_their_sentiment() -> None:
    documents = Documents(Random(6))
    concepts = documents.sampler.concepts
    for number in range(300):
        sentiment = ("pos", "neg")[number % 2]
        review = documents.review(sentiment)
        for meaning in review.meanings:
            if meaning.pattern == "review_verdict":
                good = "pos" in concepts[meaning.slots["adjective"].concept].labels
                assert (good == (meaning.polarity == "affirmative")) == (sentiment == "pos")
            if meaning.pattern in ("review_recommend", "review_again", "review_happy"):
                assert (meaning.polarity == "affirmative") == (sentiment == "pos")


@pytest.fixture(scope="module")
def examples() -> list[tuple[str, str, str]]:
    entailment = Entailment(Sampler(Random(1)))
    drawn = [entailment.draw(LABELS[number % 3]) for number in range(6000)]
    return [(*texts([pair.premise, pair.hypothesis]), pair.label) for pair in drawn]


def accuracy(rows: list[tuple[str, str]]) -> float:
    vectorizer = CountVectorizer(ngram_range=(1, 2))
    half = len(rows) * 2 // 3
    features = vectorizer.fit_transform([text for text, _ in rows[:half]])
    model = LogisticRegression(max_iter=500).fit(features, [label for _, label in rows[:half]])
    test = vectorizer.transform([text for text, _ in rows[half:]])
    return float(model.score(test, [label for _, label in rows[half:]]))


def test_the_hypothesis_alone_does_not_tell_the_label(examples: list[tuple[str, str, str]]) -> None:
    assert accuracy([(hypothesis, label) for _, hypothesis, label in examples]) < 0.40


def test_the_premise_alone_tells_little(examples: list[tuple[str, str, str]]) -> None:
    assert accuracy([(premise, label) for premise, _, label in examples]) < 0.55


def test_negated_hypotheses_come_with_every_label(examples: list[tuple[str, str, str]]) -> None:
    for label in LABELS:
        mine = [hypothesis for _, hypothesis, found in examples if found == label]
        negated = sum(" not" in hypothesis for hypothesis in mine) / len(mine)
        assert 0.35 < negated < 0.6


def test_no_pair_has_two_labels(examples: list[tuple[str, str, str]]) -> None:
    labels: dict[tuple[str, str], str] = {}
    for premise, hypothesis, label in examples:
        assert labels.setdefault((premise, hypothesis), label) == label


@pytest.mark.parametrize("language", LANGUAGES)
def test_paraphrases_share_words_but_are_not_equal(language: str) -> None:
    paraphrases = Paraphrases(Sampler(Random(2)))
    same = 0
    for number in range(300):
        pair = paraphrases.draw(number % 2)
        assert pair.label == number % 2
        first, second = (realize(meaning, language) for meaning in (pair.first, pair.second))
        same += first.text == second.text
    assert same <= 6


def test_bag_of_words_does_not_solve_paraphrase() -> None:
    paraphrases = Paraphrases(Sampler(Random(3)))
    drawn = [paraphrases.draw(number % 2) for number in range(3000)]
    rows = [(" ".join(texts([pair.first, pair.second])), str(pair.label)) for pair in drawn]
    assert accuracy(rows) < 0.70
