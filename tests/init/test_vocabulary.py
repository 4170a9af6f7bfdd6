from __future__ import annotations

import pytest
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE, Unigram, WordLevel, WordPiece
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from metaxlm.errors import MetaXLMError
from metaxlm.init.vocabulary import read_vocabulary
from metaxlm.vocab.tokens import Form, Kind, detect_kind, surface_form


@pytest.mark.parametrize(
    ("kind", "token", "form"),
    [
        (Kind.SENTENCEPIECE, "▁Haus", ("Haus", True)),
        (Kind.SENTENCEPIECE, "haus", ("haus", False)),
        (Kind.SENTENCEPIECE, "▁", ("", True)),
        (Kind.SENTENCEPIECE, "▁New▁York", ("New York", True)),
        (Kind.SENTENCEPIECE, "<0x0A>", None),
        (Kind.BYTE_BPE, "ĠHaus", ("Haus", True)),
        (Kind.BYTE_BPE, "haus", ("haus", False)),
        (Kind.BYTE_BPE, "Ġ", ("", True)),
        (Kind.BYTE_BPE, "çļĦ", ("的", False)),
        (Kind.BYTE_BPE, "ĠÃ©tÃ©", ("été", True)),
        (Kind.BYTE_BPE, "Ċ", ("\n", False)),
        (Kind.BYTE_BPE, "Ã", None),
        (Kind.BYTE_BPE, "ĠÐ", None),
        (Kind.BYTE_BPE, "的", None),
        (Kind.WORDPIECE, "haus", ("haus", True)),
        (Kind.WORDPIECE, "##haus", ("haus", False)),
        (Kind.WORDPIECE, "##", ("##", True)),
        (Kind.WORDPIECE, "###", ("#", False)),
        (Kind.SENTENCEPIECE, "", None),
    ],
)
def test_surface_form(kind: Kind, token: str, form: Form | None) -> None:
    assert surface_form(token, kind) == form


def test_byte_letters_are_those_of_the_tokenizers_library() -> None:
    text = "".join(map(chr, range(0x250))) + "的 кошка 🎉"
    pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    [(letters, _)] = pre_tokenizer.pre_tokenize_str(text)
    assert surface_form(letters, Kind.BYTE_BPE) == (text, False)
    assert surface_form("Ġ" + letters, Kind.BYTE_BPE) == (text, True)


def _wrap(tokenizer: Tokenizer) -> PreTrainedTokenizerBase:
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def test_kinds_of_unusual_tokenizers() -> None:
    nested = Tokenizer(BPE())
    steps = [pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()]
    nested.pre_tokenizer = pre_tokenizers.Sequence(steps)
    assert detect_kind(_wrap(nested)) is Kind.BYTE_BPE
    # Here the normalizer writes the mark.
    marked = Tokenizer(BPE())
    marked.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    marked.decoder = decoders.Replace("▁", " ")
    assert detect_kind(_wrap(marked)) is Kind.SENTENCEPIECE


def test_unknown_kinds_are_rejected() -> None:
    words = Tokenizer(WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    with pytest.raises(MetaXLMError, match=r"model WordLevel, parts Whitespace\); known are Sent"):
        detect_kind(_wrap(words))
    other = Tokenizer(WordPiece({"[UNK]": 0}, unk_token="[UNK]", continuing_subword_prefix="@@"))
    with pytest.raises(MetaXLMError, match="WordPiece with the prefix '@@'"):
        detect_kind(_wrap(other))


def test_special_tokens_have_roles_and_no_form(
    byte_bpe: PreTrainedTokenizerBase, wordpiece: PreTrainedTokenizerBase
) -> None:
    roberta, bert = read_vocabulary(byte_bpe), read_vocabulary(wordpiece)
    last = len(byte_bpe) - 1
    assert roberta.roles == {"bos": 0, "eos": 2, "pad": 1, "unk": 3, "mask": last}
    assert bert.roles == {"bos": 2, "eos": 3, "pad": 0, "unk": 1, "mask": 4}
    for vocabulary in (roberta, bert):
        assert all(vocabulary.forms[row] is None for row in vocabulary.specials)
        assert vocabulary.specials == set(vocabulary.roles.values())


def test_ids_without_a_token_have_no_form() -> None:
    tokenizer = Tokenizer(Unigram([("<unk>", 0.0), ("▁a", -1.0)], 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<mask>"])
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token="<mask>")
    gapped = dict(wrapped.get_vocab(), **{"<later>": 5})
    wrapped.get_vocab = lambda: gapped
    vocabulary = read_vocabulary(wrapped)
    assert vocabulary.tokens == ("<unk>", "▁a", "<mask>", "", "", "<later>")
    assert vocabulary.forms[3] is vocabulary.forms[4] is None


def test_tokenizer_without_a_mask_is_rejected() -> None:
    tokenizer = Tokenizer(BPE({"a": 0}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel()
    with pytest.raises(MetaXLMError, match="has no mask token"):
        read_vocabulary(_wrap(tokenizer))


def _cut(tokenizer: PreTrainedTokenizerBase, *words: str, starts: bool = True) -> list[list[str]]:
    vocabulary = read_vocabulary(tokenizer)
    return [[vocabulary.tokens[row] for row in rows] for rows in vocabulary.cut_all(words, starts)]


def test_words_and_continuations_are_tokenized_as_in_a_sentence(
    byte_bpe: PreTrainedTokenizerBase,
    wordpiece: PreTrainedTokenizerBase,
    pieces: PreTrainedTokenizerBase,
) -> None:
    assert _cut(byte_bpe, "cat", "red dog") == [["Ġcat"], ["Ġred", "Ġdog"]]
    # RoBERTa's own tokenizer puts no space before the first word.
    backend = Tokenizer.from_str(byte_bpe.backend_tokenizer.to_str())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    # Padding and truncation of the tokenizer file are ignored.
    backend.enable_padding(length=8)
    backend.enable_truncation(1)
    roberta = PreTrainedTokenizerFast(tokenizer_object=backend, mask_token="<mask>")
    assert roberta.tokenize("cat") != ["Ġcat"]
    assert _cut(roberta, "cat", "red dog") == [["Ġcat"], ["Ġred", "Ġdog"]]
    assert _cut(pieces, "Katze", "дом дом") == [["▁Katze"], ["▁дом", "▁дом"]]
    # The tokenizer lower-cases; an unknown character gives an empty result.
    assert _cut(wordpiece, "London", "猫") == [["london"], []]
    # A word start without the same text inside words is kept; a bare word start is removed.
    assert _cut(byte_bpe, "cat", starts=False) == [["Ġcat"]]
    assert _cut(wordpiece, "ddog", starts=False)[0][0] == "##d"
    assert _cut(pieces, "ш", starts=False) == [["ш"]]
