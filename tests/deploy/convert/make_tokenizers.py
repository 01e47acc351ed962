"""Makes models/<name>/ and tokenizers.json: directories with the older tokenizer files alone, and the
ids that transformers gives the texts of tests/router/text after its own conversion.

    python -m venv v
    v/bin/pip install transformers==4.57.1 sentencepiece==0.2.1 protobuf gguf==0.19.0 jinja2==3.1.6
    v/bin/python tests/deploy/convert/make_tokenizers.py

transformers 4 is the last one with slow tokenizers, whose convert_slow_tokenizer wrote the
tokenizer.json of published models. Byte-level vocabularies are those of tests/router/text/models;
SentencePiece models are trained here and kept: delete them to train anew.
"""

import io
import json
import sys
from pathlib import Path

import sentencepiece
import transformers

HERE = Path(__file__).resolve().parent
TEXT = HERE.parents[1] / "router" / "text"
PIECES = 1000
sys.path.insert(0, str(TEXT))

from make_goldens import CORPUS  # noqa: E402
from make_pipelines import cases_of  # noqa: E402


def added(content, **options):
    return {"content": content, "lstrip": False, "normalized": True, "rstrip": False,
            "single_word": False, **options}


def write(folder, name, value):
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) + "\n"
    (folder / name).write_text(text)


def byte_level(folder, base, first=(), less=()):
    """vocab.json and merges.txt of a model of tests/router/text, with the tokens `first` in front."""
    state = json.loads((TEXT / "models" / base / "tokenizer.json").read_text())
    vocab = sorted(state["model"]["vocab"].items(), key=lambda item: item[1])
    tokens = list(first) + [t for t, _ in vocab if t not in less]
    write(folder, "vocab.json", {token: i for i, token in enumerate(tokens)})
    merges = [m if isinstance(m, str) else " ".join(m) for m in state["model"]["merges"]]
    write(folder, "merges.txt", "#version: 0.2\n" + "\n".join(merges) + "\n")
    return len(tokens)


def gpt2(folder):
    """Nothing but the vocabulary: all else is the class's default."""
    byte_level(folder, "gpt2")
    write(folder, "config.json", {"model_type": "gpt2"})


def opt(folder):
    """BOS is </s> and stands in front of every text."""
    byte_level(folder, "gpt2", ["<s>", "<pad>", "</s>", "<unk>"])
    write(folder, "config.json", {"model_type": "opt"})
    end = {**added("</s>"), "__type": "AddedToken"}
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "add_prefix_space": False,
        "errors": "replace", "bos_token": end, "eos_token": end, "unk_token": end,
        "pad_token": {**added("<pad>"), "__type": "AddedToken"}})
    write(folder, "special_tokens_map.json", {
        "bos_token": added("</s>"), "eos_token": added("</s>"), "unk_token": added("</s>"),
        "pad_token": added("<pad>")})


def gptj(folder):
    """Tokens behind the vocabulary, in a file of their own."""
    count = byte_level(folder, "gpt2")
    write(folder, "config.json", {"model_type": "gptj"})
    extra = {f"<|extratoken_{i}|>": count + 1 + i for i in range(5)}
    write(folder, "added_tokens.json", {"<|endoftext|>": count, **extra})
    write(folder, "special_tokens_map.json", {
        key: added("<|endoftext|>") for key in ("bos_token", "eos_token", "unk_token")})
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "GPT2Tokenizer", "add_prefix_space": False, "errors": "replace"})


def phi(folder):
    """Runs of blanks that are not special; a blank in front of every text."""
    count = byte_level(folder, "gpt2")
    write(folder, "config.json", {"model_type": "phi"})
    decoder = {str(count): added("<|endoftext|>", normalized=False, special=True)}
    for i, blanks in enumerate(range(8, 1, -1)):
        decoder[str(count + 1 + i)] = added(" " * blanks, special=False)
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "CodeGenTokenizer", "add_prefix_space": True,
        "bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>",
        "added_tokens_decoder": decoder})


def qwen2(folder):
    count = byte_level(folder, "qwen2")
    write(folder, "config.json", {"model_type": "qwen2"})
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    decoder = {str(count + i): added(t, normalized=False, special=True)
               for i, t in enumerate(names)}
    for i, t in enumerate(("<tool_call>", "</tool_call>")):
        decoder[str(count + 3 + i)] = added(t, normalized=False, special=False)
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "Qwen2Tokenizer", "add_prefix_space": False, "bos_token": None,
        "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "unk_token": None,
        "additional_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "added_tokens_decoder": decoder})


def pieces(folder, **options):
    path = folder / "tokenizer.model"
    if path.exists():
        return
    # Through a stream: the file would name the path that it is written to.
    stream = io.BytesIO()
    lines = [line for text in CORPUS for line in text.split("\n") if line and len(line) < 60]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=stream, model_type="bpe",
        vocab_size=PIECES, character_coverage=0.98, byte_fallback=True, split_digits=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
        allow_whitespace_only_pieces=True, **options)
    path.write_bytes(stream.getvalue())


def llama(folder):
    """The form of Llama 1 and 2: a blank first, behind special tokens too."""
    pieces(folder)
    write(folder, "config.json", {"model_type": "llama"})
    names = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False,
        **{key: {**added(t), "__type": "AddedToken"} for key, t in names.items()}})
    write(folder, "special_tokens_map.json", {
        **{key: added(t) for key, t in names.items()}, "pad_token": "[PAD]"})
    write(folder, "added_tokens.json", {"[PAD]": PIECES, "[INST]": PIECES + 1, "[/INST]": PIECES + 2})


def mistral(folder):
    """The newer form, with all tokens listed, and an end behind every text."""
    pieces(folder)
    write(folder, "config.json", {"model_type": "mistral"})
    tokens = ["<unk>", "<s>", "</s>"]
    decoder = {str(i): added(t, normalized=False, special=True) for i, t in enumerate(tokens)}
    decoder[str(PIECES)] = added("<|user|>", normalized=False, special=True, rstrip=True)
    decoder[str(PIECES + 1)] = added("[INST]", normalized=True, special=False)
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "LlamaTokenizer", "legacy": False, "add_bos_token": True,
        "add_eos_token": True, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "pad_token": None, "additional_special_tokens": ["<|user|>"],
        "added_tokens_decoder": decoder})


def gemma(folder):
    """No blank first; runs of white space and marks of turns are the model's own tokens."""
    runs = [mark * count for mark in ("\n", "▁") for count in range(2, 6)]
    pieces(folder, add_dummy_prefix=False, pad_id=0, eos_id=1, bos_id=2, unk_id=3,
           pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>",
           user_defined_symbols=["<start_of_turn>", "<end_of_turn>"] + runs)
    write(folder, "config.json", {"model_type": "gemma2"})
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "GemmaTokenizer", "add_bos_token": True, "add_eos_token": False,
        "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"})


def checked_cases(tokenizer, texts):
    """Those of make_pipelines.py, but null for what tokenizers 0.22 and 0.23 decode differently: the
    older one drops the blank in front of a token that is found in the normalised text."""
    cases = cases_of(tokenizer, texts)
    if tokenizer.normalizer is None:
        return cases
    found_late = {i for i, t in tokenizer.get_added_tokens_decoder().items() if t.normalized}
    for case in cases:
        if found_late.intersection(case["ids"]):
            case["decoded"] = case["answer"] = None
    return cases


def main():
    texts = json.loads((TEXT / "pipelines.json").read_text())["texts"]
    goldens = {}
    for make in (gpt2, opt, gptj, phi, qwen2, llama, mistral, gemma):
        folder = HERE / "models" / make.__name__
        folder.mkdir(parents=True, exist_ok=True)
        make(folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), use_fast=True)
        assert tokenizer.is_fast
        goldens[make.__name__] = checked_cases(tokenizer.backend_tokenizer, texts)
    text = json.dumps(goldens, ensure_ascii=False, separators=(",", ":"))
    (HERE / "tokenizers.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
