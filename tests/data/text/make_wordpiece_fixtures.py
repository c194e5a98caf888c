#!/usr/bin/env python3
"""Writes wordpiece.json: a small WordPiece tokenizer.json, variants of it, and the ids that Hugging Face's `tokenizers`
(0.23.3) gives for nasty texts by each of them."""

import copy
import json
import pathlib

from tokenizers import Tokenizer

FOLDER = pathlib.Path(__file__).parent
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [chr(c) for c in range(ord("a"), ord("z") + 1)]
WORDS = ["the", "un", "##aff", "##able", "##ff", "hello", "world", "cafe", "caf\u00e9", "##e\u0301", "##ing", "embed",
         "##ding", "##dings", "straight", "stra\u00dfe", "istanbul", "\u03c3\u03b1\u03c3", "\u6771", "\u4eac", "\ud55c",
         "\u1112\u1161\u11ab", "!", "'", ",", ".", "-", "_", "$", "+", "[", "]", "\u2014", "\u00bf", "\u3001", "\u20ac",
         "##1", "##2", "12", "1", "2", "3", "Hello", "A", "##B", "cls", "mask", "##s", "##\u0301", "\u0131", "i\u0307"]
TOKENS = SPECIALS + LETTERS + ["##" + letter for letter in LETTERS] + WORDS
VOCAB = {token: i for i, token in enumerate(TOKENS)}


def added(token, **flags):
    entry = {"id": VOCAB[token], "content": token, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
    return {**entry, **flags}


NORMALIZER = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
BASE = {
    "version": "1.0", "truncation": None, "padding": None,
    "added_tokens": [added(token) for token in SPECIALS],
    "normalizer": NORMALIZER,
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                   {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
        "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
                 {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
        "special_tokens": {name: {"id": name, "ids": [VOCAB[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")},
    },
    "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
    "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
              "max_input_chars_per_word": 100, "vocab": VOCAB},
}

VARIANTS = {
    "as it is": {},
    "cased": {"normalizer": {**NORMALIZER, "lowercase": False}},
    "cased without accents": {"normalizer": {**NORMALIZER, "lowercase": False, "strip_accents": True}},
    "lower with accents": {"normalizer": {**NORMALIZER, "strip_accents": False}},
    "unclean": {"normalizer": {**NORMALIZER, "clean_text": False}},
    "ideographs together": {"normalizer": {**NORMALIZER, "handle_chinese_chars": False}},
    "no normalizer": {"normalizer": None},
    "short words": {"model": {"max_input_chars_per_word": 7}},
    "another prefix": {"model": {"continuing_subword_prefix": "@"}},
    "bert processing": {"post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}},
    "mask takes space": {"added_tokens": [added(t, lstrip=t == "[MASK]") for t in SPECIALS]},
}

TEXTS = [
    "",
    " ",
    "hello",
    "Hello, World!",
    "unaffable unaffables unaffing",
    "the embeddings' embedding -- unembed_ding",
    "[CLS] hello [SEP] [MASK]  world[MASK]",
    "caf\u00e9 cafe\u0301 CAF\u00c9 stra\u00dfe \u0130stanbul I\u0307 \u0131 \u03a3\u0391\u03a3",
    "\u6771\u4eac\u3001\u6771a\u4eac b\u6771 \ud55c \u1112\u1161\u11ab",
    "$1+2=3 12121 \u20ac3 \u00bfhello\u2014world",
    "tab\there\nnew\r\nline\u00a0nbsp\u2003em\u3000wide\u200bzero\u00adsoft\ufeffbom",
    "nul\x00in\ufffdside \x07bell\x7f \u0085next \ue000private",
    "a" * 100 + " " + "a" * 101 + " abcdefg abcdefgh",
    "\U0001f600 smile \U00020000\U0002a700\U0002b830",
    "a\u0301\u0327 a\u0327\u0301 \u0344 \u1e9b\u0323",
    "AB aB Ab ab HELLO",
]


def variant(change):
    made = copy.deepcopy(BASE)
    for key, value in change.items():
        if key == "model":
            made["model"].update(value)
        else:
            made[key] = value
    return made


def main():
    cases = []
    for name, change in VARIANTS.items():
        tokenizer = Tokenizer.from_str(json.dumps(variant(change)))
        ids = [tokenizer.encode(text).ids for text in TEXTS]
        cases.append({"name": name, "change": change, "ids": ids})
    data = {"base": BASE, "texts": TEXTS, "cases": cases}
    (FOLDER / "wordpiece.json").write_text(json.dumps(data, ensure_ascii=True, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
