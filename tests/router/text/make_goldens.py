"""Makes goldens.json and the two small models beside it, from tokenizers, jinja2 and gguf.

    python -m venv v && v/bin/pip install tokenizers==0.23.3 jinja2==3.1.6 gguf==0.19.0
    v/bin/python tests/router/text/make_goldens.py [demo.gguf]

The demo file's tokenizer is built here from its vocabulary and merges, not by transformers' own
GGUF conversion, which drops the Digits step. Chat templates are rendered by jinja2 set up as
transformers.utils.chat_template_utils does it. Same input, same output; to train the small models
anew, delete them first.
"""

import json
import os
import random
import sys
from pathlib import Path

import gguf
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        processors, trainers)

HERE = Path(__file__).resolve().parent
DEMO = "SmolLM2-135M-Instruct.Q4_1.gguf"
SEED = 20240917


# -- The demo file's tokenizer ---------------------------------------------------------------------

def demo_path():
    if len(sys.argv) > 1:
        return sys.argv[1]
    cache = os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    return os.environ.get("WEFT_DEMO_MODEL", f"{cache}/weft/models/{DEMO}")


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
          r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(use_regex=True):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
PRES = {
    "smollm": [pre_tokenizers.Digits(individual_digits=True), byte_level()],
    "gpt-2": [byte_level()],
    "falcon": [pre_tokenizers.Punctuation("contiguous"), byte_level(), split("[0-9][0-9][0-9]")],
    "bloom": [split(BLOOM), byte_level(False)],
    "llama-bpe": [split(LLAMA3), byte_level(False)],
    "qwen2": [split(LLAMA3.replace("{1,3}", "")), byte_level(False)],
}


class GgufVocab:
    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields
        read = lambda key: fields[key].contents()
        self.tokens = read("tokenizer.ggml.tokens")
        self.types = read("tokenizer.ggml.token_type")
        self.merges = [(m[:m.index(" ", 1)], m[m.index(" ", 1) + 1:])
                       for m in read("tokenizer.ggml.merges")]
        self.chat_template = read("tokenizer.chat_template")

    def tokenizer(self, pre):
        tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(self.tokens)},
                                         merges=self.merges, ignore_merges=pre == "llama-bpe"))
        if pre == "qwen2":
            tokenizer.normalizer = normalizers.NFC()
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(PRES[pre])
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False)
                                      for t, kind in zip(self.tokens, self.types) if kind == 3])
        return tokenizer


# -- Texts -----------------------------------------------------------------------------------------

PLAIN = [
    "", " ", "  ", "a", " a", "a ", "Hello, world!", "Hello  world", " Hello", "hello\nworld",
    "\n", "\n\n", "\r\n", "\t", "\t\tx", "a\tb", "   leading", "trailing   ", "in    between",
    "\n\n\n\nfour", " \n ", "x" * 300, " " * 100, " " * 101 + "x", "\n" * 64, "ab " * 120,
    "I'm you're we've they'll he'd it's don't", "I'M YOU'RE WE'VE THEY'LL HE'D IT'S", "'s't're",
    "' s", "O'Reilly's", "The quick brown fox jumps over the lazy dog.",
    "What is the capital of France?", "antidisestablishmentarianism",
    "CamelCaseIdentifier snake_case_identifier", "if (x == 1) { return y[2]; } // comment",
    "def f(x):\n    return x + 1\n\n\nclass A:\n\tpass\n", "#include <vector>\nint main() {}",
    "SELECT * FROM t WHERE a = 'b';", "https://example.org/a/b?c=d&e=%20#f", "user@example.org",
    "C:\\Users\\x", "$100.00", "50%", "a+b=c", "e=mc^2", "<html><body>&amp;</body></html>",
    "!!!???...", "((()))", "-----", "=====", "*****", "\"quoted\"", "`code`", "a/b/c", "1 2 3",
    "1", " 1", " 12", "12", "123", "1234567890", "3.14159", "1,000,000", "0x1F", "1e-5",
    "2024-02-29T12:34:56Z", "+49 30 123456", "v1.2.3", "a1b2c3", "12a34", "  12", "½ ¾ ²", " ½",
    "½", "x² + y³", "①②③", "Ⅷ Ⅻ", "٣٤٥", " ٣٤٥", "१२३", "一二三", "㊀", "𝟘𝟙𝟚", "𐄇", "Grüße aus Köln",
    "naïve café", "Ærø Åse øl", "Привет, мир!", "Γειά σου Κόσμε", "Zażółć gęślą jaźń", "ñandú",
    "e\u0301 vs \u00e9", "a\u0308o\u0308u\u0308", "ſ 'ſ it'ſ", "İstanbul ışık", "ﬁ ﬂ", "ǅ ǆ",
    "你好，世界！", "日本語のテキスト", "한국어 텍스트", "한글 자모 ㄱㄴㄷ", "中文 English 混合 123", "東京2024年", "ไทย ภาษา",
    "हिन्दी भाषा", "বাংলা", "தமிழ்", "ქართული", "Հայերեն", "አማርኛ", "שלום עולם", "مرحبا بالعالم",
    "العربية 123 نص", "\u202bRTL\u202c", "\u200fabc\u200e", "😀", "😀😀😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈",
    "🇩🇪🇫🇷", "a😀b", " 😀 ", "❤️", "☃", "✓✗", "→←↑↓", "∑∫√∞≠", "αβγ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "\U00010348",
    "\U0001F9D1\u200D\U0001F680", "\u00a0", "a\u00a0b", "\u2003em\u2003", "\u3000全角", "\u200b",
    "a\u200bb", "\ufeffbom", "\u00ad", "\u2028line\u2029para", "\x0b\x0c", "\x1c\x1d\x1e\x1f",
    "\x85", "\x00", "a\x00b", "a\x01b", "\x7f", "\ufffd", "\uffff", "\ue000", "\U0010FFFF",
    "\U00040000", "x\U000BFFFFy", "\U000F0000", "<|im_start|>", "<|im_end|>", "<|endoftext|>",
    "<|im_start|>user\nhi<|im_end|>\n", "a<|im_end|>b", "<|im_end|><|im_end|>",
    "<|im_start|> <|im_end|>", "<|im_start", "|im_start|>", "<|IM_START|>", "< |im_start|>",
    "<|im_start|>12<|im_end|>", "<repo_name>x", "<reponame>y", "<file_sep>", "<filename>a.py",
    "<gh_stars>", "<issue_start>", "<jupyter_code>", "<empty_output>", "<unknown_token>",
    "\n<|im_start|>\n", "  <|im_end|>  ", "é<|im_start|>é", "12<|endoftext|>34",
]


def texts():
    """About 230 texts: PLAIN, the bytes without a token, and seeded mixtures."""
    out = list(PLAIN)
    out += [f"a{chr(b)}b" for b in (0x04, 0x06, 0x13, 0x14, 0x16, 0x1D)]
    rng = random.Random(SEED)
    alphabet = list("abcXYZ0129 .,'\n\täßяж中文한😀½²\u0301\u00a0ש٣")
    alphabet += ["  ", " the", "<|im_end|>", "'s", "\r\n"]
    for _ in range(40):
        out.append("".join(rng.choice(alphabet) for _ in range(rng.randint(1, 40))))
    return out


def byte_offsets(text, encoding):
    """Character ranges, as Python gives them, as byte ranges."""
    at = [0]
    for c in text:
        at.append(at[-1] + len(c.encode()))
    return [[at[b], at[e]] for b, e in encoding.offsets]


def encode_case(tokenizer, text, add_special_tokens=False):
    encoding = tokenizer.encode(text, add_special_tokens=add_special_tokens)
    return {"text": text, "ids": encoding.ids, "offsets": byte_offsets(text, encoding),
            "decoded": tokenizer.decode(encoding.ids, skip_special_tokens=False),
            "answer": tokenizer.decode(encoding.ids, skip_special_tokens=True)}


def random_decodes(tokenizer, count, rng):
    size = tokenizer.get_vocab_size()
    # Single-byte tokens often, so that characters are cut and broken.
    short = [i for i in range(size) if len(tokenizer.id_to_token(i)) == 1]
    out = []
    for _ in range(count):
        ids = [rng.choice(short) if rng.random() < 0.6 else rng.randrange(size)
               for _ in range(rng.randint(1, 60))]
        out.append({"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
                    "answer": tokenizer.decode(ids, skip_special_tokens=True)})
    return out


# -- Chat templates --------------------------------------------------------------------------------

TEMPLATES = {p.stem: p.read_text() for p in sorted((HERE / "templates").glob("*.jinja"))}


def chats():
    user = lambda text: {"role": "user", "content": text}
    assistant = lambda text: {"role": "assistant", "content": text}
    system = lambda text: {"role": "system", "content": text}
    return [
        ([user("What is the capital of France?")], True),
        ([system("Be brief."), user("Hi"), assistant("Hello."), user("  12 + 30? ")], True),
        ([user("Grüße 😀 <b>&'\"\\ \n\t\x07 ½"), assistant("<think>a</think>\n\nb"), user("")],
         True),
        ([system(""), user("a"), assistant("b")], False),
        ([user("x" * 500), assistant("'quoted' {{ 7 * 7 }} {% raw %}"), user("<tool>z")], True),
        ([assistant("first"), user("second")], True),
    ]


def jinja(source):
    def raise_exception(message):
        raise RuntimeError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=[loopcontrols])
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    # jinja2 knows the tags only through transformers' extension, which prints nothing for them.
    for tag, plain in (("generation", "if true"), ("endgeneration", "endif")):
        source = source.replace(f"{{% {tag} %}}", f"{{% {plain} %}}").replace(
            f"{{%- {tag} -%}}", f"{{%- {plain} -%}}")
    return environment.from_string(source)


def chat_cases(name, source):
    out = []
    for messages, add_generation_prompt in chats():
        case = {"template": name, "messages": messages,
                "add_generation_prompt": add_generation_prompt}
        try:
            case["text"] = jinja(source).render(
                messages=messages, add_generation_prompt=add_generation_prompt, bos_token="<bos>",
                eos_token="<eos>", tools=None, documents=None)
        except RuntimeError as error:
            case["error"] = str(error)
        out.append(case)
    return out


# -- Small models ----------------------------------------------------------------------------------

CORPUS = [t for t in PLAIN if t and "<|" not in t] * 3 + [
    "the cat sat on the mat and the dog sat on the log", "a quick brown fox",
    "Grüße aus Köln und Übersee",
] * 20


def small_byte_level():
    """A byte-level BPE with a BOS by post-processor and an added plain token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=["<s>", "</s>"],
                                  show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_tokens([AddedToken("weft é", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    # Published files sometimes carry these from training; they must not cut or fill prompts.
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=16, pad_token="</s>", pad_id=1)
    return tokenizer


def small_sentence_piece():
    """A BPE in SentencePiece form as Llama 2 has it: U+2581, byte fallback, a leading blank."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"),
                                                 normalizers.Replace(" ", "▁")])
    names = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=600, show_progress=False, limit_alphabet=60,
                                  special_tokens=names)
    tokenizer.train_from_iterator([t.replace("\n", " ") for t in CORPUS if len(t) < 60], trainer)
    # The byte tokens are ordinary tokens in published files.
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [t for t in state["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A",
                                                              special_tokens=[("<s>", 1)])
    return tokenizer


def small_model(name, train):
    """Cases of a small model. Training breaks ties at random, so a committed model is kept."""
    path = HERE / "models" / name / "tokenizer.json"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(train().to_str() + "\n")
    tokenizer = Tokenizer.from_str(path.read_text())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return [dict(encode_case(tokenizer, text, special), add_special_tokens=special)
            for text in texts()[::3] + ["weft é", "<s>a</s>", "the cat"]
            for special in (False, True)]


def pre_cases(demo):
    """The demo vocabulary behind every other pre-tokenizer."""
    out = {}
    for pre in PRES:
        tokenizer = demo.tokenizer(pre)
        if pre != "smollm":
            out[pre] = [{"text": t, "ids": tokenizer.encode(t).ids} for t in texts()[::2]]
    return out


# -- Main ------------------------------------------------------------------------------------------

def main():
    demo = GgufVocab(demo_path())
    tokenizer = demo.tokenizer("smollm")
    goldens = {
        "demo": [encode_case(tokenizer, text) for text in texts()],
        "demo_random": random_decodes(tokenizer, 40, random.Random(SEED)),
        "pre": pre_cases(demo),
        "byte_level": small_model("byte_level", small_byte_level),
        "sentence_piece": small_model("sentence_piece", small_sentence_piece),
        "templates": TEMPLATES | {"demo": demo.chat_template},
        "chats": [case for name, source in (TEMPLATES | {"demo": demo.chat_template}).items()
                  for case in chat_cases(name, source)],
    }
    for case in goldens["chats"]:
        if case["template"] == "demo":
            case["ids"] = tokenizer.encode(case["text"]).ids
    assert tokenizer.encode(" 12").ids == [216, 33, 34]
    assert len(next(c for c in goldens["chats"] if c["template"] == "demo")["ids"]) == 37
    text = json.dumps(goldens, ensure_ascii=False, separators=(",", ":"))
    (HERE / "goldens.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
