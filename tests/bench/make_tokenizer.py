#!/usr/bin/env python3
"""Makes a model directory whose text side works and whose weights are random: for benchmarks of a
shape (`weft serve --weights random`).

  tests/bench/make_tokenizer.py tests/bench/shapes/llama-3.1-8b DIRECTORY

Writes tokenizer.json (byte-level BPE of exactly vocab_size entries), tokenizer_config.json and
generation_config.json into DIRECTORY, and copies config.json there. The special tokens have the ids
that config.json gives them; all others are the 256 bytes, then merges of ASCII letters, so that what
a model of random weights says can be decoded, logged and sent as it is.
"""

import argparse
import itertools
import json
import pathlib
import string
import sys

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)


def byte_alphabet():
    """GPT-2's spelling of each byte as one printable character, in the order of its vocabulary."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    spelling = {byte: chr(byte) for byte in printable}
    spelling |= {byte: chr(256 + i) for i, byte in enumerate(others)}
    return spelling


def merges(blank):
    """Pairs of tokens that merge, without end: words of two letters, of three and of more, alone and
    behind a blank, each made of two tokens that came before it."""
    letters = list(string.ascii_lowercase)
    yield from ((blank, letter) for letter in letters)
    pairs = [a + b for a, b in itertools.product(letters, repeat=2)]
    words = letters
    parts = letters
    while True:
        for starts in (words, [blank + word for word in words]):
            yield from itertools.product(starts, parts)
        words = [a + b for a, b in itertools.product(words, parts)]
        # Two letters at a time from here on.
        parts = pairs if len(words[0]) > 2 else letters


def special_ids(config):
    """Id -> written form of the control tokens."""
    names = {}
    for key in ("eos", "bos", "pad", "unk"):
        ids = config.get(f"{key}_token_id")
        for i, token in enumerate([] if ids is None else ids if isinstance(ids, list) else [ids]):
            names.setdefault(token, f"<|{key}|>" if i == 0 else f"<|{key}_{i}|>")
    size = config["vocab_size"]
    bad = [token for token in names if not 0 <= token < size]
    if bad:
        sys.exit(f"config.json: token ids {bad} are outside the vocabulary of {size}")
    # Published vocabularies that end in control tokens reserve the rest behind the first of them.
    first = min(names, default=0)
    if first > size // 2:
        for token in range(first, size):
            names.setdefault(token, f"<|reserved_{token}|>")
    return names


def make_vocabulary(config):
    """Token -> id, and the merges in order."""
    special = special_ids(config)
    spelling = byte_alphabet()
    ids = (i for i in range(config["vocab_size"]) if i not in special)
    vocabulary = {special[i]: i for i in special}
    plain = config["vocab_size"] - len(special)
    if plain < 256:
        sys.exit(f"config.json: a vocabulary of {config['vocab_size']} does not hold 256 bytes")
    for byte in range(256):
        vocabulary[spelling[byte]] = next(ids)
    pairs = list(itertools.islice(merges(spelling[ord(" ")]), plain - 256))
    for left, right in pairs:
        vocabulary[left + right] = next(ids)
    assert sorted(vocabulary.values()) == list(range(config["vocab_size"]))
    return vocabulary, [list(pair) for pair in pairs], special


def added_token(token, text):
    flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    return {"id": token, "content": text, **flags}


def make_tokenizer(vocabulary, pairs, special):
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                  "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(token, special[token]) for token in sorted(special)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False,
            "vocab": dict(sorted(vocabulary.items(), key=lambda entry: entry[1])),
            "merges": [" ".join(pair) for pair in pairs],
        },
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("shape", type=pathlib.Path, help="directory that holds config.json")
    parser.add_argument("directory", type=pathlib.Path, help="where to write; made when missing")
    args = parser.parse_args()
    text = (args.shape / "config.json").read_text()
    config = json.loads(text)
    vocabulary, pairs, special = make_vocabulary(config)
    ids = {key: config[f"{key}_token_id"] for key in ("bos", "eos")
           if config.get(f"{key}_token_id") is not None}
    names = {f"{key}_token": special[value[0] if isinstance(value, list) else value]
             for key, value in ids.items()}
    files = {
        "tokenizer.json": make_tokenizer(vocabulary, pairs, special),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": config.get("max_position_embeddings") or config["seq_length"],
            "clean_up_tokenization_spaces": False, **names, "chat_template": CHAT_TEMPLATE,
        },
        "generation_config.json": {f"{key}_token_id": value for key, value in ids.items()},
    }
    args.directory.mkdir(parents=True, exist_ok=True)
    for name, contents in files.items():
        (args.directory / name).write_text(json.dumps(contents, ensure_ascii=False) + "\n")
    (args.directory / "config.json").write_text(text)
    print(f"{args.directory}: {len(vocabulary)} tokens, {len(pairs)} merges, {len(special)} special")


if __name__ == "__main__":
    main()
