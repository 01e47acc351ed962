"""The demo model's tokenizer, of its GGUF file, for Hugging Face's library. Needs gguf and
tokenizers, but neither torch nor transformers."""

import tokenizers


def field(reader, key):
    return reader.fields[key].contents()


def make_tokenizer(reader):
    """The pipeline of tokenizer.ggml.pre = "smollm"."""
    assert field(reader, "tokenizer.ggml.pre") == "smollm"
    tokens = field(reader, "tokenizer.ggml.tokens")
    merges = [tuple(m.split(" ", 1)) for m in field(reader, "tokenizer.ggml.merges")]
    bpe = tokenizers.models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges)
    tokenizer = tokenizers.Tokenizer(bpe)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Digits(individual_digits=True),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    types = field(reader, "tokenizer.ggml.token_type")
    tokenizer.add_special_tokens(
        [
            tokenizers.AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, types)
            if kind == 3
        ]
    )
    return tokenizer
