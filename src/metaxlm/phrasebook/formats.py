"""Task data as text, in exactly the formats of the published sets.

In: meanings, and how to say them. Out: the contents of files: XTREME's TSV, SQuAD 1.1 JSON,
Webis-CLS XML, Tatoeba lines, word alignments (`sentence source target S|P`), MUSE dictionaries.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from xml.sax.saxutils import escape

from metaxlm.phrasebook.alignment import align
from metaxlm.phrasebook.documents import Document
from metaxlm.phrasebook.entailment import Pair
from metaxlm.phrasebook.meaning import CONTENT_TAGS, Meaning, Sentence
from metaxlm.phrasebook.paraphrase import Paraphrase
from metaxlm.phrasebook.realization import Realizer

ISO_639_3 = {"en": "eng", "de": "deu", "fr": "fra", "ru": "rus", "tr": "tur", "zh": "cmn"}
"""Codes in the names of Tatoeba's files."""
_MIN_SHARE = 0.04
_MIN_COUNT = 2


def format_lines(meanings: Iterable[Meaning], realizer: Realizer) -> str:
    """One sentence a line."""
    return "".join(f"{realizer.realize(meaning).text}\n" for meaning in meanings)


def format_tokenized(meanings: Iterable[Meaning], realizer: Realizer) -> str:
    """One sentence a line, its words separated by spaces."""
    return "".join(f"{' '.join(realizer.realize(meaning).words)}\n" for meaning in meanings)


def format_alignments(meanings: Iterable[Meaning], source: Realizer, target: Realizer) -> str:
    """Lines `sentence source target S|P`: sentences from 0, words from 1, as in the gold sets."""
    lines = []
    for number, meaning in enumerate(meanings):
        for link in align(source.realize(meaning), target.realize(meaning)):
            kind = "S" if link.sure else "P"
            lines.append(f"{number} {link.source + 1} {link.target + 1} {kind}\n")
    return "".join(lines)


def format_entailment(pairs: Iterable[Pair], realizer: Realizer) -> str:
    """XNLI: premise, hypothesis, label."""
    return "".join(
        f"{realizer.realize(pair.premise).text}\t{realizer.realize(pair.hypothesis).text}"
        f"\t{pair.label}\n"
        for pair in pairs
    )


def format_paraphrases(pairs: Iterable[Paraphrase], realizer: Realizer) -> str:
    """PAWS-X: two sentences, 0 or 1."""
    return "".join(
        f"{realizer.realize(pair.first).text}\t{realizer.realize(pair.second).text}\t{pair.label}\n"
        for pair in pairs
    )


def format_tags(
    meanings: Iterable[Meaning], realizer: Realizer, tags: Callable[[Sentence], Sequence[str]]
) -> str:
    """A word and its tag a line, a blank line after each sentence (UD POS and PAN-X)."""
    blocks = []
    for meaning in meanings:
        sentence = realizer.realize(meaning)
        pairs = zip(sentence.words, tags(sentence), strict=True)
        blocks.append("".join(f"{word}\t{tag}\n" for word, tag in pairs))
    return "\n".join(blocks)


def squad(documents: Iterable[Document], realizer: Realizer, title: str) -> dict[str, Any]:
    """Return stories with questions in the structure of SQuAD 1.1."""
    paragraphs = []
    joint = " " if realizer.morphology.spaced else ""
    for number, document in enumerate(documents):
        sentences = [realizer.realize(meaning) for meaning in document.meanings]
        questions = []
        for index, question in enumerate(document.questions):
            span = sentences[question.sentence].span(question.role)
            assert span is not None, "stories are drawn with answerable questions"
            before = sum(len(s.text) + len(joint) for s in sentences[: question.sentence])
            answer = sentences[question.sentence].text[span[0] : span[1]]
            questions.append(
                {
                    "id": f"{title}-{number}-{index}",
                    "question": realizer.realize(question.meaning).text,
                    "answers": [{"answer_start": before + span[0], "text": answer}],
                }
            )
        context = joint.join(sentence.text for sentence in sentences)
        paragraphs.append({"context": context, "qas": questions})
    return {"version": "1.1", "data": [{"title": title, "paragraphs": paragraphs}]}


def format_reviews(documents: Iterable[Document], realizer: Realizer, domain: str = "books") -> str:
    """Webis-CLS: items with summary, rating (5 or 1), text and category."""
    joint = " " if realizer.morphology.spaced else ""
    items = []
    for document in documents:
        lines = [realizer.realize(meaning).text for meaning in document.meanings]
        rating = "5.0" if document.sentiment == "pos" else "1.0"
        items.append(
            f"<item>\n\t<summary>{escape(lines[0])}\n</summary>\n\t<rating>{rating}</rating>\n"
            f"\t<text>{escape(joint.join(lines))}\n</text>\n\t<category>{domain}</category>\n\t</item>\n"
        )
    return f'<?xml version="1.0" encoding="utf-8"?>\n<items>{"".join(items)}</items>\n'


def format_dictionary(meanings: Iterable[Meaning], english: Realizer, foreign: Realizer) -> str:
    """MUSE: `english foreign` lines of lower-cased forms, the most frequent English words first.

    Only roles that both sides express by a single content word are counted, so that a line is
    always one word for one word.
    """
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for meaning in meanings:
        left, right = english.realize(meaning), foreign.realize(meaning)
        ours, theirs = _single_words(left), _single_words(right)
        for role in ours.keys() & theirs.keys():
            word = english.morphology.lower(ours[role])
            counts[word][foreign.morphology.lower(theirs[role])] += 1
    lines = []
    for word, found in sorted(counts.items(), key=lambda item: (-item[1].total(), item[0])):
        least = max(_MIN_COUNT, _MIN_SHARE * found.total())
        kept = [(n, other) for other, n in found.items() if n >= least]
        lines += [f"{word} {other}\n" for _, other in sorted(kept, key=lambda p: (-p[0], p[1]))]
    return "".join(lines)


def _single_words(sentence: Sentence) -> dict[str, str]:
    """Return the word of every role that has exactly one content word of its own."""
    found: dict[str, list[str]] = {}
    for word in sentence.items:
        if word.upos in CONTENT_TAGS and word.upos != "PUNCT" and len(word.roles) == 1:
            found.setdefault(word.roles[0], []).append(word.text)
    return {role: words[0] for role, words in found.items() if len(words) == 1}
