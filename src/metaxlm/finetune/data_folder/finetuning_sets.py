"""The data sets of the finetuned tasks, as people have them on their disks.

Nothing comes in; descriptions go out: the seven XTREME tasks and Amazon reviews of the paper's
Sections 4.2 and 4.3, and SQuAD, which trains two of them. Layouts are XTREME's download tree and
the releases of the authors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from metaxlm.finetune.data_folder import content
from metaxlm.finetune.data_folder.content import Content
from metaxlm.finetune.data_folder.description import (
    ALL,
    SEARCHED,
    SPLIT,
    START,
    VARIANT,
    XX,
    DataSet,
    Files,
    Layout,
)
from metaxlm.languages import task_languages


def _tsv(folders: str, count: Callable[[Path], Content]) -> Files:
    """XTREME's `FOLDER/SPLIT-XX.tsv`."""
    return Files(rf"{START}(?:{folders})/{SPLIT}{VARIANT}-{XX}(?:-subset)?\.tsv$", count)


_count_pos = partial(content.count_tagged, tags=content.UD_TAGS)
_count_entities = partial(content.count_tagged, tags=content.NER_TAGS)
_count_inference = partial(content.count_pairs, labels=content.NLI_LABELS)
_count_paraphrases = partial(content.count_pairs, labels=content.PARAPHRASE_LABELS)

UDPOS = DataSet(
    name="UD POS",
    purpose="part-of-speech tagging",
    home="https://universaldependencies.org (release 2.5)",
    license="per treebank",
    needs={"train": ("en",), "dev": ("en",), "test": task_languages("udpos")},
    archives=r"ud-treebanks-v[\d.]+\.tgz",
    advice="XTREME's script now fetches release 2.7 and blanks the test tags; the paper has 2.5",
    layouts=(
        Layout(
            "XTREME",
            "udpos/{train,dev,test}-XX.tsv: word, tab, tag; a blank line between sentences",
            (_tsv("udpos|ud-?pos|pos", _count_pos),),
            "yes", SEARCHED, levels=1,
        ),
        Layout(
            "Universal Dependencies",
            "UD_Language-Treebank/xx_treebank-ud-{train,dev,test}.conllu",
            (Files(rf"/{XX}_[a-z]+-ud-{SPLIT}\.conllu$", content.count_conllu),),
            "no", "convert to udpos/SPLIT-XX.tsv (columns FORM and UPOS), as XTREME's script does",
            levels=1,
        ),
    ),
)  # fmt: skip

PANX = DataSet(
    name="PAN-X",
    purpose="named entities (WikiAnn)",
    home="https://github.com/afshinrahimi/mmner",
    license="none stated; from Wikipedia",
    needs={"train": ("en",), "dev": task_languages("panx"), "test": task_languages("panx")},
    sizes={"train": {"en": 20_000}},
    archives=r"AmazonPhotos\.zip|panx[\w-]*\.(?:zip|tar\.\w+)",
    advice="XTREME's script blanks the test tags; the release of mmner has them",
    layouts=(
        Layout(
            "XTREME",
            "panx/{train,dev,test}-XX.tsv: word, tab, tag; a blank line between sentences",
            (_tsv("panx|pan-x|wikiann|ner", _count_entities),),
            "yes", SEARCHED, levels=1,
        ),
        Layout(
            "mmner",
            "XX/{train,dev,test}: xx:word, tab, tag",
            (Files(rf"(?:panx|pan-x|wikiann|mmner)[^/]*/{XX}/{SPLIT}$", _count_entities),),
            "yes", SEARCHED, levels=1,
        ),
    ),
)  # fmt: skip

XQUAD = DataSet(
    name="XQuAD",
    purpose="question answering, trained on SQuAD",
    home="https://github.com/google-deepmind/xquad",
    license="CC BY-SA 4.0",
    needs={"test": task_languages("xquad")},
    sizes={"test": {ALL: 1_190}},
    advice="XTREME's script blanks the answers; the home has them",
    layouts=(
        Layout(
            "XTREME and home",
            "xquad.XX.json",
            (Files(START + rf"xquad\.{XX}\.json$", content.count_questions, "test"),),
            "yes", SEARCHED,
        ),
    ),
)  # fmt: skip

MLQA = DataSet(
    name="MLQA",
    purpose="question answering, trained on SQuAD",
    home="https://github.com/facebookresearch/MLQA",
    license="CC BY-SA 3.0",
    needs={"dev": task_languages("mlqa"), "test": task_languages("mlqa")},
    sizes={
        "dev": {"en": 1148, "de": 512, "es": 500, "ar": 517, "zh": 504, "vi": 511, "hi": 507},
        "test": {"en": 11_590, "de": 4517, "es": 5253, "ar": 5335, "zh": 5137, "vi": 5495,
                 "hi": 4918},
    },
    archives=r"MLQA_V1\.zip|mlqa\.tar\.\w+",
    advice="XTREME's script blanks the test answers; the home has them",
    layouts=(
        Layout(
            "XTREME and home",
            "MLQA_V1/{dev,test}/SPLIT-context-XX-question-XX.json",
            (
                Files(
                    rf"{START}{SPLIT}-context-{XX}-question-(?P=language)\.json$",
                    content.count_questions,
                ),
            ),
            "yes", SEARCHED, levels=1,
        ),
    ),
)  # fmt: skip

TYDIQA = DataSet(
    name="TyDiQA-GoldP",
    purpose="question answering",
    home="https://github.com/google-research-datasets/tydiqa",
    license="Apache-2.0",
    needs={"train": ("en",), "dev": task_languages("tydiqa")},
    sizes={
        "train": {"en": 3_696},
        "dev": {"ar": 921, "bn": 113, "en": 440, "fi": 782, "id": 565, "ko": 276, "ru": 812,
                "sw": 499, "te": 669},
    },
    archives=r"tydiqa-goldp-v1\.[01]-dev\.tgz|tydiqa\.tar\.\w+",
    advice="XTREME's script blanks the dev answers; the home has them",
    layouts=(
        Layout(
            "XTREME",
            "tydiqa-goldp-v1.1-{train,dev}/tydiqa.goldp.XX.{train,dev}.json",
            (
                Files(
                    START + rf"tydiqa\.(?:goldp\.)?{XX}\.{SPLIT}\.json$", content.count_questions
                ),
            ),
            "yes", SEARCHED, levels=1,
        ),
        Layout(
            "home",
            "tydiqa-goldp-v1.1-train.json, tydiqa-goldp-v1.1-dev/tydiqa-goldp-dev-LANGUAGE.json",
            (
                Files(
                    START + r"tydiqa-goldp-dev-(?P<language>[a-z]{4,})\.json$",
                    content.count_questions, "dev",
                ),
                Files(
                    START + rf"tydiqa-goldp-v1\.[01]-{SPLIT}\.json$",
                    content.count_questions, language=content.MANY,
                ),
            ),
            "yes", SEARCHED,
        ),
    ),
)  # fmt: skip

SQUAD = DataSet(
    name="SQuAD 1.1",
    purpose="English training of XQuAD and MLQA",
    home="https://rajpurkar.github.io/SQuAD-explorer",
    license="CC BY-SA 4.0",
    needs={"train": ("en",), "dev": ("en",)},
    sizes={"train": {"en": 87_599}, "dev": {"en": 10_570}},
    traps={START + r"(?:train|dev)-v2\.0\.json$": "SQuAD 2.0 is not used: the paper trains on 1.1"},
    layouts=(
        Layout(
            "XTREME and home",
            "{train,dev}-v1.1.json",
            (Files(rf"{START}{SPLIT}-v1\.1{VARIANT}\.json$", content.count_questions),),
            "yes", SEARCHED,
        ),
    ),
)  # fmt: skip

XNLI = DataSet(
    name="XNLI",
    purpose="inference, trained on English MultiNLI",
    home="https://github.com/facebookresearch/XNLI, https://cims.nyu.edu/~sbowman/multinli",
    license="CC BY-NC 4.0; MultiNLI mixed",
    needs={"train": ("en",), "dev": task_languages("xnli"), "test": task_languages("xnli")},
    sizes={"train": {"en": 392_702}, "dev": {ALL: 2_490}, "test": {ALL: 5_010}},
    archives=r"XNLI-(?:MT-)?1\.0\.zip|multinli_1\.0\.zip|[mx]nli\.tar\.\w+",
    advice="XTREME's script blanks the test labels; the release XNLI-1.0 has them",
    layouts=(
        Layout(
            "XTREME",
            "xnli/{train-en,dev-XX,test-XX}.tsv: premise, hypothesis, label",
            (_tsv("xnli", _count_inference),),
            "yes", SEARCHED, levels=1,
        ),
        Layout(
            "MultiNLI beside it",
            "mnli/*train*.tsv: a header with premise, hypothesis and label",
            (Files(START + r"mnli/[^/]*train[^/]*\.tsv$", _count_inference, "train"),),
            "yes", SEARCHED, levels=1, is_fallback=True,
        ),
        Layout(
            "XNLI 1.0 and XNLI-MT 1.0",
            "XNLI-1.0/xnli.{dev,test}.tsv, XNLI-MT-1.0/multinli/multinli.train.en.tsv",
            (
                Files(
                    START + rf"xnli\.{SPLIT}\.tsv$", _count_inference, language=content.MANY
                ),
                Files(START + rf"multinli\.{SPLIT}\.{XX}\.tsv$", _count_inference),
            ),
            "yes", SEARCHED,
        ),
        Layout(
            "MultiNLI 1.0",
            "multinli_1.0/multinli_1.0_train.txt",
            (Files(START + r"multinli_1\.0_train\.txt$", _count_inference, "train"),),
            "yes", SEARCHED, is_fallback=True,
        ),
    ),
)  # fmt: skip

PAWSX = DataSet(
    name="PAWS-X",
    purpose="paraphrases",
    home="https://github.com/google-research-datasets/paws/tree/master/pawsx",
    license="free, with attribution",
    needs={"train": ("en",), "dev": task_languages("pawsx"), "test": task_languages("pawsx")},
    sizes={"train": {"en": 49_401}, "dev": {ALL: 2_000}, "test": {ALL: 2_000}},
    archives=r"x-final\.tar\.gz|pawsx\.tar\.\w+",
    advice="XTREME's script blanks the test labels; the home has them",
    layouts=(
        Layout(
            "XTREME",
            "pawsx/{train-en,dev-XX,test-XX}.tsv: two sentences and 0 or 1",
            (_tsv("paws-?x", _count_paraphrases),),
            "yes", SEARCHED, levels=1,
        ),
        Layout(
            "home",
            "x-final/XX/{train,dev_2k,test_2k}.tsv: id, two sentences, label",
            (
                Files(
                    rf"(?:x-final|paws-?x)/{XX}/{SPLIT}(?:_2k|(?<=train))\.tsv$",
                    _count_paraphrases,
                ),
            ),
            "yes", SEARCHED, levels=1,
        ),
    ),
)  # fmt: skip

_DOMAINS = ("books", "dvd", "music")

CLS = DataSet(
    name="Amazon reviews",
    purpose="sentiment (Webis-CLS-10)",
    home="https://webis.de/data/webis-cls-10.html",
    license="research, on request",
    needs={
        f"{domain} {split}": task_languages("cls")
        for split in ("train", "test")
        for domain in _DOMAINS
    },
    sizes={
        f"{domain} {split}": {ALL: 2_000} for split in ("train", "test") for domain in _DOMAINS
    },
    archives=r"cls-acl10-unprocessed\.tar\.gz|cls\.tar\.\w+",
    traps={
        r"/(?:train|test)\.processed$": "cls-acl10-processed has counts of words, not the texts; "
        "the unprocessed release is needed"
    },
    layouts=(
        Layout(
            "home",
            "cls-acl10-unprocessed/{en,de,fr,jp}/{books,dvd,music}/{train,test}.review",
            (
                Files(
                    START + r"(?P<language>en|de|fr|jp|ja)/(?P<domain>books|dvd|music)/"
                    r"(?P<split>train|test)\.review$",
                    content.count_reviews,
                ),
            ),
            "yes", SEARCHED, levels=2,
        ),
    ),
)  # fmt: skip

FINETUNING_SETS = (UDPOS, PANX, XQUAD, MLQA, TYDIQA, SQUAD, XNLI, PAWSX, CLS)
"""In the order of the paper's tables."""
