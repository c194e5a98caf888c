#!/usr/bin/env python3
"""Answers drawn at random through the masks of schemas, checked by PyPI's jsonschema. Skipped where it is missing.

usage: schema_samples_test.py BATON_GRAMMAR_TEST
"""
import decimal
import json
import os
import subprocess
import sys
import tempfile

try:
    import jsonschema
except ImportError:
    print("no jsonschema: pip install jsonschema")
    sys.exit(77)


def exact(text):
    return json.loads(text, parse_float=decimal.Decimal)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "samples")
        subprocess.run([sys.argv[1], "--gtest_filter=Schema.RandomAnswers"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "BATON_GRAMMAR_SAMPLES": path})
        with open(path, encoding="utf-8") as lines:
            samples = [exact(line) for line in lines]
    wrong, formats = 0, jsonschema.Draft202012Validator.FORMAT_CHECKER
    for sample in samples:
        schema, answer = sample["schema"], exact(sample["answer"])
        if isinstance(schema, dict) and schema.pop("nullable", False) and answer is None:
            continue  # OpenAPI's, which the validator does not know
        error = jsonschema.exceptions.best_match(
            jsonschema.Draft202012Validator(schema, format_checker=formats).iter_errors(answer))
        if error is not None:
            wrong += 1
            print(f"{schema}\n  {sample['answer']}\n  {error.message}")
    print(f"{len(samples)} answers, {wrong} of them wrong")
    return 1 if wrong or len(samples) < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
