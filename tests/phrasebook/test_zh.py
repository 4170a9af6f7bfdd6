"""Chinese: pinned sentences for the hard points, and properties of everything it can say."""

from __future__ import annotations

import re
from random import Random

import pytest

from metaxlm.phrasebook.alignment import align
from metaxlm.phrasebook.concepts import load_concepts
from metaxlm.phrasebook.lexicon import load_lexicon
from metaxlm.phrasebook.meaning import Meaning, Phrase, Sentence
from metaxlm.phrasebook.realization import realize
from metaxlm.phrasebook.sampling import Sampler

P = Phrase
ANNA, PETER = P("anna", gender="f"), P("peter", gender="m")
ME, WE, YOU = P("i", gender="f"), P("we", "pl", gender="m"), P("you", gender="m")
SISTER = P("sister", gender="f", possessor="1sg")
FRIEND = P("friend", gender="m", possessor="1sg")
YES, NO = "affirmative", "negative"
Slots = dict[str, Phrase]

SENTENCES: list[tuple[str, str, str, Slots, str]] = [
    # time and place before the verb, classifier, 了
    (
        "transitive",
        "past",
        YES,
        {
            "agent": ANNA,
            "verb": P("buy"),
            "theme": P("coat", definiteness="indef", adjective="new"),
            "place": P("market"),
            "time": P("yesterday"),
        },
        "安娜昨天在市场上买了一件新大衣。",
    ),
    (
        "transitive",
        "past",
        NO,
        {
            "agent": ANNA,
            "verb": P("eat"),
            "theme": P("apple", definiteness="indef"),
            "place": P("kitchen"),
        },
        "安娜没有在厨房里吃苹果。",
    ),
    # one 在 for two
    (
        "transitive",
        "progressive",
        YES,
        {"agent": ANNA, "verb": P("read"), "theme": P("book"), "place": P("park")},
        "安娜正在公园里读那本书。",
    ),
    (
        "transitive",
        "progressive",
        NO,
        {"agent": ME, "verb": P("draw"), "theme": P("cat", definiteness="indef")},
        "我没有在画猫。",
    ),
    # 的 or none, 很 in front of a short adjective, 自己
    (
        "transitive",
        "past",
        YES,
        {
            "agent": ANNA,
            "verb": P("lose"),
            "theme": P("umbrella", adjective="expensive", possessor="@agent"),
        },
        "安娜弄丢了自己那把昂贵的雨伞。",
    ),
    (
        "transitive",
        "past",
        YES,
        {
            "agent": ME,
            "verb": P("see"),
            "theme": P("elephant", "pl", "indef", adjective="big"),
            "place": P("street"),
        },
        "我在街上看见了一些很大的大象。",
    ),
    # 两 and classifiers, siblings when counted
    (
        "counted",
        "past",
        YES,
        {"agent": PETER, "verb": P("draw"), "theme": P("horse", "pl", "indef", numeral="two")},
        "彼得画了两匹马。",
    ),
    (
        "possession_counted",
        "present",
        YES,
        {"agent": FRIEND, "verb": P("have"), "theme": P("sister", "pl", "indef", numeral="two")},
        "我的朋友有两个姐妹。",
    ),
    (
        "duration",
        "past",
        YES,
        {"agent": ME, "verb": P("sleep"), "numeral": P("eight"), "unit": P("hour", "pl")},
        "我睡了八个小时。",
    ),
    # aspect inside the verb, 着, 过, the 了 that ends a sentence
    (
        "intransitive",
        "past",
        YES,
        {"agent": SISTER, "verb": P("dance"), "time": P("yesterday_evening")},
        "我妹妹昨天晚上跳了舞。",
    ),
    (
        "intransitive",
        "past",
        YES,
        {"agent": ME, "verb": P("work"), "place": P("farm")},
        "我在农场里工作过。",
    ),
    (
        "wearing",
        "progressive",
        YES,
        {"agent": ANNA, "verb": P("wear"), "theme": P("hat", definiteness="indef")},
        "安娜戴着一顶帽子。",
    ),
    (
        "trip",
        "past",
        YES,
        {
            "agent": ANNA,
            "verb": P("travel"),
            "goal": P("berlin"),
            "means": P("train"),
            "companion": PETER,
        },
        "安娜和彼得一起坐火车去柏林旅行了。",
    ),
    # 把, 给, 从...那里
    (
        "sell_to",
        "past",
        YES,
        {
            "agent": ANNA,
            "verb": P("sell"),
            "recipient": PETER,
            "theme": P("car", definiteness="indef"),
        },
        "安娜把一辆汽车卖给了彼得。",
    ),
    (
        "encounter",
        "future",
        NO,
        {"agent": ANNA, "verb": P("call"), "theme": PETER},
        "安娜不会给彼得打电话。",
    ),
    (
        "forgetting",
        "past",
        YES,
        {
            "agent": ME,
            "verb": P("forget"),
            "theme": P("phone", possessor="@agent"),
            "place": P("hotel"),
        },
        "我把我的手机忘在酒店里了。",
    ),
    # predicates: 很, 不, 是...的, 没有, 比
    (
        "quality",
        "past",
        NO,
        {"theme": P("shirt", "pl"), "adjective": P("red")},
        "那些衬衫当时不是红色的。",
    ),
    (
        "quality",
        "present",
        NO,
        {"theme": P("book", definiteness="this"), "adjective": P("interesting")},
        "这本书没有意思。",
    ),
    (
        "quality",
        "present",
        NO,
        {"theme": P("chair"), "adjective": P("uncomfortable")},
        "那把椅子并不是不舒服。",
    ),
    ("person_state", "past", NO, {"agent": WE, "adjective": P("sick")}, "我们当时没有生病。"),
    (
        "person_comparison",
        "present",
        NO,
        {"agent": ANNA, "adjective": P("tall"), "ground": PETER},
        "安娜不比彼得高。",
    ),
    # places, questions, existence
    (
        "object_inside",
        "present",
        YES,
        {"theme": P("key", "pl"), "relation": P("in"), "ground": P("box", adjective="heavy")},
        "那些钥匙在那个很重的盒子里。",
    ),
    (
        "existential",
        "present",
        NO,
        {"theme": P("hotel", definiteness="indef"), "place": P("village")},
        "村里没有酒店。",
    ),
    (
        "ask_where_event",
        "past",
        YES,
        {"agent": ANNA, "verb": P("drink"), "theme": P("tea")},
        "安娜是在哪里喝的那杯茶？",
    ),
    (
        "ask_liking",
        "present",
        YES,
        {"agent": YOU, "verb": P("like"), "theme": P("cat", "pl", "generic")},
        "你喜欢猫吗？",
    ),
]


@pytest.mark.parametrize(("pattern", "tense", "polarity", "slots", "expected"), SENTENCES)
def test_sentences(pattern: str, tense: str, polarity: str, slots: Slots, expected: str) -> None:
    assert realize(Meaning(pattern, slots, tense, polarity), "zh").text == expected


def all_sentences(seed: int, per_pattern: int) -> list[Sentence]:
    sampler = Sampler(Random(seed))
    return [
        realize(sampler.sample(pattern), "zh")
        for pattern in sampler.patterns
        for _ in range(per_pattern)
    ]


def test_text_is_clean() -> None:
    for sentence in all_sentences(11, 12):
        assert re.fullmatch(r"[\u4e00-\u9fff0-9，]+[。！？]", sentence.text), sentence.text
        for twice in ("的的", "了了", "在在", "不不", "很很", "大大", "一些个", "没有不"):
            assert twice not in sentence.text, sentence.text
        assert all(word.roles != ("",) for word in sentence.items)


def test_every_counted_noun_has_its_classifier() -> None:
    counted = 0
    for concept in load_concepts():
        if concept.kind not in ("animal", "food", "thing", "place", "transport"):
            continue
        theme = P(concept.id, "pl", "indef", numeral="three")
        slots = {"agent": ANNA, "verb": P("buy"), "theme": theme}
        text = realize(Meaning("counted", slots, "future"), "zh").text
        lexeme = load_lexicon("zh")[concept.id]
        assert lexeme.get("cl"), concept.id
        noun = lexeme.get("raw") or lexeme.text
        assert text == f"安娜会买三{lexeme.get('cl')}{noun}。"
        counted += 1
    assert counted > 150


def test_no_two_nouns_are_the_same_word() -> None:
    seen: dict[str, str] = {}
    for concept in load_concepts():
        if concept.kind in ("person", "animal", "food", "beverage", "thing", "place", "transport"):
            text = load_lexicon("zh")[concept.id].text
            assert text not in seen, (concept.id, seen.get(text))
            seen[text] = concept.id


def test_number_and_noun_are_surely_linked_and_the_classifier_possibly() -> None:
    theme = P("book", "pl", "indef", numeral="three")
    meaning = Meaning("counted", {"agent": ANNA, "verb": P("buy"), "theme": theme}, "past")
    chinese, english = realize(meaning, "zh"), realize(meaning, "en")
    links = {(chinese.words[a], english.words[b]): sure for a, b, sure in align(chinese, english)}
    assert links["三", "three"] and links["书", "books"] and links["买", "bought"]
    assert links["本", "three"] is False and ("本", "books") not in links
    span = chinese.span("theme")
    assert span is not None and chinese.text[slice(*span)] == "三本书"
