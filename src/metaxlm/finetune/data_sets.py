"""The data sets of the paper's Section 4: layouts, readers, labels, sizes, homes and licenses.

Layouts are XTREME's download tree and the releases of the authors. The labels and tags are defined
here once, for the tasks and for `metaxlm data check`. Nothing here imports torch.
"""

from itertools import compress
from typing import Any

from metaxlm.errors import MetaXLMError
from metaxlm.finetune.data_files import MANY, DataSet, Layout, Read, find_language
from metaxlm.finetune.readers.conll import TaggedSentence, read_conll, read_tagged_sentences
from metaxlm.finetune.readers.input_lines import Examples, read_sides
from metaxlm.finetune.readers.parallel import read_alignment_folder
from metaxlm.finetune.readers.questions import Question, read_questions
from metaxlm.finetune.readers.texts import LabeledText, read_labeled_pairs, read_reviews
from metaxlm.finetune.task import DataFile
from metaxlm.languages import LANGUAGES, task_languages
from metaxlm.reading import open_file, reading

UPOS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM"),
    *("PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X"),
)
ENTITIES = ("B-LOC", "B-ORG", "B-PER", "I-LOC", "I-ORG", "I-PER", "O")
NLI_LABELS = ("entailment", "neutral", "contradiction")
NLI_SYNONYMS = {"contradictory": "contradiction"}
"""XNLI's own copy of the training set has another spelling."""
PARAPHRASE_LABELS = ("0", "1")
DOMAINS = {"books": "Books", "dvd": "DVD", "music": "Music"}
"""Of the Amazon reviews, with their names in tables."""

_XX = r"(?P<language>[a-z]{2,3})"
_SPLIT = r"(?P<split>train|dev|test)"
_VARIANT = r"(?:-(?P<variant>[a-z][\w-]*))?"
_START = r"(?:^|/)"
_DATA = "evaluation.data: {}"
_FEWEST_SORTED = 20  # fewer lines may be in alphabetical order by chance


def _tsv(folders: str) -> str:
    """Return the pattern of XTREME's `FOLDER/SPLIT-XX.tsv`."""
    return rf"{_START}(?:{folders})/{_SPLIT}{_VARIANT}-{_XX}(?:-subset)?\.tsv$"


def _read_entities(file: DataFile) -> Examples[TaggedSentence]:
    """Read words and tags; mmner has the language before each word."""
    prefix = "" if file.path.suffix == ".tsv" else f"{file.language}:"
    return read_tagged_sentences(file.path, ENTITIES, prefix)


def read_squad(file: DataFile) -> Examples[Question]:
    """Read SQuAD's JSON; leave out the contexts of `file.excluding`."""
    examples = read_questions(file.path, is_training=file.split == "train")
    if file.excluding is None:
        return examples
    taken = {question.context for question in read_questions(file.excluding).items}
    items = [question for question in examples.items if question.context not in taken]
    if not items:
        problem = f"all its questions are about the contexts of {file.excluding}"
        raise MetaXLMError(f"{file.path}: {problem}; use SQuAD's dev-v1.1.json to select")
    return Examples(items, examples.notices)


def _read_tydiqa(file: DataFile) -> Examples[Question]:
    """Read the questions of the file's language, or all; ids start with it (`english-123`)."""
    examples = read_squad(file)
    ids = (item.id.partition("-") for item in examples.items)
    languages = [find_language(name) if dash and name.isalpha() else "" for name, dash, _ in ids]
    if not file.language:
        return Examples(examples.items, examples.notices, tuple(languages))
    items = list(compress(examples.items, [code in ("", file.language) for code in languages]))
    if not items:
        raise MetaXLMError(
            f"{file.path}: no question in {file.language!r}, according to the ids; found "
            f"{' '.join(sorted(set(languages)))}"
        )
    return Examples(items, examples.notices)


def _read_translations(file: DataFile) -> Examples[LabeledText]:
    """Read a Tatoeba file and the English one beside it; pairs that XTREME sorts have no label."""
    other = file.path.with_suffix(".eng" if "-eng." in file.path.name else ".en")
    lines, english = read_sides(file.path, other)
    is_sorted = len(english) >= _FEWEST_SORTED and english == sorted(english)
    label = None if is_sorted else "translation"
    note = f"{file.path}: sorted English lines, as in XTREME: line k does not translate line k"
    pairs = [LabeledText(a, b, label) for a, b in zip(lines, english, strict=True)]
    return Examples(pairs, (note,) if is_sorted else ())


def _read_dictionary(file: DataFile) -> Examples[Any]:
    from metaxlm.init.dictionaries import load_dictionaries

    return _count(sum(map(len, load_dictionaries(file.path).by_language.values())))


def _read_parquet(file: DataFile) -> Examples[Any]:
    from metaxlm.data.readers.parquet import open_parquet, reading_parquet

    with reading_parquet(file.path), open_parquet(file.path) as table:
        names, rows = table.schema_arrow.names, table.metadata.num_rows
    if "text" not in names:
        raise MetaXLMError(f"{file.path}: no column `text`; it has {', '.join(names)}")
    return _count(rows)


def _read_dump(file: DataFile) -> Examples[Any]:
    """Measure a dump in bytes and check its compression; it is too large to be read here."""
    magic = {".bz2": b"BZh", ".gz": b"\x1f\x8b"}.get(file.path.suffix, b"<")
    with open_file(file.path) as dump, reading(file.path):
        if not dump.read(8).lstrip(b"\xef\xbb\xbf").startswith(magic):
            raise MetaXLMError(f"{file.path}: does not start as a {file.path.suffix} file does")
        return _count(file.path.stat().st_size)


def _count(number: int) -> Examples[Any]:
    """Return a number of examples without the examples."""
    return Examples(range(number))  # type: ignore[arg-type]


def _pairs(labels: tuple[str, ...], synonyms: dict[str, str] | None = None) -> Read:
    return lambda file: read_labeled_pairs(file.path, labels, synonyms, file.language)


UDPOS = DataSet(
    name="UD POS", purpose="part-of-speech tagging",
    home="https://universaldependencies.org (release 2.5)", license="per treebank",
    needs={"train": ("en",), "dev": ("en",), "test": task_languages("udpos")},
    read=lambda file: read_tagged_sentences(file.path, UPOS), archives=r"ud-treebanks-v[\d.]+\.tgz",
    advice="XTREME's script now fetches release 2.7 and blanks the test tags; the paper has 2.5",
    layouts=(
        Layout("XTREME",
               "udpos/{train,dev,test}-XX.tsv: word, tab, tag; a blank line between sentences",
               _tsv("udpos|ud-?pos|pos"), levels=1),
        Layout(
            "Universal Dependencies", "UD_Language-Treebank/xx_treebank-ud-{train,dev,test}.conllu",
            rf"/{_XX}_[a-z]+-ud-{_SPLIT}\.conllu$", levels=1,
            read=lambda file: Examples(read_conll(file.path)),
            fix="convert to udpos/SPLIT-XX.tsv (columns FORM and UPOS), as XTREME's script does",
        ),
    ),
)  # fmt: skip

PANX = DataSet(
    name="PAN-X", purpose="named entities (WikiAnn)", home="https://github.com/afshinrahimi/mmner",
    license="none stated; from Wikipedia",
    needs={"train": ("en",), "dev": task_languages("panx"), "test": task_languages("panx")},
    read=_read_entities, sizes={"train": {"en": 20_000}},
    archives=r"AmazonPhotos\.zip|panx[\w-]*\.(?:zip|tar\.\w+)",
    advice="XTREME's script blanks the test tags; the release of mmner has them",
    layouts=(
        Layout("XTREME",
               "panx/{train,dev,test}-XX.tsv: word, tab, tag; a blank line between sentences",
               _tsv("panx|pan-x|wikiann|ner"), levels=1),
        Layout("mmner", "XX/{train,dev,test}: xx:word, tab, tag",
               rf"(?:panx|pan-x|wikiann|mmner)[^/]*/{_XX}/{_SPLIT}$", levels=1),
    ),
)  # fmt: skip

XQUAD = DataSet(
    name="XQuAD", purpose="question answering, trained on SQuAD",
    home="https://github.com/google-deepmind/xquad", license="CC BY-SA 4.0",
    needs={"test": task_languages("xquad")}, read=read_squad, sizes={"test": {"": 1_190}},
    advice="XTREME's script blanks the answers; the home has them",
    layouts=(Layout("XTREME and home", "xquad.XX.json", _START + rf"xquad\.{_XX}\.json$", "test"),),
)  # fmt: skip

MLQA = DataSet(
    name="MLQA", purpose="question answering, trained on SQuAD",
    home="https://github.com/facebookresearch/MLQA", license="CC BY-SA 3.0",
    needs={"dev": task_languages("mlqa"), "test": task_languages("mlqa")}, read=read_squad,
    sizes={
        "dev": {"en": 1148, "de": 512, "es": 500, "ar": 517, "zh": 504, "vi": 511, "hi": 507},
        "test": {"en": 11_590, "de": 4517, "es": 5253, "ar": 5335, "zh": 5137, "vi": 5495,
                 "hi": 4918},
    },
    archives=r"MLQA_V1\.zip|mlqa\.tar\.\w+",
    advice="XTREME's script blanks the test answers; the home has them",
    layouts=(
        Layout("XTREME and home", "MLQA_V1/{dev,test}/SPLIT-context-XX-question-XX.json",
               rf"{_START}{_SPLIT}-context-{_XX}-question-(?P=language)\.json$", levels=1),
    ),
)  # fmt: skip

TYDIQA = DataSet(
    name="TyDiQA-GoldP", purpose="question answering",
    home="https://github.com/google-research-datasets/tydiqa", license="Apache-2.0",
    needs={"train": ("en",), "dev": task_languages("tydiqa")}, read=_read_tydiqa,
    sizes={
        "train": {"en": 3_696},
        "dev": {"ar": 921, "bn": 113, "en": 440, "fi": 782, "id": 565, "ko": 276, "ru": 812,
                "sw": 499, "te": 669},
    },
    archives=r"tydiqa-goldp-v1\.[01]-dev\.tgz|tydiqa\.tar\.\w+",
    advice="XTREME's script blanks the dev answers; the home has them",
    layouts=(
        Layout("XTREME", "tydiqa-goldp-v1.1-{train,dev}/tydiqa.goldp.XX.{train,dev}.json",
               _START + rf"tydiqa\.(?:goldp\.)?{_XX}\.{_SPLIT}\.json$", levels=1),
        Layout("home",
               "tydiqa-goldp-v1.1-train.json, tydiqa-goldp-v1.1-dev/tydiqa-goldp-dev-LANGUAGE.json",
               _START + r"tydiqa-goldp-dev-(?P<language>[a-z]{4,})\.json$", "dev"),
        Layout("home", "", _START + rf"tydiqa-goldp-v1\.[01]-{_SPLIT}\.json$", language=MANY),
    ),
)  # fmt: skip

SQUAD = DataSet(
    name="SQuAD 1.1", purpose="English training of XQuAD and MLQA",
    home="https://rajpurkar.github.io/SQuAD-explorer", license="CC BY-SA 4.0",
    needs={"train": ("en",), "dev": ("en",)}, read=read_squad,
    sizes={"train": {"en": 87_599}, "dev": {"en": 10_570}},
    traps={
        _START + r"(?:train|dev)-v2\.0\.json$": "SQuAD 2.0 is not used: the paper trains on 1.1"
    },
    layouts=(
        Layout("XTREME and home", "{train,dev}-v1.1.json",
               rf"{_START}{_SPLIT}-v1\.1{_VARIANT}\.json$"),
    ),
)  # fmt: skip

XNLI = DataSet(
    name="XNLI", purpose="inference, trained on English MultiNLI",
    home="https://github.com/facebookresearch/XNLI, https://cims.nyu.edu/~sbowman/multinli",
    license="CC BY-NC 4.0; MultiNLI mixed",
    needs={"train": ("en",), "dev": task_languages("xnli"), "test": task_languages("xnli")},
    read=_pairs(NLI_LABELS, NLI_SYNONYMS),
    sizes={"train": {"en": 392_702}, "dev": {"": 2_490}, "test": {"": 5_010}},
    archives=r"XNLI-(?:MT-)?1\.0\.zip|multinli_1\.0\.zip|[mx]nli\.tar\.\w+",
    advice="XTREME's script blanks the test labels; the release XNLI-1.0 has them",
    layouts=(
        Layout("XTREME", "xnli/{train-en,dev-XX,test-XX}.tsv: premise, hypothesis, label",
               _tsv("xnli"), levels=1),
        Layout("MultiNLI beside it",
               "mnli/*train*.tsv: a header with premise, hypothesis and label",
               _START + r"mnli/[^/]*train[^/]*\.tsv$", "train", levels=1, is_fallback=True),
        Layout("XNLI 1.0 and XNLI-MT 1.0",
               "XNLI-1.0/xnli.{dev,test}.tsv, XNLI-MT-1.0/multinli/multinli.train.en.tsv",
               _START + rf"xnli\.{_SPLIT}\.tsv$", language=MANY),
        Layout("XNLI 1.0 and XNLI-MT 1.0", "", _START + rf"multinli\.{_SPLIT}\.{_XX}\.tsv$"),
        Layout("MultiNLI 1.0", "multinli_1.0/multinli_1.0_train.txt",
               _START + r"multinli_1\.0_train\.txt$", "train", is_fallback=True),
    ),
)  # fmt: skip

PAWSX = DataSet(
    name="PAWS-X", purpose="paraphrases",
    home="https://github.com/google-research-datasets/paws/tree/master/pawsx",
    license="free, with attribution",
    needs={"train": ("en",), "dev": task_languages("pawsx"), "test": task_languages("pawsx")},
    read=_pairs(PARAPHRASE_LABELS),
    sizes={"train": {"en": 49_401}, "dev": {"": 2_000}, "test": {"": 2_000}},
    archives=r"x-final\.tar\.gz|pawsx\.tar\.\w+",
    advice="XTREME's script blanks the test labels; the home has them",
    layouts=(
        Layout("XTREME", "pawsx/{train-en,dev-XX,test-XX}.tsv: two sentences and 0 or 1",
               _tsv("paws-?x"), levels=1),
        Layout("home", "x-final/XX/{train,dev_2k,test_2k}.tsv: id, two sentences, label",
               rf"(?:x-final|paws-?x)/{_XX}/{_SPLIT}(?:_2k|(?<=train))\.tsv$", levels=1),
    ),
)  # fmt: skip

_REVIEWS = [f"{domain} {split}" for split in ("train", "test") for domain in DOMAINS]

AMAZON = DataSet(
    name="Amazon reviews", purpose="sentiment (Webis-CLS-10)",
    home="https://webis.de/data/webis-cls-10.html", license="research, on request",
    needs=dict.fromkeys(_REVIEWS, task_languages("cls")), read=lambda file: read_reviews(file.path),
    sizes={split: {"": 2_000} for split in _REVIEWS},
    archives=r"cls-acl10-unprocessed\.tar\.gz|cls\.tar\.\w+",
    traps={
        r"/(?:train|test)\.processed$": "cls-acl10-processed has counts of words, not the texts; "
        "the unprocessed release is needed"
    },
    layouts=(
        Layout("home", "cls-acl10-unprocessed/{en,de,fr,jp}/{books,dvd,music}/{train,test}.review",
               _START + r"(?P<language>en|de|fr|jp|ja)/(?P<domain>books|dvd|music)/"
               r"(?P<split>train|test)\.review$", levels=2),
    ),
)  # fmt: skip

TATOEBA = DataSet(
    name="Tatoeba", purpose="sentence retrieval",
    home="https://github.com/facebookresearch/LASER (data/tatoeba/v1)", license="CC BY 2.0 FR",
    needs={"test": task_languages("tatoeba")}, read=_read_translations,
    sizes={"test": {"": 1_000, "jv": 205, "te": 234, "ta": 307, "sw": 390, "th": 548, "kk": 575,
                    "ml": 687, "ka": 746}},
    archives=r"tatoeba\.tar\.\w+",
    advice="XTREME's script sorts the English lines to hide the pairs; LASER's files have them",
    layouts=(
        Layout("LASER", "tatoeba/tatoeba.XXX-eng.{XXX,eng}, one sentence per line",
               r"(?P<folder>[^/]+)/tatoeba\.(?P<language>[a-z]{3})-eng\.(?P=language)$", "test",
               usage=_DATA, levels=1, folder="tatoeba"),
        Layout("XTREME", "tatoeba/XX-en.{XX,en}; the English lines are sorted",
               r"(?:^|/)tatoeba/(?P<language>[a-z]{2,3})-(?:en|eng)\.(?P=language)$", "test",
               fix="use LASER's files, which have the names that metaxlm reads and are in order"),
    ),
)  # fmt: skip

WORDALIGN = DataSet(
    name="Word alignment", purpose="gold alignments",
    home="https://github.com/CZWin32768/XLM-Align (word_aligner/alignment-test-sets.tar.gz)",
    license="research, per set", needs={"test": task_languages("wordalign")},
    read=lambda file: Examples(list(read_alignment_folder(file.path.parent).pairs)),
    sizes={"test": {"de": 508, "fr": 447, "hi": 90, "ro": 199}},
    archives=r"alignment-test-sets\.tar\.gz|wordalign\.tar\.\w+",
    layouts=(
        Layout("XLM-Align", "wordalign/{de-en,en-fr,en-hi,ro-en}/{test.XX,test.en,alignv2.txt}",
               r"(?P<folder>[^/]+)/(?=en-|[a-z]{2}-en/)(?:en-)?"
               r"(?P<language>(?!en[-/])[a-z]{2})(?:-en)?/test\.(?P=language)$", "test",
               usage=_DATA, levels=2, folder="wordalign"),
    ),
)  # fmt: skip

_MUSE_FOLDER = r"(?:^|/)(?:dictionaries|muse|MUSE|dicts?)/"
_DICTIONARIES = "matching.dictionaries: {}"

MUSE = DataSet(
    name="MUSE", purpose="dictionaries for +Dict", home="https://github.com/facebookresearch/MUSE",
    license="CC BY-NC 4.0",
    needs={"en-XX|XX-en": tuple(code for code in LANGUAGES if LANGUAGES[code].has_dictionary)},
    read=_read_dictionary, archives=r"muse\.tar\.\w+|dictionaries\.(?:zip|tar\.\w+)",
    traps={
        _MUSE_FOLDER + r"[a-z]{2}-[a-z]{2}\.(?:0-5000|5000-6500)\.txt$":
        "en-XX.0-5000.txt and en-XX.5000-6500.txt are not used: they are parts of en-XX.txt"
    },
    layouts=(
        Layout("MUSE", "dictionaries/{en-XX,XX-en}.txt: a word and its translation per line",
               _MUSE_FOLDER + rf"en-{_XX}\.txt$", "en-XX", usage=_DICTIONARIES, unit="entries"),
        Layout("MUSE", "", _MUSE_FOLDER + rf"(?!en-){_XX}-en\.txt$", "XX-en", usage=_DICTIONARIES,
               unit="entries"),
    ),
)  # fmt: skip

WIKIPEDIA = DataSet(
    name="Wikipedia", purpose="pretraining text",
    home="https://dumps.wikimedia.org, https://huggingface.co/datasets/wikimedia/wikipedia",
    license="CC BY-SA 4.0",
    needs={"dump|dump (multistream)|parquet":
           tuple(code for code, known in LANGUAGES.items() if known.paper_gb is not None)},
    read=_read_dump,
    layouts=(
        Layout("dumps", "XXwiki-DATE-pages-articles-multistream.xml.bz2",
               _START + r"(?P<language>[a-z][a-z_]*?)wiki-(?:\d{8}|latest)-pages-articles"
               r"(?:-(?P<variant>multistream))?\d*\.xml(?:-p\d+p\d+)?(?:\.bz2|\.gz)?$", "dump",
               usage="corpus: {{source: dump, path: {}}}", unit="bytes"),
        Layout("Hugging Face parquet", "DATE.XX/*.parquet",
               _START + r"\d{8}\.(?P<language>[a-z][a-z-]*)/[^/]+\.parquet$", "parquet",
               usage="corpus: {{source: parquet, path: {}}}", levels=1, unit="articles",
               read=_read_parquet),
    ),
)  # fmt: skip

DATA_SETS = (UDPOS, PANX, XQUAD, MLQA, TYDIQA, SQUAD, XNLI, PAWSX, AMAZON,
             TATOEBA, WORDALIGN, MUSE, WIKIPEDIA)  # fmt: skip
