#!/usr/bin/env python3
"""lm-eval's local-completions against the server: the log-likelihoods of a small task, and its score, are those that
`baton perplexity` computes on `ref`.

usage: lm_eval_test.py PROGRAM TOKENIZER-FOLDER      with a Python that has lm-eval[api] and transformers (pip install)

TOKENIZER-FOLDER: Hugging Face's tokenizer of the model (tokenizer.json, tokenizer_config.json). Exit status 77: lm-eval is
not there. Takes about a minute.
"""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "dictionary-3m.Q8_0.gguf"
# Nats of a choice. On ref the same floats are summed in another order; cpu multiplies integers.
TOLERANCES = {"ref": 1e-3, "cpu": 0.2}

# A word and what it may be.
ITEMS = [("fern", "a plant", "a metal", "a kind of ship"), ("iron", "a metal", "a bird", "a plant with leaves"),
         ("sparrow", "a small bird", "a large tree", "a hard stone"), ("oak", "a tree", "a fish", "a tool for cutting"),
         ("king", "a male ruler", "a wet place", "a colour"), ("river", "a stream of water", "a piece of cloth", "a book"),
         ("bread", "food made of flour", "a kind of glass", "a soldier"), ("wool", "hair of sheep", "a coin", "a storm"),
         ("salt", "a white substance", "a long rope", "a young dog"), ("bell", "a hollow metal object", "a meadow", "a law")]

TASK = """task: baton_words
dataset_path: json
dataset_kwargs:
  data_files:
    test: DATA
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
target_delimiter: ""
metric_list:
  - metric: acc
"""


def evaluated(folder, url, tokenizer):
    """lm-eval's own log-likelihoods of each item's choices, and its score."""
    data = folder / "words.jsonl"
    with data.open("w", encoding="utf-8") as file:
        for word, *choices in ITEMS:
            file.write(json.dumps({"question": f"What is {word}?", "choices": [" " + c for c in choices], "answer": 0}) + "\n")
    (folder / "words.yaml").write_text(TASK.replace("DATA", str(data)), encoding="utf-8")
    out = folder / "out"
    subprocess.run(
        [sys.executable, "-m", "lm_eval", "--model", "local-completions", "--model_args",
         f"base_url={url}/v1/completions,model=m,tokenizer={tokenizer},num_concurrent=1,max_retries=1,max_length=512",
         "--batch_size", "4", "--tasks", "baton_words", "--include_path", str(folder), "--output_path", str(out), "--log_samples"],
        check=True, env=dict(os.environ, HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1"), stdout=subprocess.DEVNULL)
    samples, = out.rglob("samples_*.jsonl")
    results, = out.rglob("results_*.json")
    rows = sorted((json.loads(line) for line in samples.read_text().splitlines()), key=lambda row: row["doc_id"])
    score = json.loads(results.read_text())["results"]["baton_words"]["acc,none"]
    return [[float(r[0][0] if isinstance(r[0], list) else r[0]) for r in row["resps"]] for row in rows], score


def direct(program, folder, encode, text):
    """The sum of the log-likelihoods of all tokens of a text but the first, on ref."""
    source, out = folder / "text.txt", folder / "tokens.jsonl"
    source.write_text(text, encoding="utf-8")
    subprocess.run([program, "perplexity", "-m", MODEL, "-f", source, "--unit", "ref", "-w", str(len(encode(text))),
                    "--count-from", "1", "--per-token", out, "--json"], check=True, capture_output=True)
    return -sum(json.loads(line)["nll"] for line in out.read_text().splitlines())


def served(program, unit, tokenizer):
    """What lm-eval gets from a server whose model runs on this unit."""
    server = subprocess.Popen([program, "serve", "-m", MODEL, "-a", "m", "--port", "0", "--prefill", unit, "--decode", unit],
                              stderr=subprocess.PIPE, text=True)
    try:
        for line in server.stderr:
            if found := re.search(r"listening on (http://\S+)", line):
                break
        with tempfile.TemporaryDirectory() as name:
            return evaluated(pathlib.Path(name), found[1], tokenizer)
    finally:
        server.terminate()
        server.wait()
        server.stderr.close()


def main():
    program, tokenizer = sys.argv[1], sys.argv[2]
    if importlib.util.find_spec("lm_eval") is None or importlib.util.find_spec("transformers") is None:
        print("lm-eval[api] or transformers is not there: skipped")
        return 77
    from transformers import AutoTokenizer
    encode = AutoTokenizer.from_pretrained(tokenizer).encode
    ours = []
    with tempfile.TemporaryDirectory() as name:
        for word, *choices in ITEMS:
            question = f"What is {word}?"
            before = direct(program, pathlib.Path(name), encode, question)
            ours.append([direct(program, pathlib.Path(name), encode, question + " " + c) - before for c in choices])
    right = sum(values.index(max(values)) == 0 for values in ours) / len(ours)
    status, made = 0, {"items": len(ITEMS), "direct": right}
    for unit, tolerance in TOLERANCES.items():
        theirs, score = served(program, unit, tokenizer)
        worst = max(abs(a - b) for mine, other in zip(ours, theirs) for a, b in zip(mine, other))
        made[unit] = {"score": score, "worst_difference": worst}
        if worst > tolerance or abs(score - right) > 1e-9:
            status = 1
    print(json.dumps(made))
    return status


if __name__ == "__main__":
    sys.exit(main())
