"""Writes dequant_golden.h: blocks of known bytes and what PyPI gguf dequantises them to.

Run: python make_dequant_golden.py > dequant_golden.h   (needs numpy and gguf)
"""

import numpy as np
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
    print("}  // namespace weft::kernels::cpu::testing")


main()
