"""Build the pool of the built-in corpus: `python -m metaxlm.phrasebook.pool FILE`.

The pool starts with the sample of seed 1 at the demo's sizes. More of everything follows. All of
its test data is disjoint from all of its training data.
"""

from __future__ import annotations

import io
import json
import lzma
import sys
import tarfile
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any, TypeVar

from metaxlm.languages import language_name
from metaxlm.phrasebook import formats
from metaxlm.phrasebook import splits as splitting
from metaxlm.phrasebook.documents import Document, Documents
from metaxlm.phrasebook.meaning import Meaning
from metaxlm.phrasebook.sampling import Sampler
from metaxlm.phrasebook.splits import Splits
from metaxlm.phrasebook.writers import _REVIEWING, _entities, _tags
from metaxlm.randomness import derive_seed

LANGUAGES = ["en", "de", "fr", "ru", "tr", "zh"]
DEMO = {
    "source_sentences": 60_000,
    "sentences": 6_000,
    "test_pairs": 200,
    "aligned_pairs": 200,
    "examples": 3_000,
    "stories": 500,
    "half_stories": 250,
    "reviews": 300,
    "dev": 100,
    "test": 200,
}
MORE = {
    "source_sentences": 36_000,
    "sentences": 3_600,
    "test_pairs": 300,
    "aligned_pairs": 100,
    "examples": 3_000,
    "stories": 500,
    "half_stories": 250,
    "reviews": 300,
    "dev": 100,
    "test": 200,
}
_RECIPE_SIZES = {
    "examples": ("train_examples", 1),
    "stories": ("train_examples", 6),
    "half_stories": ("train_examples", 12),
    "reviews": ("train_examples", 10),
    "dev": ("test_examples", 2),
    "test": ("test_examples", 1),
}
"""The size in the recipe, and by what it is divided."""
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]

_Item = TypeVar("_Item")


class _NewDocuments(Documents):
    """Draw stories of which no sentence is in the training data or in another test."""

    def __init__(self, splits: _PoolSplits, random: Random) -> None:
        super().__init__(random)
        sample = self.sampler.sample

        def sample_new(*arguments: Any, accept: Any = None, **options: Any) -> Meaning:
            def is_new(meaning: Meaning) -> bool:
                is_wanted = accept is None or accept(meaning)
                return is_wanted and splits.is_new(meaning)

            return sample(*arguments, accept=is_new, **options)

        self.sampler.sample = sample_new  # type: ignore[method-assign]

    def story(self) -> Document:
        try:
            return super().story()
        except LookupError:
            return Document("story", [])

    def person(self) -> Document:
        try:
            return super().person()
        except LookupError:
            return Document("person", [])


class _PoolSplits(Splits):
    """Draw a second part that avoids the first one."""

    def __init__(self) -> None:
        super().__init__(LANGUAGES, 1)
        self.is_second = False
        self.needs_new = False
        """Whether all sentences of a story must be new, not only those with answers."""
        self.first: dict[str, list[Any]] = {}

    def random(self, purpose: str) -> Random:
        if not self.is_second:
            return super().random(purpose)
        return Random(derive_seed(self._seed, f"phrasebook pool {purpose}"))

    def is_new(self, meaning: Meaning) -> bool:
        return not self._is_trained(meaning) and self.is_free([meaning], LANGUAGES)

    def _collect(
        self,
        count: int,
        purpose: str,
        draw: Callable[[int], _Item | None],
        parts: Callable[[_Item], list[Meaning]],
        test: bool,
        exclusive: bool = True,
        reserves: bool | None = None,
    ) -> list[_Item]:
        if not self.is_second:
            items = super()._collect(count, purpose, draw, parts, test, exclusive, reserves)
            self.first[purpose] = items
            return items
        base = len(self.first[purpose])

        def key(item: _Item) -> tuple[str, ...]:
            return tuple(self.say(meaning, "en") for meaning in parts(item))

        known = {key(item) for item in self.first[purpose]}

        def draw_new(number: int) -> _Item | None:
            item = draw(base + number)
            if item is None or key(item) in known:
                return None
            if self.needs_new and not all(map(self.is_new, item.meanings)):
                return None
            if test and exclusive and any(self._is_trained(meaning) for meaning in parts(item)):
                return None
            return item

        start = monotonic()
        found = super()._collect(count, purpose, draw_new, parts, test, exclusive, reserves)
        if self.needs_new:
            self.reserve(meaning for item in found for meaning in parts(item))
        print(f"{purpose}: {count} in {monotonic() - start:.0f} s", flush=True)
        return found

    def start_second(self, texts: dict[str, Iterable[Meaning]], asked: Iterable[Meaning]) -> None:
        """Count all training data as seen, and reserve what the last tests ask about."""
        self.is_second = True
        for code, meanings in texts.items():
            self._trained[code].update(self.say(meaning, code) for meaning in meanings)
        self.reserve(asked)

    def draw_all(self, sizes: dict[str, int]) -> dict[str, list[Any]]:
        """Draw one part in the order of `write_phrasebook`."""
        last = self.is_second
        found: dict[str, list[Any]] = {
            "tatoeba": self.sentences(sizes["test_pairs"], "tatoeba", test=True),
            "wordalign": self.sentences(sizes["aligned_pairs"], "wordalign", test=True),
        }
        for split in ("dev", "test"):
            count = sizes[split]
            found[f"xnli {split}"] = self.entailment(count, f"xnli {split}", test=True)
            found[f"pawsx {split}"] = self.paraphrases(count, f"pawsx {split}", test=True)
            found[f"udpos {split}"] = self.sentences(count, f"udpos {split}", test=True)
            found[f"panx {split}"] = self.sentences(count, f"panx {split}", test=True, names=True)
        self.needs_new = last
        if last:
            splitting.Documents = partial(_NewDocuments, self)
        found["squad dev"] = self.stories(sizes["dev"], "squad dev", test=True, is_last=last)
        found["xquad"] = self.stories(sizes["test"], "xquad", test=True, is_last=last)
        splitting.Documents = Documents
        self.needs_new = False
        found["cls test"] = self.reviews(sizes["test"], "cls test", test=True, is_last=last)
        if last:
            found |= self._draw_last(sizes)
        count = sizes["examples"]
        found["xnli train"] = self.entailment(count, "xnli train", test=False)
        found["pawsx train"] = self.paraphrases(count, "pawsx train", test=False)
        found["udpos train"] = self.sentences(count, "udpos train", test=False)
        found["panx train"] = self.sentences(count, "panx train", test=False, names=True)
        found["squad train"] = self.stories(sizes["stories"], "squad train", test=False)
        for code in LANGUAGES:
            purpose = f"cls train {code}"
            found[purpose] = self.reviews(sizes["reviews"], purpose, test=False)
        for code in LANGUAGES:
            count = sizes["source_sentences" if code == "en" else "sentences"]
            found[f"text {code}"] = list(self.text(code, count))
        if last:
            found["tydiqa train"] = self.stories(sizes["half_stories"], "tydiqa train", test=False)
            for domain in ("dvd", "music"):
                found |= self._train_reviews(domain, sizes)
        else:
            found |= self._draw_last(sizes)
        return found

    def _draw_last(self, sizes: dict[str, int]) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        if not self.is_second:
            found["tydiqa train"] = self.stories(sizes["half_stories"], "tydiqa train", test=False)
        for purpose, size in (("mlqa dev", "dev"), ("mlqa test", "test"), ("tydiqa dev", "test")):
            found[purpose] = self.stories(sizes[size], purpose, test=True, is_last=True)
            if self.is_second:
                self.reserve(list_asked(found[purpose]))
        for domain in ("dvd", "music"):
            purpose = f"cls {domain} test"
            found[purpose] = self.reviews(sizes["test"], purpose, test=True, is_last=True)
            if not self.is_second:
                found |= self._train_reviews(domain, sizes)
        return found

    def _train_reviews(self, domain: str, sizes: dict[str, int]) -> dict[str, list[Any]]:
        purposes = [f"cls {domain} train {code}" for code in LANGUAGES if code in _REVIEWING]
        return {name: self.reviews(sizes["reviews"], name, test=False) for name in purposes}


def list_asked(stories: Iterable[Document]) -> list[Meaning]:
    """Return the questions of stories and the sentences that answer them."""
    return [
        meaning
        for story in stories
        for question in story.questions
        for meaning in (question.meaning, story.meanings[question.sentence])
    ]


def _list_trained(first: dict[str, list[Any]]) -> dict[str, Iterable[Meaning]]:
    english: list[Meaning] = []
    for pair in first["xnli train"]:
        english += [pair.premise, pair.hypothesis]
    for pair in first["pawsx train"]:
        english += [pair.first, pair.second]
    english += [*first["udpos train"], *first["panx train"]]
    for story in (*first["squad train"], *first["tydiqa train"]):
        english += [*story.meanings, *(question.meaning for question in story.questions)]
    found: dict[str, list[Meaning]] = {code: [] for code in LANGUAGES}
    found["en"] = english
    for purpose, items in first.items():
        if purpose.startswith("cls") and " train " in purpose:
            found[purpose[-2:]] += [meaning for item in items for meaning in item.meanings]
    return dict(found)


class _Pool:
    """Collect files, each as items with what is written around them."""

    def __init__(self, splits: _PoolSplits, drawn: dict[str, list[Any]]) -> None:
        self.files: list[dict[str, Any]] = []
        self.items: dict[str, list[str]] = {}
        self._splits, self._drawn = splits, drawn
        self._realizers = splits.realizers

    def put(
        self, path: str, languages: list[str], size: str | None, items: list[str], **around: Any
    ) -> None:
        assert all("\n\n" not in item and item.strip("\n") == item for item in items), path
        key, divisor = _RECIPE_SIZES.get(size or "", (size, 1))
        file = {"path": path, "languages": languages, "size": key, "divisor": divisor, **around}
        self.files.append(file)
        self.items[path] = items

    def put_lines(self, path: str, languages: list[str], size: str, text: str) -> None:
        self.put(path, languages, size, text.splitlines(), joint="\n")

    def put_stories(self, path: str, code: str, size: str, purpose: str, title: str) -> None:
        data = formats.squad(self._drawn[purpose], self._realizers[code], title)
        paragraphs = data["data"][0].pop("paragraphs")
        data["data"][0]["paragraphs"] = []
        head, foot = json.dumps(data, ensure_ascii=False).rsplit("[]", 1)
        items = [json.dumps(paragraph, ensure_ascii=False) for paragraph in paragraphs]
        self.put(path, [code], size, items, head=f"{head}[", joint=", ", foot=f"]{foot}\n")

    def put_reviews(self, path: str, code: str, size: str, purpose: str, domain: str) -> None:
        text = formats.format_reviews(self._drawn[purpose], self._realizers[code], domain)
        head, body = text.split("<items>")
        items = body.removesuffix("</items>\n").removesuffix("\n").split("\n<item>")
        items = [items[0], *(f"<item>{item}" for item in items[1:])]
        foot = "\n</items>\n"
        self.put(path, [code], size, items, head=f"{head}<items>", joint="\n", foot=foot)

    def put_blocks(self, path: str, code: str, size: str, text: str) -> None:
        items = text.removesuffix("\n").split("\n\n")
        self.put(path, [code], size, items, joint="\n\n")

    def put_all(self) -> None:
        drawn, realizers, english = self._drawn, self._realizers, self._realizers["en"]
        for code in LANGUAGES:
            blocks = ["\n".join(lines) for lines in drawn[f"text {code}"]]
            size = "source_sentences" if code == "en" else "sentences"
            self.put(f"text/{code}/00000.txt", [code], size, blocks, joint="\n\n")
        for code in LANGUAGES[1:]:
            iso, realizer = formats.ISO_639_3[code], realizers[code]
            both, stem = ["en", code], f"tasks/tatoeba/tatoeba.{iso}-eng"
            pairs = drawn["tatoeba"]
            text = formats.format_lines(pairs, realizer)
            self.put_lines(f"{stem}.{iso}", both, "test_pairs", text)
            text = formats.format_lines(pairs, english)
            self.put_lines(f"{stem}.eng", both, "test_pairs", text)
            pairs, stem = drawn["wordalign"], f"tasks/wordalign/{code}-en"
            text = formats.format_tokenized(pairs, realizer)
            self.put_lines(f"{stem}/test.{code}", both, "aligned_pairs", text)
            text = formats.format_tokenized(pairs, english)
            self.put_lines(f"{stem}/test.en", both, "aligned_pairs", text)
            links = [formats.format_alignments([pair], realizer, english) for pair in pairs]
            items = [
                "\n".join(line.removeprefix("0 ") for line in link.splitlines()) for link in links
            ]
            path = f"{stem}/alignv2.txt"
            self.put(path, both, "aligned_pairs", items, joint="\n", numbered=True)
        for code, realizer in realizers.items():
            for split, size in (("train", "examples"), ("dev", "dev"), ("test", "test")):
                if split == "train" and code != "en":
                    continue
                name = f"{split}-{code}.tsv"
                text = formats.format_entailment(drawn[f"xnli {split}"], realizer)
                self.put_lines(f"tasks/xnli/{name}", [code], size, text)
                text = formats.format_paraphrases(drawn[f"pawsx {split}"], realizer)
                self.put_lines(f"tasks/pawsx/{name}", [code], size, text)
                text = formats.format_tags(drawn[f"udpos {split}"], realizer, _tags)
                self.put_blocks(f"tasks/udpos/{name}", code, size, text)
                text = formats.format_tags(drawn[f"panx {split}"], realizer, _entities)
                self.put_blocks(f"tasks/panx/{name}", code, size, text)
        self.put_stories("tasks/squad/train-v1.1.json", "en", "stories", "squad train", "train")
        self.put_stories("tasks/squad/dev-v1.1.json", "en", "dev", "squad dev", "dev")
        train = "tasks/tydiqa/tydiqa-goldp-v1.1-train/tydiqa.goldp.en.train.json"
        self.put_stories(train, "en", "half_stories", "tydiqa train", "english")
        for code in LANGUAGES:
            self.put_stories(f"tasks/xquad/xquad.{code}.json", code, "test", "xquad", "test")
            for split in ("dev", "test"):
                path = f"tasks/mlqa/MLQA_V1/{split}/{split}-context-{code}-question-{code}.json"
                self.put_stories(path, code, split, f"mlqa {split}", split)
            path = f"tasks/tydiqa/tydiqa-goldp-v1.1-dev/tydiqa.goldp.{code}.dev.json"
            self.put_stories(path, code, "test", "tydiqa dev", language_name(code).lower())
            stem = f"tasks/cls/{code}"
            for domain in ("books", "dvd", "music") if code in _REVIEWING else ("books",):
                prefix = "cls" if domain == "books" else f"cls {domain}"
                path = f"{stem}/{domain}/train.review"
                self.put_reviews(path, code, "reviews", f"{prefix} train {code}", domain)
                path = f"{stem}/{domain}/test.review"
                self.put_reviews(path, code, "test", f"{prefix} test", domain)
        sampler = Sampler(Splits(LANGUAGES, 1).random("muse"))
        meanings = [sampler.draw() for _ in range(DEMO["source_sentences"] // 5)]
        for code in LANGUAGES[1:]:
            text = formats.format_dictionary(meanings, english, realizers[code])
            self.put(f"tasks/muse/en-{code}.txt", ["en", code], None, [text.strip("\n")])

    def write(self, path: Path) -> None:
        """Write a tar: `index.json`, then the items of each file between blank lines."""
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            index = json.dumps(self.files, ensure_ascii=False, indent=1) + "\n"
            _add(tar, "index.json", index)
            for name, items in self.items.items():
                _add(tar, name, "\n\n".join(items) + "\n")
        packed = lzma.compress(buffer.getvalue(), filters=_FILTERS)
        path.write_bytes(packed)
        print(f"{path}: {len(buffer.getvalue()):,} bytes, {len(packed):,} compressed")


def _add(tar: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode()
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def build(path: Path) -> None:
    """Draw both parts and write the pool."""
    splitting._FEWEST_DRAWS = 3_000_000  # next to all training data, new stories are rare
    splits = _PoolSplits()
    drawn = splits.draw_all(DEMO)
    last = [story for name in ("mlqa dev", "mlqa test", "tydiqa dev") for story in drawn[name]]
    splits.start_second(_list_trained(drawn), list_asked(last))
    for purpose, items in splits.draw_all(MORE).items():
        drawn[purpose] = drawn[purpose] + items
    pool = _Pool(splits, drawn)
    pool.put_all()
    pool.write(path)


if __name__ == "__main__":
    build(Path(sys.argv[1]))
