"""Seconds and peak memory of making a dictionary from Wiktextract's JSON lines.

    python benchmarks/dictionary.py --megabytes 1000
    python benchmarks/dictionary.py --megabytes 1000 --language fr --edition fr --ending .gz

The file is generated: its words are random, its fields and their sizes are those of kaikki.org. In
the English edition, one line in ten is an English word with translations into up to forty
languages, some of them within senses; the others are words of all languages with English glosses,
forms, sounds and templates. In another edition, its own words have translations, and the others
have glosses in its language. The command runs in a process of its own. Its time includes the start
of Python; its memory includes the libraries.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import lzma
import random
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from metaxlm.languages import LANGUAGES, language_name

LETTERS = "aeiourstlnmkpdbgvhz"
WORD, NUM_TEMPLATES = "@WORD@", 3_000
OPENERS: dict[str, Any] = {"": open, ".gz": gzip.open, ".xz": lzma.open, ".bz2": bz2.open}


class Generator:
    """Makes lines of an edition; a line's word is put into one of some thousand templates."""

    def __init__(self, edition: str, language: str, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.edition, self.languages = edition, sorted({*LANGUAGES, "la", "mul"})
        # A line in five is in the language that is read, as in the files of one language.
        shares = dict.fromkeys(self.languages, 1.0) | {language: 25.0, "en": 15.0}
        self.weights = [shares[code] for code in self.languages]
        self.templates = [self._make_template(k) for k in range(NUM_TEMPLATES)]

    def word(self, most: int = 9) -> str:
        return "".join(self.random.choices(LETTERS, k=self.random.randint(3, most)))

    def words(self, most: int) -> str:
        return " ".join(self.word() for _ in range(self.random.randint(1, most)))

    def line(self) -> bytes:
        return self.random.choice(self.templates).replace(WORD.encode(), self.word(12).encode())

    def _make_template(self, number: int) -> bytes:
        is_own = number % 10 == 0
        [code] = self.random.choices(self.languages, self.weights)
        code = self.edition if is_own else code
        name = language_name(code) if self.edition == "en" else self.word()
        senses = [self._make_sense(is_own) for _ in range(self.random.randint(1, 6))]
        if not is_own and self.random.random() < 0.5:  # as most words of other languages
            senses = [{**senses[0], "form_of": [{"word": self.word()}], "tags": ["form-of"]}]
        record = {
            "pos": self.random.choice(["noun", "verb", "adj", "name"]), "word": WORD,
            "lang": name, "lang_code": code, "senses": senses,
            "head_templates": [{"name": "head", "args": {"1": code}, "expansion": self.words(4)}],
            "forms": [
                {"form": self.word(), "tags": self.random.sample(["plural", "past", "dative"], 2)}
                for _ in range(self.random.randint(0, 20))
            ],
            "etymology_text": self.words(40),
            "sounds": [{"ipa": f"/{self.word()}/"}, {"audio": f"{self.word()}.ogg"}],
        }  # fmt: skip
        if is_own:
            record["translations"] = self._make_translations(40)
        return json.dumps(record, ensure_ascii=False).encode()

    def _make_sense(self, is_own: bool) -> dict[str, Any]:
        gloss = self.words(14) if is_own else ", ".join(self.words(3) for _ in range(2))
        sense = {"glosses": [gloss], "categories": [self.words(4)], "links": [[self.word()] * 2]}
        if is_own and self.random.random() < 0.1:
            sense["translations"] = self._make_translations(10)
        return sense

    def _make_translations(self, most: int) -> list[dict[str, str]]:
        codes = self.random.sample(self.languages, self.random.randint(1, most))
        return [
            {
                "lang": language_name(code), "code": code, "lang_code": code,
                "sense": self.words(8), "roman": self.word(), "word": self.words(2),
            }
            for code in codes
        ]  # fmt: skip


def write_file(path: Path, megabytes: int, edition: str, language: str) -> int:
    """Write a file of about this size before compression; return the number of lines."""
    generator = Generator(edition, language)
    size = num_lines = 0
    with OPENERS[path.suffix if path.suffix in OPENERS else ""](path, "wb") as file:
        while size < megabytes * 1_000_000:
            line = generator.line() + b"\n"
            file.write(line)
            size += len(line)
            num_lines += 1
    return num_lines


def main() -> None:
    """Generate a file, make a dictionary of it and print what it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1_000)
    parser.add_argument("--language", default="sw")
    parser.add_argument("--edition", default="en")
    parser.add_argument("--ending", default="", choices=list(OPENERS))
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        source = Path(folder, f"kaikki.jsonl{arguments.ending}")
        num_lines = write_file(source, arguments.megabytes, arguments.edition, arguments.language)
        output = Path(folder, f"en-{arguments.language}.txt")
        command = [sys.executable, "-m", "metaxlm", "dictionary", str(source), "--quiet"]
        command += ["--language", arguments.language, "--output", str(output)]
        start = time.monotonic()
        subprocess.run(command, check=True)
        seconds = time.monotonic() - start
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        num_entries = len(output.read_text("utf-8").splitlines())
    print(
        f"{arguments.megabytes:,} MB, {num_lines:,} lines, edition {arguments.edition}, language "
        f"{arguments.language}{arguments.ending}: {seconds:.1f} s "
        f"({used.ru_utime + used.ru_stime:.1f} s of CPU), {used.ru_maxrss / 1024:.0f} MiB at most, "
        f"{num_entries:,} entries"
    )


if __name__ == "__main__":
    main()
