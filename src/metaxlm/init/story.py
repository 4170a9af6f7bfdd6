"""The story of one token: which rules looked for what, and what its row starts from.

Comes in: a plan and a row. Goes out: a `Story` of steps in the order of the rules. A plan holds
outcomes only, but a rule is tried only when all before it found nothing, so the forms they looked
for are known: whatever stands before the rule that matched is not in the source vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from metaxlm.errors import MetaXLMError
from metaxlm.init.matching import DICTIONARY_RULES, TEXT_RULES
from metaxlm.init.plan import Origin, Plan
from metaxlm.init.translation import spell_word
from metaxlm.languages import language_name
from metaxlm.scripts import SPECIAL
from metaxlm.vocab.token_forms import Form, find_form


@dataclass(frozen=True)
class Step:
    """One rule, and what it did."""

    rule: str
    text: str
    """What was looked for, or found."""
    is_decisive: bool = False
    """Whether this rule gave the row its start."""


@dataclass(frozen=True)
class Story:
    """How one row got its start."""

    row: int
    origin: Origin
    description: str
    """What the token is: its text, script, and place in a word."""
    steps: tuple[Step, ...]
    outcome: str
    """What the row starts from."""


def find_rows(plan: Plan, token: str) -> list[int]:
    """Return the rows of a token as its tokenizer writes it; `#12` is row 12."""
    if token.startswith("#") and token[1:].isdecimal() and token not in plan.tokens:
        row = int(token[1:])
        if row >= len(plan):
            raise MetaXLMError(f"{token}: the plan has rows 0 to {len(plan) - 1:,}")
        return [row]
    return [row for row, known in enumerate(plan.tokens) if known == token]


def explain(plan: Plan, row: int) -> Story:
    """Tell how a row got its start."""
    origin = plan.origin(row)
    script = plan.scripts[row]
    form = None if script == SPECIAL else find_form(origin.token, plan.kind)
    if form is None:
        description = "a special token or a part of a character"
        steps: tuple[Step, ...] = (Step(origin.rule, _describe_sources(origin), True),)
    else:
        place = "starts a word" if form[1] else "continues a word"
        description = f'"{form[0]}", {script} script, {place}'
        steps = tuple(_tell(plan, form, origin))
    return Story(row, origin, description, steps, _describe_outcome(plan, origin))


def _tell(plan: Plan, form: Form, origin: Origin) -> list[Step]:
    steps: list[Step] = []
    if plan.recipe.precedence != "text" and origin.rule in DICTIONARY_RULES:
        # Here a text match is no end: whether there was one, only a blend tells.
        where = "mixed in" if origin.rule == "dictionary_blend" else "not before the dictionary"
        steps.append(Step("text rules", f"{where} (precedence: {plan.recipe.precedence})"))
        return [*steps, Step(origin.rule, _describe_entries(form, origin), True)]
    looked_for: set[Form] = set()
    for rule, propose in TEXT_RULES.items():
        if rule not in plan.recipe.rules:
            steps.append(Step(rule, "off in the recipe"))
            continue
        if rule == origin.rule:
            steps.append(Step(rule, _describe_sources(origin), True))
            return steps
        new = [proposed for proposed in dict.fromkeys(propose(*form)) if proposed not in looked_for]
        looked_for.update(new)
        texts = ", ".join(map(_show_form, new))
        steps.append(Step(rule, f"{texts}: not in the source" if texts else "nothing new to try"))
    if origin.rule in DICTIONARY_RULES:
        steps.append(Step(origin.rule, _describe_entries(form, origin), True))
        return steps
    steps.append(Step("dictionary", _describe_absence(plan, form)))
    steps.append(Step(origin.rule, _describe_outcome(plan, origin), True))
    return steps


def _show_form(form: Form) -> str:
    return f'"{form[0]}" {"at a word start" if form[1] else "inside a word"}'


def _describe_sources(origin: Origin) -> str:
    tokens = [
        f"{t} (row {r:,})" for t, r in zip(origin.source_tokens, origin.source_rows, strict=True)
    ]
    return f"found {', '.join(tokens)}" if tokens else "no counterpart in the source"


def _describe_entries(form: Form, origin: Origin) -> str:
    by_language: dict[str, list[str]] = {}
    for language, translation in origin.entries:
        by_language.setdefault(language, []).append(translation)
    told = "; ".join(
        f"{language_name(language)} {', '.join(texts)}" for language, texts in by_language.items()
    )
    if origin.rule == "dictionary_part":
        return f"a part of dictionary words that mean: {told}"
    return f'"{spell_word(form[0])}" is {told}'


def _describe_absence(plan: Plan, form: Form) -> str:
    if not plan.languages:
        return "none was given, or none matched any row"
    if plan.recipe.pieces == "word_start" and not form[1]:
        return "off for pieces that continue a word"
    return f'"{spell_word(form[0])}": no entry that the source could match'


def _describe_outcome(plan: Plan, origin: Origin) -> str:
    if not origin.source_rows:
        if plan.recipe.filler == "normal":
            return "random numbers with the source rows' mean and deviation"
        return "random numbers with deviation 0.02"
    if len(origin.source_rows) == 1:
        return f"a copy of {origin.source_tokens[0]}"
    ordered = sorted(
        zip(origin.weights, origin.source_tokens, strict=True), key=lambda pair: -pair[0]
    )
    return " + ".join(f"{weight:.2f} {token}" for weight, token in ordered)
