"""The little language in which `data/templates/XX.yaml` says how a pattern is put into words.

In: a string such as `{agent|subject} {verb|finite} {theme|object} [{place|at}] .`
Out: a `Template`, a tree of literals, elements and optional groups, checked against the slots of
its pattern and the flags its morphology knows. The notation is told in ADDING_A_LANGUAGE.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from metaxlm.errors import MetaXLMError
from metaxlm.phrasebook.concepts import Concepts
from metaxlm.phrasebook.datafiles import Entry, read_entries
from metaxlm.phrasebook.lexicon import UPOS
from metaxlm.phrasebook.meaning import Meaning, Word

PUNCTUATION = frozenset(".,!?;:…。，！？、；：")
FINAL_PUNCTUATION = frozenset(".!?…。！？")
_TOKEN = re.compile(
    r"\[(?:(?P<when>[^\s\[\]{}]+)\?(?=\s))?|\]|\{(?P<element>[^{}]*)\}|[^\s\[\]{}]+"
)
_OPTIONS = ("agree", "by", "tense", "polarity", "number", "definiteness", "role", "possessor")
_TENSES = ("past", "present", "progressive", "future")

Condition = Callable[[Meaning], bool]


@dataclass(frozen=True, eq=False, slots=True)
class Element:
    """`{slot|flags}`: the filler of a slot, or an element such as the copula."""

    name: str
    role: str
    flags: tuple[str, ...]
    """What the morphology interprets."""
    pronoun: bool
    bare_noun: bool
    """`plain`: without adjective, numeral and possessor."""
    options: dict[str, str]
    """What the engine interprets: agree, by, tense, polarity, number, definiteness, possessor."""
    agree: tuple[str, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Group:
    """`[condition? ...]`: said if the condition holds and every slot named inside is filled."""

    condition: Condition
    items: tuple[Item, ...]


Item = Word | Element | Group


@dataclass(frozen=True, eq=False, slots=True)
class Template:
    """The wordings of one pattern: the first whose condition holds is used."""

    pattern: str
    variants: tuple[tuple[Condition, tuple[Item, ...]], ...]
    where: str


class TemplateParser:
    """Parses the templates of one pattern, knowing its slots and the language's flags."""

    def __init__(
        self,
        slots: Collection[str],
        elements: Collection[str],
        flags: Collection[str],
        concepts: Concepts,
    ) -> None:
        self._slots = slots
        self._elements = elements
        self._flags = flags
        self._concepts = concepts

    def parse(self, entry: Entry) -> Template:
        """Parse the value of one pattern: a string, or a mapping of conditions to strings."""
        value = entry.value
        if isinstance(value, str):
            value = {"default": value}
        if not isinstance(value, dict) or list(value)[-1:] != ["default"]:
            raise MetaXLMError(
                f"{entry.where}: {entry.key!r} needs a template, or variants ending in `default`"
            )
        variants = tuple(
            (
                _always if key == "default" else self._condition(str(key), entry.where),
                self._parse_text(str(text), entry.where),
            )
            for key, text in value.items()
        )
        return Template(entry.key, variants, entry.where)

    def _parse_text(self, text: str, where: str) -> tuple[Item, ...]:
        stack: list[tuple[Condition, list[Item]]] = [(_always, [])]
        position = 0
        for match in _TOKEN.finditer(text):
            if text[position : match.start()].strip():
                raise MetaXLMError(f"{where}: cannot read {text[position:]!r}")
            position = match.end()
            token = match.group()
            if token.startswith("["):
                when = match.group("when")
                stack.append((self._condition(when, where) if when else _always, []))
            elif token == "]":
                if len(stack) == 1:
                    raise MetaXLMError(f"{where}: `]` without `[`")
                condition, items = stack.pop()
                stack[-1][1].append(self._group(condition, items))
            elif match.group("element") is not None:
                stack[-1][1].append(self._element(match.group("element"), where))
            else:
                stack[-1][1].append(parse_literal(token, where))
        if len(stack) != 1:
            raise MetaXLMError(f"{where}: `[` without `]`")
        return tuple(stack[0][1])

    def _group(self, condition: Condition, items: list[Item]) -> Group:
        needed = [i.name for i in items if isinstance(i, Element) and i.name in self._slots]

        def holds(meaning: Meaning) -> bool:
            return all(name in meaning.slots for name in needed) and condition(meaning)

        return Group(holds, tuple(items))

    def _element(self, text: str, where: str) -> Element:
        name, _, rest = text.partition("|")
        if name not in self._slots and name not in self._elements:
            raise MetaXLMError(
                f"{where}: {{{text}}} names no slot of the pattern ({', '.join(self._slots)}) "
                f"and no element of the language ({', '.join(sorted(self._elements))})"
            )
        flags: list[str] = []
        options: dict[str, str] = {}
        for flag in rest.split():
            key, equals, value = flag.partition("=")
            if equals and key in _OPTIONS:
                options[key] = value
            elif flag in self._flags or flag in ("pronoun", "plain"):
                flags.append(flag)
            else:
                raise MetaXLMError(
                    f"{where}: unknown flag {flag!r} in {{{text}}}; the morphology knows "
                    f"{', '.join(sorted(self._flags))}"
                )
        for slot in [*options.get("agree", "").split("+"), options.get("by", "")]:
            if slot and slot not in self._slots:
                raise MetaXLMError(f"{where}: {{{text}}} refers to {slot!r}, which is no slot")
        return Element(
            name,
            options.pop("role", name),
            tuple(flag for flag in flags if flag not in ("pronoun", "plain")),
            "pronoun" in flags,
            "plain" in flags,
            options,
            tuple(filter(None, options.pop("agree", "").split("+"))),
        )

    def _condition(self, text: str, where: str) -> Condition:
        tests = [self._atom(atom, where) for atom in text.replace(",", " ").split()]
        if len(tests) == 1:
            return tests[0]
        return lambda meaning: all(test(meaning) for test in tests)

    def _atom(self, atom: str, where: str) -> Condition:
        if atom.startswith("!"):
            inner = self._atom(atom[1:], where)
            return lambda meaning: not inner(meaning)
        if atom in _TENSES:
            return lambda meaning: meaning.tense == atom
        if atom in ("affirmative", "negative"):
            return lambda meaning: meaning.polarity == atom
        if atom == "fronted":
            return lambda meaning: meaning.fronted
        slot, dot, label = atom.partition(".")
        if slot not in self._slots:
            raise MetaXLMError(f"{where}: condition {atom!r} is no feature and no slot")
        if not dot:
            return lambda meaning: slot in meaning.slots
        return self._slot_condition(slot, label)

    def _slot_condition(self, slot: str, label: str) -> Condition:
        concepts = self._concepts

        def holds(meaning: Meaning) -> bool:
            phrase = meaning.slots.get(slot)
            if phrase is None:
                return False
            if label == "pronoun":
                return phrase.pronoun or concepts.kind(phrase.concept) == "pronoun"
            if label in (phrase.number, phrase.gender, phrase.definiteness):
                return True
            if label in ("possessor", "adjective", "numeral"):
                return bool(getattr(phrase, label))
            return phrase.concept in concepts and label in concepts[phrase.concept].labels

        return holds


def _always(_: Meaning) -> bool:
    return True


def parse_literal(token: str, where: str) -> Word:
    """Read `word/UPOS@role`, `~` in front glues it to the word before, `^` keeps it apart."""
    glue, apart = token.startswith("~"), token.startswith("^")
    token = token[1:] if (glue or apart) and len(token) > 1 else token
    if token in PUNCTUATION:
        role = "end" if token in FINAL_PUNCTUATION else "comma"
        return Word(token, "PUNCT", (role,), glue=not apart)
    body, _, roles = token.partition("@")
    text, slash, tag = body.rpartition("/")
    if not slash or tag not in UPOS:
        raise MetaXLMError(f"{where}: literal {token!r} should be word/UPOS or word/UPOS@role")
    return Word(text, tag, tuple(filter(None, roles.split("+"))), glue=glue)


def read_templates(
    path: Path,
    patterns: dict[str, Collection[str]],
    elements: Collection[str],
    flags: Collection[str],
    concepts: Concepts,
) -> dict[str, Template]:
    """Read the templates of a language; every pattern must have one and no other may be there."""
    templates: dict[str, Template] = {}
    for entry in read_entries(path):
        if entry.key not in patterns:
            raise MetaXLMError(f"{entry.where}: {entry.key!r} is no pattern; see patterns.yaml")
        parser = TemplateParser(patterns[entry.key], elements, flags, concepts)
        templates[entry.key] = parser.parse(entry)
    missing = [name for name in patterns if name not in templates]
    if missing:
        raise MetaXLMError(
            f"{path.name}:1: no template for {len(missing)} patterns, such as {missing[:8]}"
        )
    return templates
