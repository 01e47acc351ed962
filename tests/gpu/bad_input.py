"""What cannot work: `weft serve` ends by itself, soon, non-zero, and says what would work."""

import os
import pathlib
import socket
import subprocess
import time

from report import require
from weft_server import BIN, DEMO_MODEL, ROOT

END_WITHIN_S = 10
SHAPES = ROOT / "tests/bench/shapes"


def refused(words, argv, environment=None):
    """Runs `argv`, which must say all `words` in one line."""
    begin = time.monotonic()
    try:
        result = subprocess.run(argv, capture_output=True, text=True, timeout=3 * END_WITHIN_S,
                                env={**os.environ, **(environment or {})})
    except subprocess.TimeoutExpired:
        raise AssertionError(f"still running after {3 * END_WITHIN_S} s") from None
    took_s = time.monotonic() - begin
    said = result.stdout + result.stderr
    lines = [line for line in said.splitlines() if all(word in line for word in words)]
    require(result.returncode > 0, f"exit code {result.returncode}: {said[-500:]}")
    require("ready " not in result.stdout, "it says that it is ready")
    require(lines, f"no line has all of {words}: {said[-800:]}")
    require(took_s < END_WITHIN_S, f"took {took_s:.1f} s")
    return lines[0].split("shard-0")[-1].strip()[-220:]


def serve(*flags, model=DEMO_MODEL):
    return [str(BIN / "weft"), "serve", f"--model={model}", "--http-port=0", "--grpc-port=0",
            *flags]


def shard(*flags, model, folder):
    """A shard alone: a shape has no tokenizer, which a router would look for."""
    return [str(BIN / "weft-shard"), f"--model={model}", f"--socket={folder}/refused.sock", *flags]


def check_all(report, device, gpus, folder):
    """Runs every case that this machine and device have."""
    for name, words, argv, environment in cases(device, gpus, pathlib.Path(folder)):
        report.check(f"bad input: {name}", refused, words, argv, environment)
    report.check("bad input: port taken", port_taken)


def port_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        return refused([str(port)], serve("--device=cpu", f"--http-port={port}"))


def cases(device, gpus, folder):
    """(name, words of one line, command line, environment)."""
    yield ("no such device", ["--device", "quux", "auto, cpu, cuda"], serve("--device=quux"), None)
    yield ("shards beyond the model's heads", ["10 shards", "1 to 9 shards would work"],
           serve("--shards=10", "--device=cpu"), None)
    yield ("WEFT_SHARDS no number", ["shards"], serve(), {"WEFT_SHARDS": "two"})
    yield ("WEFT_SHARDS out of range", ["shards", "64"], serve(), {"WEFT_SHARDS": "65"})
    yield ("unknown type", ["--dtype", "float8"], serve("--dtype=float8"), None)
    yield ("memory fraction out of range", ["--memory-fraction", "0.05 .. 0.99"],
           serve("--memory-fraction=2"), None)
    yield ("steps smaller than the batch", ["--step-tokens-max"],
           serve("--running-max=64", "--step-tokens-max=8"), None)
    yield ("rank beyond the world", ["--rank", "0 .. 1"],
           shard("--rank=2", "--world=2", model=DEMO_MODEL, folder=folder), None)
    # Without a driver nothing is said about the variable.
    yield ("no GPU to be seen",
           ["--device cuda", "--device cpu", *(["CUDA_VISIBLE_DEVICES"] if gpus else [])],
           serve("--device=cuda"), {"CUDA_VISIBLE_DEVICES": ""})
    if device == "cpu":
        yield ("KV pool of no block", ["--kv-memory"], serve("--device=cpu", "--kv-memory=1KiB"),
               None)
        return
    cuda = "--device=cuda"
    yield ("KV pool of no block", ["--kv-memory", "KV block"], serve(cuda, "--kv-memory=1KiB"),
           None)
    yield ("float16 activations", ["--dtype", "bfloat16", "float32"],
           serve(cuda, "--dtype=float16"), None)
    yield ("KV cache of another type", ["--kv-dtype", "activations"],
           serve(cuda, "--kv-dtype=float16"), None)
    yield ("a model that does not fit",
           ["--memory-fraction 0.05", "needs", "weights", "It fits with", "more shards"],
           shard(cuda, "--weights=random", "--rank=0", "--world=1", "--memory-fraction=0.05",
                 model=SHAPES / "llama-3.1-8b", folder=folder), None)
    if gpus < 9:  # more shards than that the demo model refuses by itself
        words = [f"--device-index {gpus}", f"sees {gpus} GPUs",
                 "as many shards as there are GPUs", "--device cpu"]
        for which in ("cuda", "auto"):
            yield (f"more shards than GPUs, {which}", words,
                   serve(f"--device={which}", f"--shards={gpus + 1}"), None)
