#!/usr/bin/env python3
"""Token ids of SmolLM2's tokenizer for fixture strings, by Hugging Face's tokenizers library.

usage: make_smollm2_fixture.py MODEL.gguf OUT.json   (needs the Python packages gguf and tokenizers)
The tokenizer is put together from the GGUF file's vocabulary and merges and the split rule that the model's own
tokenizer.json names: single digits, then the byte-level rule of GPT-2.
"""
import json
import sys

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

TEXTS = [
    "", " ", "Hello, we can use", "The capital of France is", "Hello world! 123", "Café déjà vu.",
    "  multiple   spaces", "\n", "\n\n\n", "\t tab", "What is the capital of France?", "I'll don't WE'VE it's",
    "3.14159 and 2,718", "naïve façade — “quotes” … ellipsis", "東京 に 行きます。", "Привет, мир!",
    "\U0001f642\U0001f44d\U0001f3fd", "e\u0301 combining", "नमस्ते दुनिया", "def f(x):\n\treturn x**2\n",
    "a" * 300, "user@example.org https://example.org/a?b=c&d=1", "MiXeD CaSe WORDS", "x=1;y=2;\r\nz=3",
    "\u00a0nbsp\u2003em space", "1234567890", "ab12cd34", "½ ² ③", "<|im_start|>user\nhi<|im_end|>\n",
    "The quick brown fox jumps over the lazy dog.", "#include <vector>\nint main() { return 0; }",
    "\u0000\u0001\u007f", "ﬁ ligature", "العربية", "עברית", "한국어 문장입니다", "snake_case and kebab-case",
    "$100.00 + 20% = €120", "...", "---", "trailing space ", " leading space",
]


def main():
    fields = GGUFReader(sys.argv[1]).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(merge.split(" ", 1)) for merge in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token, kind in zip(tokens, kinds) if kind == 3])
    cases = [{"text": text, "ids": tokenizer.encode(text).ids} for text in TEXTS]
    with open(sys.argv[2], "w", encoding="ascii") as out:
        json.dump(cases, out, indent=0)
        out.write("\n")


if __name__ == "__main__":
    main()
