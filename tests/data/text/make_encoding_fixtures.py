#!/usr/bin/env python3
"""Writes encodings.json: ids from Hugging Face's `tokenizers` (0.23.3) for variants of dictionary_tokenizer.json.

A variant replaces some keys of the file: added tokens with their flags, NFC, prefix spaces, whole-word emission, BOS.
"""

import copy
import json
import pathlib

from tokenizers import Tokenizer

FOLDER = pathlib.Path(__file__).parent
BASE = json.loads((FOLDER / "dictionary_tokenizer.json").read_text(encoding="utf-8"))


def added(identifier, content, **flags):
    token = {"id": identifier, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": False}
    return {**token, **flags}


SPECIALS = BASE["added_tokens"]
QWEN = BASE["pre_tokenizer"]
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
WITH_REGEX = {**BYTES, "use_regex": True}
BOS = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<|endoftext|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<|endoftext|>": {"id": "<|endoftext|>", "ids": [8189], "tokens": ["<|endoftext|>"]}},
}

VARIANTS = {
    "as it is": {},
    "nfc": {"normalizer": {"type": "NFC"}},
    "gpt-2 by ByteLevel": {"pre_tokenizer": WITH_REGEX},
    "prefix space": {"pre_tokenizer": {**WITH_REGEX, "add_prefix_space": True}},
    "smollm": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, WITH_REGEX]}},
    "ignore merges": {"model": {"ignore_merges": True}},
    "bos": {"post_processor": {"type": "Sequence", "processors": [{**WITH_REGEX, "type": "ByteLevel"}, BOS]}},
    "user-defined": {"added_tokens": SPECIALS + [added(8192, "<think>"), added(8193, "</think>"), added(8194, "hi hi")]},
    "overlapping": {"added_tokens": SPECIALS + [added(8192, "<|im"), added(8193, "<|im_start|>user"), added(8194, "aa"), added(8195, "aaa")]},
    "strips": {"added_tokens": SPECIALS + [added(8192, "<l>", lstrip=True), added(8193, "<r>", rstrip=True), added(8194, "<b>", lstrip=True, rstrip=True)]},
    "single word": {"added_tokens": SPECIALS + [added(8192, "wyrd", single_word=True), added(8193, "\u00e9t\u00e9", single_word=True)]},
    "normalized": {"normalizer": {"type": "NFC"}, "added_tokens": SPECIALS + [added(8192, "caf\u00e9", normalized=True), added(8193, "e\u0301t", normalized=False)]},
}

TEXTS = [
    "",
    " ",
    "Hello, world! The quick brown fox's 12345 jumps.",
    "  two  spaces \n\n and lines\r\n",
    "<|im_start|>user\nhi hi<|im_end|><|im_start|>assistant\n<think>\n\n</think>\n\n",
    "<|im_start|>user <|im_start|>users <|im|im_end|>",
    "aaaaa aa aaaa a",
    "x  <l>  y  <r>  z  <b>  <l> <r>end<l><r><b>",
    "wyrd wyrds swyrd wyrd. (wyrd) wyrd_wyrd wyrd1 \u00e9wyrd wyrd",
    "\u00e9t\u00e9 e\u0301t\u00e9 cafe\u0301 caf\u00e9 CAF\u00c9 cafe\u0301s",
    "\u6771\u4eac \ud55c\uad6d \u1112\u1161\u11ab \u0928\u092e\u0938\u094d\u0924\u0947",
    "<|endoftext|><|endoftext|> <|endoftext|",
    "\u212b \u2126 \u1e9b\u0323 q\u0307\u0323",
    "a definition of a word that is used to describe something else entirely",
]


def main():
    variants = []
    for name, patch in VARIANTS.items():
        made = copy.deepcopy(BASE)
        for key, value in patch.items():
            if key == "model":
                made["model"].update(value)
            else:
                made[key] = value
        tokenizer = Tokenizer.from_str(json.dumps(made))
        ids = [tokenizer.encode(text, add_special_tokens=name == "bos").ids for text in TEXTS]
        variants.append({"name": name, "patch": patch, "ids": ids})
    data = {"texts": TEXTS, "variants": variants}
    (FOLDER / "encodings.json").write_text(json.dumps(data, ensure_ascii=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
