"""The built-in corpus on disk: text for pretraining, and data for every task.

In: a folder, languages, a seed, sizes. Out: `text/XX/00000.txt` (a sentence a line, a blank line
between documents) and `tasks/` in the published formats. The same arguments give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from metaxlm.languages import language_name
from metaxlm.manifest import atomic_folder
from metaxlm.phrasebook import formats
from metaxlm.phrasebook.meaning import Sentence
from metaxlm.phrasebook.sampling import Sampler
from metaxlm.phrasebook.splits import PhrasebookSizes, Splits
from metaxlm.progress import Advance, track

_REVIEWING = ("en", "de", "fr", "ja")
"""Languages of Webis-CLS-10; the other ones have reviews of books only."""


def write_phrasebook(
    folder: Path,
    languages: Sequence[str],
    seed: int,
    sizes: PhrasebookSizes | None = None,
) -> None:
    """Write the corpus; whatever stood at `folder` is replaced when it is complete."""
    sizes = sizes or PhrasebookSizes()
    splits = Splits(languages, seed)
    with atomic_folder(folder) as temporary:
        writer = _Writer(temporary, splits, sizes)
        with track("phrasebook tasks", writer.count_task_files(), "files") as advance:
            writer.on_file = advance
            writer.write_tests()  # before any training data, which must avoid them all
            writer.write_training()
            writer.write_dictionaries()
            writer.on_file = None
        writer.write_text()
        with track("phrasebook last tasks", writer.count_last_files(), "files") as advance:
            writer.on_file = advance
            writer.write_last_tasks()  # after all text, which they depend on and leave as it is


class _Writer:
    def __init__(self, folder: Path, splits: Splits, sizes: PhrasebookSizes) -> None:
        self._folder = folder
        self._splits = splits
        self._sizes = sizes
        self._realizers = splits.realizers
        self._foreign = [code for code in splits.languages if code != "en"]
        self._reviewing = [code for code in splits.languages if code in _REVIEWING]
        self.on_file: Advance | None = None
        """Told of every file that is written."""

    def count_task_files(self) -> int:
        """Count the files before the text: those a language, a language pair, and once."""
        return 11 * len(self._realizers) + 6 * len(self._foreign) + 6

    def count_last_files(self) -> int:
        """Count the files after the text: those a language, a reviewing language, and once."""
        return 3 * len(self._realizers) + 4 * len(self._reviewing) + 1

    def write_tests(self) -> None:
        """Write everything models are judged by, and reserve its sentences."""
        self._write_retrieval()
        self._write_alignments()
        for split, count in (("dev", self._sizes.dev), ("test", self._sizes.test)):
            pairs = self._splits.entailment(count, f"xnli {split}", test=True)
            paraphrases = self._splits.paraphrases(count, f"pawsx {split}", test=True)
            plain = self._splits.sentences(count, f"udpos {split}", test=True)
            named = self._splits.sentences(count, f"panx {split}", test=True, names=True)
            for code, realizer in self._realizers.items():
                name = f"{split}-{code}.tsv"
                self._put(f"tasks/xnli/{name}", formats.format_entailment(pairs, realizer))
                self._put(f"tasks/pawsx/{name}", formats.format_paraphrases(paraphrases, realizer))
                self._put(f"tasks/udpos/{name}", formats.format_tags(plain, realizer, _tags))
                self._put(f"tasks/panx/{name}", formats.format_tags(named, realizer, _entities))
        self._write_questions()
        reviews = self._splits.reviews(self._sizes.test, "cls test", test=True)
        for code, realizer in self._realizers.items():
            text = formats.format_reviews(reviews, realizer)
            self._put(f"tasks/cls/{code}/books/test.review", text)

    def _write_retrieval(self) -> None:
        meanings = self._splits.sentences(self._sizes.tatoeba, "tatoeba", test=True)
        for code in self._foreign:
            iso = formats.ISO_639_3[code]
            stem = f"tasks/tatoeba/tatoeba.{iso}-eng"
            self._put(f"{stem}.{iso}", formats.format_lines(meanings, self._realizers[code]))
            self._put(f"{stem}.eng", formats.format_lines(meanings, self._realizers["en"]))

    def _write_alignments(self) -> None:
        meanings = self._splits.sentences(self._sizes.wordalign, "wordalign", test=True)
        english = self._realizers["en"]
        for code in self._foreign:
            realizer, stem = self._realizers[code], f"tasks/wordalign/{code}-en"
            self._put(f"{stem}/test.{code}", formats.format_tokenized(meanings, realizer))
            self._put(f"{stem}/test.en", formats.format_tokenized(meanings, english))
            links = formats.format_alignments(meanings, realizer, english)
            self._put(f"{stem}/alignv2.txt", links)

    def _write_questions(self) -> None:
        dev = self._splits.stories(self._sizes.dev, "squad dev", test=True)
        test = self._splits.stories(self._sizes.test, "xquad", test=True)
        english = self._realizers["en"]
        self._put_json("tasks/squad/dev-v1.1.json", formats.squad(dev, english, "dev"))
        for code, realizer in self._realizers.items():
            data = formats.squad(test, realizer, "test")
            self._put_json(f"tasks/xquad/xquad.{code}.json", data)

    def write_training(self) -> None:
        """Write the English training data of every task, and reviews in each language."""
        sizes, splits, english = self._sizes, self._splits, self._realizers["en"]
        pairs = splits.entailment(sizes.xnli_train, "xnli train", test=False)
        self._put("tasks/xnli/train-en.tsv", formats.format_entailment(pairs, english))
        paraphrases = splits.paraphrases(sizes.pawsx_train, "pawsx train", test=False)
        self._put("tasks/pawsx/train-en.tsv", formats.format_paraphrases(paraphrases, english))
        plain = splits.sentences(sizes.tagging_train, "udpos train", test=False)
        self._put("tasks/udpos/train-en.tsv", formats.format_tags(plain, english, _tags))
        named = splits.sentences(sizes.tagging_train, "panx train", test=False, names=True)
        self._put("tasks/panx/train-en.tsv", formats.format_tags(named, english, _entities))
        stories = splits.stories(sizes.squad_train, "squad train", test=False)
        self._put_json("tasks/squad/train-v1.1.json", formats.squad(stories, english, "train"))
        for code, realizer in self._realizers.items():
            reviews = splits.reviews(sizes.cls_train, f"cls train {code}", test=False)
            text = formats.format_reviews(reviews, realizer)
            self._put(f"tasks/cls/{code}/books/train.review", text)

    def write_dictionaries(self) -> None:
        """Write a dictionary from English to each other language, in MUSE's format."""
        sampler = Sampler(self._splits.random("muse"))
        meanings = [sampler.draw() for _ in range(self._sizes.dictionary_sentences)]
        for code in self._foreign:
            text = formats.format_dictionary(meanings, self._realizers["en"], self._realizers[code])
            self._put(f"tasks/muse/en-{code}.txt", text)

    def write_text(self) -> None:
        """Write the text for pretraining, which is not parallel between languages."""
        for code in self._splits.languages:
            sizes = self._sizes
            count = sizes.english_sentences if code == "en" else sizes.other_sentences
            blocks = []
            with track(f"phrasebook text {code}", count, "sentences") as advance:
                for lines in self._splits.text(code, count):
                    blocks.append("\n".join(lines) + "\n")
                    advance(len(lines))
            self._put(f"text/{code}/00000.txt", "\n".join(blocks))

    def write_last_tasks(self) -> None:
        """Write MLQA, TyDiQA-GoldP and the other domains of reviews.

        Nothing above depends on them: their tests ask about what is in no training text, or are
        reviews of what no training text reviews.
        """
        sizes, splits = self._sizes, self._splits
        stories = splits.stories(max(1, sizes.squad_train // 2), "tydiqa train", test=False)
        train = formats.squad(stories, self._realizers["en"], "english")
        self._put_json("tasks/tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.en.train.json", train)
        for name, purpose, title, count in (
            ("mlqa/MLQA_V1/dev/dev-context-{0}-question-{0}", "mlqa dev", "dev", sizes.dev),
            ("mlqa/MLQA_V1/test/test-context-{0}-question-{0}", "mlqa test", "test", sizes.test),
            ("tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{0}.dev", "tydiqa dev", "", sizes.test),
        ):
            stories = splits.stories(count, purpose, test=True, is_last=True)
            for code, realizer in self._realizers.items():
                # TyDiQA's ids name the language.
                data = formats.squad(stories, realizer, title or language_name(code).lower())
                self._put_json(f"tasks/{name.format(code)}.json", data)
        for domain in ("dvd", "music"):
            self._write_last_reviews(domain)

    def _write_last_reviews(self, domain: str) -> None:
        sizes, splits = self._sizes, self._splits
        tests = splits.reviews(sizes.test, f"cls {domain} test", test=True, is_last=True)
        for code in self._reviewing:
            trained = splits.reviews(sizes.cls_train, f"cls {domain} train {code}", test=False)
            for split, reviews in (("test", tests), ("train", trained)):
                text = formats.format_reviews(reviews, self._realizers[code], domain)
                self._put(f"tasks/cls/{code}/{domain}/{split}.review", text)

    def _put(self, name: str, text: str) -> None:
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if self.on_file is not None:
            self.on_file()

    def _put_json(self, name: str, value: object) -> None:
        self._put(name, json.dumps(value, ensure_ascii=False) + "\n")


def _tags(sentence: Sentence) -> list[str]:
    return sentence.tags


def _entities(sentence: Sentence) -> list[str]:
    return sentence.entities
