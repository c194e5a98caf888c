#!/usr/bin/env python3
"""Writes splits.json: how Hugging Face's `tokenizers` (pip install tokenizers==0.23.3) cuts texts by each split rule.

The texts are chosen to be nasty: combining marks, scripts without case, digits of other scripts, contractions, line
ends, unusual spaces. Characters newer than Unicode 14 are left out: the regular expression libraries differ on them.
"""

import json
import pathlib

from tokenizers import Regex
from tokenizers.pre_tokenizers import Digits, Sequence, Split, ByteLevel

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")


def isolated(pattern):
    return Split(Regex(pattern), "isolated")


RULES = {
    "gpt-2": isolated(GPT2),
    "smollm": Sequence([Digits(individual_digits=True), isolated(GPT2)]),
    "qwen2": isolated(QWEN2),
    "qwen35": isolated(QWEN35),
    "llama-bpe": isolated(LLAMA3),
}
# Steps of tokenizer.json that no name above uses, with what tokenizers makes of them.
STEPS = {
    "digits contiguous": Digits(individual_digits=False),
    "removed": Split(Regex(r"\s+"), "removed"),
    "previous": Split(Regex(r"[aeiou]"), "merged_with_previous"),
    "next": Split(Regex(r"[aeiou]"), "merged_with_next"),
    "contiguous": Split(Regex(r"[aeiou]"), "contiguous"),
    "inverted": Split(Regex(r"\p{L}+"), "removed", invert=True),
    "literal": Split("ab", "isolated"),
    "word": Split(Regex(r"\w+|[^\w\s]+"), "isolated"),
    "lookahead": Split(Regex(r"\p{Lu}?\p{Ll}+(?=\p{Lu}|\b|\s|$)".replace(r"|\b", "")), "isolated"),
}

TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "Hello, world!",
    "Hello  world",
    "   leading and trailing   ",
    "I'll don't WE'VE he'S it'd THEY'RE i'm 'tis '",
    "I’ll don’t",
    "'s't're've'm'll'd'S'T'RE'x",
    "ſ'ſ I'ſ",
    "12345 3.14159 1,000,000",
    "a1b22c333d4444",
    "\u0661\u0662\u0663 ٤٥٦ १२३ ①②③ ½¼ Ⅷ ²³",
    "def f(x):\n\treturn x**2\n\n\n",
    "if (a&&b) { c[0]->d = \"e\\n\"; } // f",
    "line\r\nline\r\rline\n\nline",
    " \n \n  x",
    "x \n",
    "x\n ",
    "x   \n\n   y",
    "\n\n\n   z",
    "...\n...\r\n!!!\n\n",
    " !?\n",
    "naïve café résumé",
    "nai\u0308ve cafe\u0301 re\u0301sume\u0301",
    "e\u0301\u0301 \u0301x \u0301",
    "नमस्ते दुनिया",
    "বাংলা ভাষা",
    "தமிழ் மொழி",
    "ภาษาไทย ก็ดี",
    "မြန်မာ",
    "ខ្មែរ",
    "עִבְרִית עברית",
    "العَرَبِيَّة لغة",
    "東京は日本の首都です。人口は約1400万人。",
    "你好，世界！２０２５年",
    "안녕하세요 세계",
    "한국어",
    "🙂 🙂🙂 👩‍👩‍👧‍👦 🇫🇷 ☺️",
    "a🙂b",
    "\u00a0nbsp\u00a0\u00a0two",
    "\u2003em\u2009thin\u200bzero\u3000ideographic",
    "\u180evowel separator\u180e \u180e",
    "\u2028line\u2029paragraph\u0085next",
    "\ufeffbom",
    "\u0000\u0001\u001f\u007f",
    "\u001c\u001d x",
    "İstanbul ıI ßẞ ǅ ﬁ",
    "Ελληνικά ΣΑΣ ς",
    "Русский язык",
    "𝒳𝒴 𝟘𝟙 𐍈",
    "a\u0300\u0301b \u0300",
    "--- === ### $$$ %%%",
    "http://example.com/a?b=c&d=e#f",
    "user@host.org +1 (555) 010-9999",
    "snake_case camelCase PascalCase kebab-case",
    "_under_ __dunder__",
    "٣'s ٣'S",
    "<|im_start|>user\nhi<|im_end|>",
    "ab abab aab",
    "mixed 漢字kanji123かな",
    "\u0e33\u0e33 \u0e4d",
    "\U000e0100 tag \U000e0041",
    "\u1680ogham\u202fnarrow\u205fmath",
]


def main():
    result = {"texts": TEXTS, "rules": {}, "steps": {}}
    for name, rule in RULES.items():
        result["rules"][name] = [[piece for piece, _ in rule.pre_tokenize_str(text)] for text in TEXTS]
    for name, step in STEPS.items():
        result["steps"][name] = {
            "step": json.loads(step.__getstate__()),
            "splits": [[piece for piece, _ in step.pre_tokenize_str(text)] for text in TEXTS],
        }
    path = pathlib.Path(__file__).parent / "splits.json"
    path.write_text(json.dumps(result, ensure_ascii=True, indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
