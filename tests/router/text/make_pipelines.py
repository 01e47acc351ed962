"""Makes pipelines.json and models/<name>/tokenizer.json: tokenizers of the published kinds, trained
small, and what the tokenizers package says of some hundred texts.

    v/bin/python tests/router/text/make_pipelines.py

In the virtual environment of make_goldens.py with transformers besides. Normalizer, pre-tokenizer, decoder, post-processor,
model options and kinds of added tokens are those of the published tokenizer.json; the vocabulary
is not. Training breaks ties at random, so committed models are kept; delete them to train anew.
"""

import json
import random

import gguf

from make_goldens import BLOOM, CORPUS, HERE, LLAMA3, SEED, byte_level, split, texts
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)
from transformers.convert_slow_tokenizer import generate_merges

VOCAB = 700


def special(*names, **options):
    return [AddedToken(name, special=True, normalized=False, **options) for name in names]


def bos_first(tokenizer, bos):
    return processors.TemplateProcessing(single=f"{bos} $A",
                                         special_tokens=[(bos, tokenizer.token_to_id(bos))])


def of_bytes(pre, added, normalizer=None, ignore_merges=False):
    """A byte-level BPE."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=VOCAB, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_tokens(added)
    return tokenizer


def gpt2():
    return of_bytes(byte_level(), special("<|endoftext|>"))


def qwen2():
    added = special("<|endoftext|>", "<|im_start|>", "<|im_end|>")
    added += [AddedToken(t, normalized=False) for t in ("<tool_call>", "</tool_call>")]
    pattern = LLAMA3.replace("{1,3}", "")
    pre = pre_tokenizers.Sequence([split(pattern), byte_level(False)])
    return of_bytes(pre, added, normalizers.NFC())


def llama3():
    pre = pre_tokenizers.Sequence([split(LLAMA3), byte_level(False)])
    tokenizer = of_bytes(pre, special("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"),
                         ignore_merges=True)
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=True), bos_first(tokenizer, "<|begin_of_text|>")])
    return tokenizer


def bloom():
    pre = pre_tokenizers.Sequence([split(BLOOM), byte_level(False)])
    return of_bytes(pre, special("<unk>", "<s>", "</s>", "<pad>"))


def pythia():
    """Runs of blanks are added tokens, found in the normalised text."""
    blanks = [AddedToken(" " * count, normalized=True) for count in range(24, 1, -1)]
    return of_bytes(byte_level(), special("<|endoftext|>", "<|padding|>") + blanks,
                    normalizers.NFC())


def of_pieces(names, added, trained=None):
    """A BPE over characters that writes others as <0xNN>, as converters make it of SentencePiece's."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    all_bytes = [f"<0x{b:02X}>" for b in range(256)]
    corpus = trained or [t.replace("\n", " ") for t in CORPUS if len(t) < 60]
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=VOCAB, show_progress=False, limit_alphabet=80,
        special_tokens=names + all_bytes))
    # The byte tokens are ordinary ones in published files.
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.add_tokens(added)
    return tokenizer


def sentence_piece_decoder(strip):
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def llama2():
    """As converters have written it since transformers 4.40: a blank first by the pre-tokenizer."""
    tokenizer = of_pieces(["<unk>", "<s>", "</s>"], special("[INST]", "[/INST]"))
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    tokenizer.decoder = sentence_piece_decoder(strip=True)
    tokenizer.post_processor = bos_first(tokenizer, "<s>")
    return tokenizer


def phi3():
    """Llama 2's older form; control tokens swallow the white space behind them."""
    tokenizer = of_pieces(["<unk>", "<s>", "</s>"],
                          special("<|user|>", "<|assistant|>", "<|end|>", rstrip=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"),
                                                 normalizers.Replace(" ", "▁")])
    tokenizer.decoder = sentence_piece_decoder(strip=True)
    tokenizer.post_processor = bos_first(tokenizer, "<s>")
    return tokenizer


def gemma():
    """No blank first; runs of white space are added tokens that are not special."""
    runs = [mark * count for mark in ("\n", "▁") for count in range(2, 9)]
    tokenizer = of_pieces(["<pad>", "<eos>", "<bos>", "<unk>"],
                          special("<start_of_turn>", "<end_of_turn>")
                          + [AddedToken(run, normalized=False) for run in runs])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = sentence_piece_decoder(strip=False)
    tokenizer.post_processor = bos_first(tokenizer, "<bos>")
    return tokenizer


def scored(base):
    """The pieces of a small model with scores, as SentencePiece files have them: later pieces have
    lower ones."""
    state = json.loads(base.to_str())
    vocab = sorted(state["model"]["vocab"].items(), key=lambda item: item[1])
    special = {t["content"]: t["special"] for t in state["added_tokens"]}
    tokens, types, scores = [], [], []
    for token, _ in vocab:
        tokens.append(token)
        kind = 1
        if token == "<unk>":
            kind = 2
        elif token in special:
            kind = 3 if special[token] else 4
        elif token.startswith("<0x"):
            kind = 6
        types.append(kind)
        scores.append(-float(len(tokens)) if kind == 1 else 0.0)
    # Added tokens behind the vocabulary.
    for token, is_special in special.items():
        if token not in state["model"]["vocab"]:
            tokens.append(token)
            types.append(3 if is_special else 4)
            scores.append(-1000.0)
    return tokens, types, scores


def of_gguf(base, blank_first):
    """What transformers makes of the pieces and scores of a GGUF file, and the file's parts."""
    tokens, types, scores = scored(base)
    ids = {token: i for i, token in enumerate(tokens)}
    pieces = {t: s for t, s, kind in zip(tokens, scores, types) if kind in (1, 4, 6)}
    merges = generate_merges(ids, pieces)
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=merges, byte_fallback=True, fuse_unk=True,
                                     unk_token="<unk>"))
    replace = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = replace
    if blank_first:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace])
    tokenizer.decoder = sentence_piece_decoder(strip=blank_first)
    tokenizer.add_special_tokens(special(*[t for t, k in zip(tokens, types) if k in (2, 3)]))
    tokenizer.add_tokens([AddedToken(t, normalized=False)
                          for t, k in zip(tokens, types) if k == 4])
    bos = "<bos>" if "<bos>" in ids else "<s>"
    tokenizer.post_processor = bos_first(tokenizer, bos)
    return tokenizer, (tokens, types, scores, ids[bos])


def write_gguf(path, parts, blank_first):
    tokens, types, scores, bos = parts
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_scores(scores)
    writer.add_bos_token_id(bos)
    if not blank_first:
        writer.add_add_space_prefix(False)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


GGUF = {"llama2_gguf": ("llama2", True), "gemma_gguf": ("gemma", False)}
PIPELINES = {make.__name__: make
             for make in (gpt2, qwen2, llama3, bloom, pythia, llama2, phi3, gemma)}
MARKS = ["<|endoftext|>", "<|im_start|>", "<tool_call>", "<|eot_id|>", "<s>", "</s>", "[INST]",
         "<|user|>", "<start_of_turn>", "<bos>", "<unk>", "<0x0A>", "▁", "▁▁", "\n\n\n", "     "]


def hard_texts():
    """Those of make_goldens.py and seeded mixtures with what the pipelines treat apart."""
    rng = random.Random(SEED + 1)
    alphabet = list("abcXYZ0129 .,'\n\täßяж中文한😀½²\u0301\u00a0ש٣।，…|[]()e\u0301\u1100\u1161")
    alphabet += ["  ", " the", "'s", "\r\n", "cat"] + MARKS
    out = texts() + MARKS + [f" {mark} x" for mark in MARKS]
    for _ in range(120):
        out.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 30))))
    return out


def cases_of(tokenizer, texts):
    """Ids of each text, every eighth with special tokens, and what they decode to where that is not
    the text."""
    cases = []
    for i, text in enumerate(texts):
        ids = tokenizer.encode(text, add_special_tokens=i % 8 == 0).ids
        case = {"ids": ids}
        for key, skip in (("decoded", False), ("answer", True)):
            decoded = tokenizer.decode(ids, skip_special_tokens=skip)
            if decoded != text:
                case[key] = decoded
        cases.append(case)
    return cases


def main():
    goldens = {"texts": hard_texts()}
    for name, make in PIPELINES.items():
        path = HERE / "models" / name / "tokenizer.json"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(json.loads(make().to_str()), ensure_ascii=False) + "\n")
        goldens[name] = cases_of(Tokenizer.from_str(path.read_text()), goldens["texts"])
    for name, (base, blank_first) in GGUF.items():
        text = (HERE / "models" / base / "tokenizer.json").read_text()
        tokenizer, parts = of_gguf(Tokenizer.from_str(text), blank_first)
        write_gguf(HERE / "models" / f"{name}.gguf", parts, blank_first)
        goldens[name] = cases_of(tokenizer, goldens["texts"])
    text = json.dumps(goldens, ensure_ascii=False, separators=(",", ":"))
    (HERE / "pipelines.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
