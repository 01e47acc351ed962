#!/usr/bin/env python3
"""Random walks through the masks of all schemas give texts that the schemas accept, by the word of the
jsonschema package, which shares nothing with what made the masks.
Usage: check_walks.py PATH/weft_grammar_test; WEFT_SEED chooses other walks."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import jsonschema

HERE = pathlib.Path(__file__).resolve().parent
WALKS = "Random walks through masks end in JSON"


def main():
    schemas = {entry["name"]: entry["schema"] for entry in json.loads((HERE / "schemas.json").read_text())}
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "walks.jsonl"
        done = subprocess.run([sys.argv[1], WALKS], env=dict(os.environ, WEFT_GRAMMAR_WALKS=str(path)))
        if done.returncode != 0:
            sys.exit(done.returncode)
        walks = [json.loads(line) for line in path.read_text().splitlines()]
    wrong = 0
    for walk in walks:
        schema = schemas[walk["name"]]
        validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        value = json.loads(walk["text"])
        for error in validator.iter_errors(value):
            wrong += 1
            print(f"{walk['name']}: {error.message[:300]}\n  {walk['text'][:300]}\n  {json.dumps(error.schema)[:300]}")
    print(f"{len(walks)} walks, {wrong} wrong")
    sys.exit(1 if wrong or len(walks) < 1000 else 0)


if __name__ == "__main__":
    main()
