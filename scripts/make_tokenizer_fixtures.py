#!/usr/bin/env python3
"""Writes tests/data/text/pieces.json and the small SentencePiece models beside it: what `sentencepiece` (0.2.3) and
Hugging Face's `tokenizers` (0.23.3) make of nasty texts. Both are needed: pip install sentencepiece tokenizers.

usage: make_tokenizer_fixtures.py TEXT_FILE     (a few hundred KB of plain text to train on)
"""

import base64
import json
import pathlib
import random
import sys

import sentencepiece
from tokenizers import Tokenizer

FOLDER = pathlib.Path(__file__).parent.parent / "tests" / "data" / "text"
MARK = "\u2581"
STRANGE = [
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", "\u6771\u4eac\u306f", "\uc548\ub155", "\u0928\u092e\u0938\u094d\u0924\u0947",
    "e\u0301 a\u0327\u0301 \u1112\u1161\u11ab", "\ufb01 \ufdfa \u00bd \u2167 \uff41\uff42\uff13", "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f44d\U0001f3fd",
    "\u0000\u0001\u001b[0m\u007f\u0085", "a\tb\nc\r\nd\u00a0e\u3000f", "   leading", "trailing   ", "  a   b    c", "don't we'LL", "123 1,000",
    "<s> </s> <unk> <sep> <0x41>", MARK + "under " + MARK * 2, "\u0130\u0131\u00df\u03c2", "\U0010ffff\ue000", "A" * 40, " " * 30, "ab" * 30,
]


def texts_of(corpus, count):
    draw = random.Random(5)
    texts = ["", " "] + STRANGE
    while len(texts) < count:
        at = draw.randrange(len(corpus) - 100)
        cut = corpus[at:at + draw.randrange(1, 80)]
        place = draw.randrange(len(cut))
        texts.append(cut if draw.random() < 0.4 else cut[:place] + draw.choice(STRANGE) + cut[place:])
    return texts


MODELS = {
    "bpe_bytes": {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity",
                  "remove_extra_whitespaces": False},
    "bpe_users": {"model_type": "bpe", "normalization_rule_name": "identity", "user_defined_symbols": ["<sep>", "ing", MARK * 2]},
    "unigram": {"model_type": "unigram", "normalization_rule_name": "nmt_nfkc"},
}
PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK},
                                               {"type": "Replace", "pattern": {"String": " "}, "content": MARK}]}
SPACES = [{"type": "Replace", "pattern": {"String": MARK}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def added(model):
    return [{"id": i, "content": model.id_to_piece(i), "single_word": False, "lstrip": False, "rstrip": False,
             "normalized": False, "special": True}
            for i in range(model.vocab_size()) if model.is_control(i) or model.is_unknown(i)]


def merges_of(model, vocab):
    merges = []
    for text, i in vocab.items():
        if len(text) < 2 or model.is_byte(i) or model.is_control(i) or model.is_unknown(i):
            continue
        cuts = [(text[:k], text[k:]) for k in range(1, len(text)) if text[:k] in vocab and text[k:] in vocab]
        merges += [(-model.get_score(i), vocab[a], vocab[b], [a, b]) for a, b in cuts]
    return [pair for _, _, _, pair in sorted(merges, key=lambda merge: merge[0])]


def files_of(models):
    bpe, unigram = models["bpe_bytes"], models["unigram"]
    vocab = {bpe.id_to_piece(i): i for i in range(bpe.vocab_size())}
    base = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None}
    llama = {**base, "added_tokens": added(bpe), "normalizer": PREPEND, "pre_tokenizer": None,
             "decoder": {"type": "Sequence", "decoders": SPACES + [STRIP]},
             "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True, "vocab": vocab,
                       "merges": merges_of(bpe, vocab)}}
    proto = (FOLDER / "unigram.model").read_bytes()
    charsmap = sentencepiece_charsmap(proto)
    words = [{"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always"}]
    xlmr = {**base, "added_tokens": added(unigram),
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": words},
            "decoder": {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always"},
            "model": {"type": "Unigram", "unk_id": unigram.unk_id(),
                      "vocab": [[unigram.id_to_piece(i), unigram.get_score(i)] for i in range(unigram.vocab_size())]}}
    first = {**llama, "normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}}
    gemma = {**llama, "normalizer": PREPEND["normalizers"][1], "decoder": {"type": "Sequence", "decoders": SPACES},
             "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}}
    return {"llama": llama, "first": first, "gemma": gemma, "xlmr": xlmr}


def fields(message):
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        else:
            size = varint() if tag & 7 == 2 else 4 if tag & 7 == 5 else 8
            yield tag >> 3, message[at:at + size]
            at += size


def sentencepiece_charsmap(proto):
    spec = next(value for number, value in fields(proto) if number == 3)
    return next(value for number, value in fields(spec) if number == 2)


def main():
    corpus = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")[:400_000]
    lines = [line for line in corpus.split("\n") if line.strip()]
    texts = texts_of(corpus, 220)
    data = {"texts": texts, "models": {}, "files": {}}
    models = {}
    for name, options in MODELS.items():
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_prefix=str(FOLDER / name),
                                                 vocab_size=600, minloglevel=2, num_threads=1, **options)
        (FOLDER / f"{name}.vocab").unlink()
        model = sentencepiece.SentencePieceProcessor(model_file=str(FOLDER / f"{name}.model"))
        models[name] = model
        data["models"][name] = [model.encode(text) for text in texts]
    for name, file in files_of(models).items():
        tokenizer = Tokenizer.from_str(json.dumps(file))
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        shown = dict(file)
        if name == "xlmr":  # its charsmap is in unigram.model
            shown["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": "unigram.model"}
        data["files"][name] = {"file": shown, "ids": ids,
                               "decoded": [tokenizer.decode(one, skip_special_tokens=True) for one in ids]}
    (FOLDER / "pieces.json").write_text(json.dumps(data, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
