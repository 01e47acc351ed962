"""Writes dequant_golden.h: blocks of known bytes and what PyPI gguf dequantises them to.

Of the first formats all bytes and numbers; of the others the bytes come from splitmix64, which the
tests have too, and of the numbers the file holds the first and a hash of all.

Run: python make_dequant_golden.py > dequant_golden.h   (needs numpy and gguf)
"""

import numpy as np
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as T
from gguf import quants

INPUTS = 64
ROWS = 2
# Scales: ordinary, negative, subnormal f16, zero.
SCALES = np.array([0.0123, -0.37, 3e-7, 0.0], dtype=np.float16)
MINIMA = np.array([-0.21, 0.013, 5e-6, -1.5], dtype=np.float16)


def source(kind, rng):
    blocks = []
    for b in range(ROWS * INPUTS // 32):
        head = SCALES[b : b + 1].tobytes()
        if kind == T.Q4_1:
            head += MINIMA[b : b + 1].tobytes()
        count = 32 if kind == T.Q8_0 else 16
        body = rng.integers(0, 256, count, dtype=np.uint8)
        body[0] = 0x80
        blocks.append(head + body.tobytes())
    return np.frombuffer(b"".join(blocks), dtype=np.uint8).reshape(ROWS, -1)


def numbers(values, form, per_line):
    texts = [form.format(v) for v in values]
    lines = [", ".join(texts[i : i + per_line]) for i in range(0, len(texts), per_line)]
    return ",\n    ".join(lines)


# Blocks of each hashed format, and where their f16 numbers lie.
HASHED_ROWS = 3
HASHED_BLOCKS = 16
HASHED = (
    (T.Q5_0, [0]),
    (T.Q5_1, [0, 2]),
    (T.Q2_K, [80, 82]),
    (T.Q3_K, [108]),
    (T.Q4_K, [0, 2]),
    (T.Q5_K, [0, 2]),
    (T.Q6_K, [208]),
    (T.IQ4_NL, [0]),
    (T.IQ4_XS, [0]),
    (T.MXFP4, []),
)
MASK = (1 << 64) - 1


def splitmix64(seed, count):
    state = seed
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def hashed_source(kind, halves):
    size = GGML_QUANT_SIZES[kind][1]
    count = HASHED_ROWS * HASHED_BLOCKS
    data = np.array([z & 255 for z in splitmix64(int(kind), count * size)], dtype=np.uint8)
    blocks = data.reshape(count, size)
    for at in halves:
        # No infinities: their exponent has all bits set.
        blocks[:, at + 1] &= 0xFB
    return blocks.reshape(HASHED_ROWS, -1)


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def print_hashed():
    print(f"inline constexpr int kHashedRows = {HASHED_ROWS};")
    print(f"inline constexpr int kHashedBlocks = {HASHED_BLOCKS};\n")
    print("// Seed is the format's GGUF number; f16 numbers of a block lie at `halves`, -1 for none.")
    print("struct HashedGolden {\n  const char* name;\n  int seed;\n  int halves[2];")
    print("  uint32_t first[4];\n  uint64_t hash;\n};")
    print("inline constexpr HashedGolden kHashedGoldens[] = {")
    for kind, halves in HASHED:
        floats = quants.dequantize(hashed_source(kind, halves), kind).astype(np.float32)
        bits = floats.reshape(-1).view(np.uint32)
        places = ", ".join(str(p) for p in (halves + [-1, -1])[:2])
        print(f'    {{"{kind.name}", {int(kind)}, {{{places}}}, ')
        print(f'     {{{numbers(bits[:4], "0x{:08x}", 4)}}}, 0x{fnv1a(bits.tobytes()):016x}}},')
    print("};\n")


def main():
    rng = np.random.default_rng(20260101)
    print("// Made by make_dequant_golden.py: source bytes and the float32 bits that PyPI gguf gives.")
    print("\n#pragma once\n\n#include <cstdint>\n")
    print("namespace weft::kernels::cpu::testing {\n")
    print(f"inline constexpr int kGoldenRows = {ROWS};")
    print(f"inline constexpr int kGoldenInputs = {INPUTS};\n")
    for kind, name in ((T.Q4_0, "Q4_0"), (T.Q4_1, "Q4_1"), (T.Q8_0, "Q8_0")):
        data = source(kind, rng)
        floats = quants.dequantize(data, kind).astype(np.float32)
        bits = floats.reshape(-1).view(np.uint32)
        name = name.replace("_", "")
        print(f"inline constexpr uint8_t kGolden{name}Bytes[] = {{")
        print("    " + numbers(data.reshape(-1), "0x{:02x}", 16) + "};")
        print(f"inline constexpr uint32_t kGolden{name}Bits[] = {{")
        print("    " + numbers(bits, "0x{:08x}", 8) + "};\n")
    print_hashed()
    print("}  // namespace weft::kernels::cpu::testing")


main()
