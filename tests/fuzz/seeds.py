#!/usr/bin/env python3
"""Writes a fuzz target's first inputs: small files of every kind that the target knows.

    tests/fuzz/seeds.py FOLDER [TARGET ...]

FOLDER/<target> gets them. They are where a corpus begins; `tests/fuzz/run.sh --keep` adds what runs
have found and leaves out what reaches nothing new.
"""

import json
import pathlib
import random
import struct
import sys

TESTS = pathlib.Path(__file__).resolve().parents[1]
GOLDENS = TESTS / "goldens"
TEXT = TESTS / "router/text"


# -- Protocol buffers ---------------------------------------------------------------------------


def varint(value):
    value &= (1 << 64) - 1
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """One field: int as a varint, float as four bytes, bytes and str with their length."""
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def fixed64(number, value):
    return varint(number << 3 | 1) + struct.pack("<Q", value)


def packed(number, values):
    return field(number, b"".join(varint(value) for value in values))


def message(**fields):
    """From names like f3=...; lists repeat the field."""
    out = b""
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            out += field(int(name[1:]), one)
    return out


# -- Doors --------------------------------------------------------------------------------------


def http():
    for path in sorted((TESTS / "router/doors/requests").glob("*.http")):
        yield path.read_bytes()
    yield b"GET /v1/models HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\r\nHEAD / HTTP/1.1\r\nHost: a\r\n\r\n"
    yield b"OPTIONS /generate HTTP/1.1\r\nHost: [::1]:80\r\nOrigin: http://a\r\n" \
          b"Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-api-key\r\n\r\n"
    yield b"POST / HTTP/1.1\r\nHost: a\r\nX-Api-Key: k\r\nAuthorization: Bearer k\r\n" \
          b"Content-Encoding: gzip\r\nContent-Encoding: br\r\nTraceparent: 00-1-2-01\r\n" \
          b"Connection: close\r\nContent-Length: 2\r\n\r\n{}"


def body():
    for path in sorted((TESTS / "router/doors/bodies").glob("*.json")):
        yield path.read_bytes()
    every = {"top_k": 5, "top_p": 0.5, "min_p": 0.1, "typical_p": 0.9, "repetition_penalty": 1.1,
             "presence_penalty": 0.5, "frequency_penalty": -0.5, "logit_bias": {"7": -1.5},
             "seed": -1, "ignore_eos": True, "priority": 3, "add_special_tokens": False}
    yield json.dumps({"prompt": [1, 2, 3], "max_tokens": 3, "stop": ["a", "b"], "logprobs": 2,
                      "echo": True, "stream": True, "unknown": None, "return_token_ids": True,
                      "resume": {"output_ids": [5, 9], "seed": -1, "fingerprint": "weft-1"},
                      **every}).encode()
    yield json.dumps({"inputs": "x", "parameters": {"max_new_tokens": 2, "do_sample": True,
                      "temperature": 0.7, "details": True, "truncate": 4, **every}}).encode()
    yield json.dumps({"model": "m", "messages": [
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": "\u00e9\U0001F600"}], "max_completion_tokens": 1,
        "logprobs": True, "top_logprobs": 3, "temperature": 0,
        "stream_options": {"include_usage": True}, **every}).encode()
    yield json.dumps({"messages": [
        {"role": "user", "content": "a", "name": "n"},
        {"role": "assistant", "content": None, "reasoning_content": "r", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"x\":1}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "b"}],
        "tools": [{"type": "function", "function": {"name": "f", "description": "d",
                                                    "parameters": {"type": "object"}}}],
        "tool_choice": "auto", "documents": [{"text": "t"}], "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": False}}).encode()
    yield json.dumps({"instructions": "i", "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "d"}],
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto",
                        "tools": [{"type": "function", "name": "f"}]},
        "text": {"format": {"type": "json_object"}}, "reasoning": {"effort": "low"},
        "include": ["message.output_text.logprobs"], "max_output_tokens": 3, "store": True,
        "metadata": {"a": "b"}}).encode()
    yield json.dumps({"input": "x", "stream": True, "top_logprobs": 2, **every}).encode()


def generate():
    sampling = message(f1=0.7, f2=40, f3=0.9, f4=0.1, f5=0.5, f6=7, f7=1)
    decoding = message(f1=1.2, f2=0.5, f3=-0.5, f4=message(f1=3, f2=1.5))
    stopping = message(f1=5, f2=["a", "\n\n"], f3=1, f4=1)
    response = message(f1=1, f2=5, f3=1, f4=1)
    chat = message(f1=[message(f1="user", f2="Hello"), message(f1="assistant", f2="x")], f2=0)
    yield message(f1="id", f2="m", f3="Hello", f6=sampling, f7=decoding, f8=stopping, f9=response,
                  f10=4, f11=3, f12=0)
    yield message(f4=packed(1, [1, 2, 70000]), f8=message(f1=1))
    yield message(f5=chat, f11=-7)
    yield message(f3="x", f40=packed(1, [5, 70000]) + message(f2=7, f3="weft-1"))
    yield message(f3="x", f30=1, f6=message(f12=1))
    yield message(f1="Hello", f3=0) + message(f2=chat)
    # In text, which mutates better (a "#" begins a comment there).
    yield b"""#
request_id: "id" text: "Hello" sampling { temperature: 0.7 top_k: 40 top_p: 0.9 seed: 7 n: 1 }
decoding { repetition_penalty: 1.2 presence_penalty: 0.5 logit_bias { id: 3 bias: 1.5 } }
stopping { max_tokens: 5 stop_sequences: "abc" stop_sequences: "\\n" } priority: -7
response { logprobs: true top_logprobs: 5 echo_prompt: true } truncate_prompt_tokens: 4
resume { output_ids: 5 output_ids: 9 seed: 7 fingerprint: "weft-1" }
"""
    yield b"""#
chat { messages { role: "user" content: "Hello" } messages { role: "assistant" content: "x" } }
model: "m" add_special_tokens: false sampling { min_p: 0.1 typical_p: 0.5 }
"""
    yield b"""#
chat { messages { role: "user" content_parts: "a" content_parts: "b" name: "n" }
messages { role: "assistant" reasoning_content: "r" tool_calls { id: "c" name: "f"
arguments: "{\\"x\\":1}" } } messages { role: "tool" content: "b" tool_call_id: "c" }
tools: "{\\"type\\":\\"function\\",\\"function\\":{\\"name\\":\\"f\\"}}" documents: "{}"
chat_template_kwargs: "{\\"a\\":1}" reasoning_effort: "low" continue_final_message: true }
"""


# -- The shards' wire ---------------------------------------------------------------------------


def step_script(groups, *steps):
    kinds = {"prefill": 0, "decode": 1, "filter": 2}
    out = bytes([groups - 1])
    for kind, data in steps:
        out += bytes([kinds[kind]]) + struct.pack("<H", len(data)) + data
    return out


def step():
    neutral = message(f1=0.7, f2=3, f3=1.0, f5=1.0, f6=1.0, f12=2, f11=1) + fixed64(9, 5)
    penal = message(f3=1.0, f5=1.0, f6=1.1, f7=0.5, f10=[message(f1=3, f2=-1.0), message(f1=9, f2=2.0)])

    def header(number, deltas=(), drops=()):
        head = message(f1=1, f2=number) + (packed(3, drops) if drops else b"")
        for slot, group, blocks, leave in deltas:
            head += field(4, message(f1=slot, f2=group) + packed(3, blocks) + field(4, leave))
        return head

    def chunk(slot, sequence, ids, start, last, first=None, penalties=()):
        out = message(f1=slot, f2=sequence) + packed(3, ids) + message(f4=start, f5=last)
        if first is not None:
            out += message(f6=1, f7=first, f8=penal if penalties else neutral)
            if penalties:
                out += packed(9, penalties)
        return out

    one = message(f1=header(1, [(2, 0, [0, 1], 0), (1, 0, [2, 3, 4], 0)]),
                  f2=[chunk(2, 20, [1, 2, 3, 4, 5, 6], 0, 1, 6), chunk(1, 10, [7, 8, 9], 0, 0, 9)])
    two = message(f1=header(2, [(0, 0, [9], 0)]),
                  f2=[chunk(1, 10, [1] * 6, 3, 1), chunk(0, 30, [50, 51, 52], 0, 1, 3)], f3=1)
    four = message(f1=header(4, drops=[2])) + packed(2, [0])
    yield step_script(1, ("prefill", one), ("prefill", two), ("decode", message(f1=header(3))),
                      ("decode", four), ("filter", message(f1=header(5, drops=[0, 1]))))
    window = [(2, 0, [0, 1, 2], 0), (2, 1, [10, 11, 12], 0)]
    yield step_script(
        2,
        ("prefill", message(f1=header(1, window), f2=chunk(2, 20, list(range(9)), 0, 0, 12))),
        ("prefill", message(f1=header(2, [(2, 0, [3], 0), (2, 1, [13], 0)]),
                            f2=chunk(2, 20, [1, 2, 3], 9, 1))),
        ("decode", message(f1=header(3, [(2, 1, [], 1)]))))
    known = [7, 8, 9, 4]
    yield step_script(
        1,
        ("prefill", message(f1=header(1, [(3, 0, [5], 0)]),
                            f2=chunk(3, 1, known, 0, 1, 2, penalties=known))),
        ("decode", message(f1=header(2))))


def http2():
    def frame(kind, flags, stream, payload):
        return bytes([5, kind, flags, stream]) + struct.pack("<H", len(payload)) + payload

    def literal(name, value):
        return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value

    settings = frame(4, 0, 0, struct.pack(">HI", 3, 100) + struct.pack(">HI", 4, 65535))
    ack = frame(4, 1, 0, b"")
    head = b"\x88" + literal(b"content-type", b"application/grpc")
    trailers = literal(b"grpc-status", b"0")
    data = b"\0\0\0\0\3abc"
    start = bytes([1]) + struct.pack("<HH", 30, 1000)
    output = bytes([4])
    good = frame(1, 4, 1, head) + frame(0, 0, 1, data) + frame(1, 5, 1, trailers)
    yield settings + ack + good
    yield settings + output + start + output + good + frame(1, 4, 3, head) + frame(0, 0, 3, data[:6]) \
        + frame(0, 0, 3, data[6:]) + frame(1, 5, 3, trailers)
    failed = literal(b"grpc-status", b"9") + literal(b"grpc-message", b"no%20epoch%")
    yield settings + frame(1, 5, 1, head + failed)
    yield settings + start + start + output + bytes([2, 3]) + frame(3, 0, 1, struct.pack(">I", 7)) \
        + frame(3, 0, 5, struct.pack(">I", 11)) + output
    yield settings + bytes([3]) + output + frame(6, 0, 0, b"12345678") + frame(8, 0, 0, b"\0\0\1\0") \
        + frame(7, 0, 0, struct.pack(">II", 1, 0) + b"bye")
    yield settings + frame(1, 0, 1, head[:9]) + frame(9, 4, 1, head[9:]) + frame(0, 8, 1, b"\2ab\0\0")
    raw = bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]) + struct.pack(">HI", 5, 20000)
    yield bytes([0]) + struct.pack("<H", len(raw)) + raw + good


def reply():
    timer, ask, truth = bytes([0, 18]), bytes([1]), 0

    def answer(rank, choice=truth, lie=b""):
        lie = struct.pack("<H", len(lie)) + lie if choice >= 128 else b""
        return bytes([4 + 16 * rank, choice]) + lie

    both = answer(0) + answer(1)
    # Claims are never answered, so the oldest call that counts is the second.
    later = answer(0, 1) + answer(1, 1)
    formed = (timer + both) * 3 + (timer + both + later) * 8
    served = (ask + later + timer + both) * 3
    yield formed + served
    yield formed + ask + ask + answer(1, 2) + answer(0, 2) + later + later + served
    for lie in (field(2, 3), field(1, 9), packed(3, [0]) + packed(4, [7]), field(4, 5), b"\x08",
                field(7, message(f1=5, f2=6, f3=7)) + field(8, 2)):
        yield formed + ask + timer + answer(0, 129, lie) + answer(1, 1) + served
    for lie in (field(5, 2), field(13, 4) + field(17, "broken"), field(25, 200), field(14, 77)):
        yield formed + answer(0, 128, lie) + answer(1, 129, lie) + (timer + both + later) * 9 + served
    yield formed + served + bytes([2]) + (timer + both + later) * 9 + bytes([2]) + formed + served
    yield formed + bytes([3 + 16]) + (timer + both + later) * 9 + served
    yield formed + answer(0, 15) + bytes([14]) + answer(1, 61) + (timer + both) * 5


# -- Model files --------------------------------------------------------------------------------


def small_tokenizer(path, tokens_max):
    """The same pipeline over a few of its tokens."""
    value = json.loads(path.read_text())
    model = value["model"]
    by_id = sorted(model["vocab"], key=model["vocab"].get)
    kept = set(by_id[:4]) | {token for token in by_id if len(token) == 1 and token.isascii()}
    kept |= {token for token in by_id if token in "\u0120\u010a\u2581"}
    merges = []
    for merge in model["merges"]:
        pair = merge if isinstance(merge, list) else merge.split(" ")
        if len(kept) < tokens_max and set(pair) <= kept:
            merges.append(merge)
            kept.add("".join(pair))
    model["vocab"] = {token: i for i, token in enumerate(t for t in by_id if t in kept)}
    model["merges"] = merges
    size = len(model["vocab"])
    value["added_tokens"] = value["added_tokens"][:6]
    for i, added in enumerate(value["added_tokens"]):
        added["id"] = model["vocab"].get(added["content"], size + i)
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def gguf_string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf(metadata, tensors=()):
    """Values are (GGUF type, Python value), of an array (9, (type, [values])); tensors (name, dims,
    type, bytes)."""
    formats = {4: "<I", 5: "<i", 6: "<f", 7: "<?"}

    def encode(kind, value):
        if kind == 8:
            return gguf_string(value)
        if kind == 9:
            of, values = value
            return struct.pack("<IQ", of, len(values)) + b"".join(encode(of, v) for v in values)
        return struct.pack(formats[kind], value)

    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, (kind, value) in metadata.items():
        out += gguf_string(key) + struct.pack("<I", kind) + encode(kind, value)
    data = b""
    for name, dims, kind, content in tensors:
        out += gguf_string(name) + struct.pack("<I", len(dims))
        out += b"".join(struct.pack("<Q", dim) for dim in dims) + struct.pack("<IQ", kind, len(data))
        data += content + bytes(-len(content) % 32)
    return out + bytes(-len(out) % 32) + data


BPE = {
    "tokenizer.ggml.model": (8, "gpt2"),
    "tokenizer.ggml.pre": (8, "smollm"),
    "tokenizer.ggml.tokens": (9, (8, ["<s>", "a", "b", "\u0120", "ab", "\u010a", "<|t|>", "1"])),
    "tokenizer.ggml.token_type": (9, (5, [3, 1, 1, 1, 1, 1, 4, 1])),
    "tokenizer.ggml.merges": (9, (8, ["a b"])),
    "tokenizer.ggml.bos_token_id": (4, 0),
    "tokenizer.ggml.eos_token_id": (4, 0),
    "tokenizer.ggml.add_bos_token": (7, True),
}
PIECES = {
    "tokenizer.ggml.model": (8, "llama"),
    "tokenizer.ggml.pre": (8, "default"),
    "tokenizer.ggml.tokens": (9, (8, ["<unk>", "<s>", "\u2581", "a", "b", "ab", "<0x0A>", "[I]"])),
    "tokenizer.ggml.token_type": (9, (5, [2, 3, 1, 1, 1, 1, 6, 4])),
    "tokenizer.ggml.scores": (9, (6, [0.0, 0.0, -1.0, -2.0, -3.0, -0.5, 0.0, 0.0])),
    "tokenizer.ggml.unknown_token_id": (4, 0),
    "tokenizer.ggml.bos_token_id": (4, 1),
    "tokenizer.ggml.add_space_prefix": (7, True),
}


def micro_llama(kind):
    """One layer, 32 wide, of GGUF's type `kind`; its rows have so many bytes."""
    row = {2: 18, 3: 20, 8: 34}[kind]
    rng = random.Random(kind)

    def matrix(name, outputs):
        return name, [32, outputs], kind, rng.randbytes(row * outputs)

    def vector(name):
        return name, [32], 0, struct.pack("<f", 1.0) * 32

    keys = {"block_count": 1, "context_length": 64, "embedding_length": 32, "feed_forward_length": 32,
            "attention.head_count": 2, "attention.head_count_kv": 1, "rope.dimension_count": 16,
            "vocab_size": 8}
    metadata = {"general.architecture": (8, "llama"), "general.name": (8, "x")}
    metadata |= {"llama." + key: (4, value) for key, value in keys.items()}
    metadata["llama.attention.layer_norm_rms_epsilon"] = (6, 1e-5)
    metadata["llama.rope.freq_base"] = (6, 10000.0)
    tensors = [matrix("token_embd.weight", 8), vector("output_norm.weight"),
               vector("blk.0.attn_norm.weight"), vector("blk.0.ffn_norm.weight"),
               matrix("blk.0.attn_q.weight", 32), matrix("blk.0.attn_k.weight", 16),
               matrix("blk.0.attn_v.weight", 16), matrix("blk.0.attn_output.weight", 32),
               matrix("blk.0.ffn_gate.weight", 32), matrix("blk.0.ffn_up.weight", 32),
               matrix("blk.0.ffn_down.weight", 32)]
    return gguf(metadata | BPE, tensors)


def tokenizer():
    for folder in sorted((TEXT / "models").iterdir()):
        if (folder / "tokenizer.json").exists():
            yield small_tokenizer(folder / "tokenizer.json", 60)
    yield gguf(BPE)
    yield gguf(PIECES)


def model_text():
    for folder in sorted(GOLDENS.iterdir()):
        for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
            if folder.name < "gemma" and (folder / name).exists():
                yield (folder / name).read_bytes()
    yield json.dumps({"eos_token_id": [2, 1], "bos_token_id": 1, "eos_token": {"content": "</s>"},
                      "bos_token": "<s>", "chat_template": [{"name": "default", "template": "x"}],
                      "added_tokens_decoder": {"2": {"content": "</s>"}},
                      "max_position_embeddings": 64}).encode()


def template():
    talk = b"\0system\0Be brief.\0user\0Hello <|im_start|>user\0tool\0</tool_call>x"
    for path in sorted((TEXT / "templates").glob("*.jinja")):
        yield path.read_bytes() + talk
    yield b"{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m['content'] + '<|im_end|>' }}" \
          b"{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant' }}{% endif %}" + talk
    yield b"{{ messages | map(attribute='content') | join('') | upper | replace('A', 'b') }}" + talk
    yield b"{{ raise_exception('no ' ~ messages[0].content) }}" + talk
    yield b"{{ tools | tojson }}{% for k, v in a.items() %}{{ k ~ v }}{% endfor %}" \
          b"{% for m in messages %}{% for c in m.tool_calls %}{{ c.function.arguments | dictsort }}" \
          b"{% endfor %}{% endfor %}\0user\0{\"a\":{\"<|im_start|>\":[\"<|im_end|>\",1.5]}}"
    yield b"{{ (messages[1].content | reverse | list | tojson(indent=2))[:20] }}{{ 'x' * 3 }}" + talk


def grammar():
    schemas = json.loads((TEXT / "grammar/schemas.json").read_text())
    kinds = {}
    for entry in schemas:
        kinds.setdefault(entry["name"].rsplit(" ", 1)[0], json.dumps(entry["schema"]).encode())
    for schema in kinds.values():
        if len(schema) < 2000:
            yield b"\0" + schema
    yield b"\1"
    yield b'\2start: "call" "(" arg ("," arg)* ")"\narg: NAME | %json {"type": "integer"}\nNAME: /[a-z]+/\n'
    yield b'\2start: <|tool|> x{1,3} | y[stop=";", max_tokens=3]\nx: /./ | "ab"i\ny: /[^;]*/\n%ignore " "\n'
    yield b"\3(\\d{3}-)?[a-z/]+(foo|bar){2,9}\\s"
    yield b"\4yes\nno\nyes, please"
    yield b'\5{"structures":[{"begin":"<f=a>","schema":{"type":"null"},"end":"</f>"}],"triggers":["<f="]}'
    yield b'\5{"format":{"type":"triggered_tags","triggers":["<|tool|>"],"at_least_one":true,"tags":[' \
          b'{"begin":"<|tool|>x","content":{"type":"regex","pattern":"[0-9]+"},"end":";"}]}}'
    yield b'\5{"format":{"type":"sequence","elements":[{"type":"const_string","value":"a"},' \
          b'{"type":"tag","begin":"<t>","content":{"type":"any_text"},"end":"</t>"}]}}'


def safetensors():
    def pack(header, data):
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + data

    yield pack({"__metadata__": {"format": "pt"},
                "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
                "b": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]},
                "e": {"dtype": "F16", "shape": [0], "data_offsets": [16, 16]}}, bytes(range(22)))
    yield pack({"a": {"dtype": "U8", "shape": [5], "data_offsets": [0, 5]},
                "s": {"dtype": "F32", "shape": [], "data_offsets": [5, 9]}}, bytes(9))


def config():
    for folder in sorted(GOLDENS.iterdir()):
        if (folder / "config.json").exists():
            value = json.loads((folder / "config.json").read_text())
            yield json.dumps(value, separators=(",", ":")).encode()


def torch_file():
    for name in ("plain_dict.bin", "all.bin", "all_before_1_6.bin"):
        yield (TESTS / "deploy/convert/checkpoints" / name).read_bytes()


def sentence_piece():
    for name in ("llama", "gemma"):
        data = (TESTS / "deploy/convert/models" / name / "tokenizer.model").read_bytes()
        # Pieces come first, each a field of one tag byte and one length byte.
        ends, at = [], 0
        while at + 2 < len(data) and data[at] == 0x0A:
            at += 2 + data[at + 1]
            ends.append(at)
        yield data[: ends[5]] + data[ends[300]: ends[340]] + data[ends[-1]:]


def recording():
    """The records of the committed recording's frames, without the frames: as many as one input
    may have."""
    data = (TESTS / "transcripts/recordings/demo.1").read_bytes()
    place, records = 8, b""
    while place + 12 <= len(data) and len(records) < 16384:
        length = int.from_bytes(data[place:place + 4], "little")
        records += data[place + 12:place + 12 + length]
        place += 12 + length
    yield records[:2048]
    yield records[:16384]


def chat_text():
    """A byte for the size of pieces, then an answer, or a saved conversation."""
    yield b"\x00# T *a* **b** `c`\n- x\n  1. y\n> q\n---\n| a | b |\n~~s~~ \\*\n"
    yield b"\x02```py\nx = 1\n```\n**never closed\n***a***_b_\n~~~\n`\n~~~"
    yield b"\x05\x1b[2J\x1b]0;t\x07\r\nx\ry\xc2\x9b\xe2\x80\xae\xff\xf0\x9f\x98\x80"
    yield b"\x00" + json.dumps({"model": "m", "messages": [
        {"role": "system", "content": "s"}, {"role": "user", "content": "q"},
        {"role": "assistant", "content": "a"}]}).encode()
    yield b'\x01"""\n/help\n"""'
    yield b"\x01/set top_p 0.5"


def answer_parts():
    """One call in each format, in the order of the parsers' names; behind it the bytes that choose."""
    json_call = '{"name": "f", "arguments": {"s": "a\\u00e9", "n": 1}}'
    dsml = "\uff5cDSML\uff5c"
    deep = "<\uff5ctool\u2581%s\uff5c>"
    begin, end = deep % "calls\u2581begin" + deep % "call\u2581begin", deep % "call\u2581end"
    answers = [
        begin + "function" + deep % "sep" + 'f\n```json\n{"n": 1}\n```' + end,
        begin + "f" + deep % "sep" + '{"n": 1}' + end,
        f'<{dsml}invoke name="f">\n<{dsml}parameter name="n" string="false">1</{dsml}parameter>\n</{dsml}invoke>',
        "<tool_call>f\n<arg_key>b</arg_key>\n<arg_value>True</arg_value>\n</tool_call>",
        f"<|tool_call|>[{json_call}, {json_call}]",
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary"
        " to=functions.f <|constrain|>json<|message|>{}<|call|>",
        f"So.\n<tool_call>\n{json_call}\n</tool_call>",
        f"```json\n{json_call}\n```",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}",
        f"{json_call}; {json_call}",
        "<|python_start|>[f(s='a', n=-1.5), f(o=None, b=[True, {'a': (1,)}])]<|python_end|>",
        '<minimax:tool_call>\n<invoke name="f">\n<parameter name="s">a</parameter>\n</invoke>',
        '[TOOL_CALLS]f[CALL_ID]1[ARGS]{"s": "a"}[TOOL_CALLS] [{"name": "f"}]',
        f"functools[{json_call}]",
        "[f(s='a'), f()]",
        "<tool_call>\n<function=f>\n<parameter=s>\na\n</parameter>\n</function>\n</tool_call>",
        "plain",
    ]
    for i, answer in enumerate(answers):
        yield bytes([i, 3, 0, 7]) + b"<think>a</think>\n" + answer.encode()
        yield bytes([i, 4, 2, 9]) + answer.encode()


def hub():
    """A list of files that is taken and one that is refused, an index, and what headers hold."""
    for path, storage in (("d/m-00001-of-00002.gguf", {"sha256": "d" * 64, "size": 9}),
                          ("../x", {"oid": "sha256:" + "d" * 64})):
        yield json.dumps({"sha": "c" * 40, "siblings": [
            {"rfilename": "config.json", "size": 7, "blobId": "e" * 40},
            {"rfilename": path, "size": 9, "lfs": storage},
            {"rfilename": "model.safetensors"}]}).encode()
    yield json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "x/y"}}).encode()
    yield from (b"bytes 5-9/100", b'W/"' + b"d" * 64 + b'"', b'"api";r=0;t=55',
                b"Sun, 09 Sep 2001 01:46:45 GMT", b"org/name@refs/pr/3")


TARGETS = {
    "answer_parts": answer_parts,
    "http": http, "body": body, "generate": generate, "step": step, "http2": http2, "reply": reply,
    "tokenizer": tokenizer, "grammar": grammar, "model_text": model_text, "template": template,
    "gguf": lambda: (micro_llama(kind) for kind in (2, 3, 8)), "safetensors": safetensors,
    "config": config, "torch_file": torch_file, "sentence_piece": sentence_piece,
    "recording": recording, "chat_text": chat_text,


    "recording": recording, "hub": hub,
}


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    for name in sys.argv[2:] or TARGETS:
        folder = pathlib.Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        for i, data in enumerate(TARGETS[name]()):
            (folder / f"seed-{i:02}").write_bytes(data)


if __name__ == "__main__":
    main()
