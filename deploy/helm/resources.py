#!/usr/bin/env python3
"""Values of the chart for a model, from what `weft inspect` says it needs: shards, and memory for
pods of CPU shards. Prints YAML for `helm install --values`.

    deploy/helm/resources.py MODEL --device cuda --device-memory 141GiB --context 8192
    deploy/helm/resources.py MODEL --device cpu --shards 2
"""

import argparse
import json
import math
import pathlib
import shutil
import subprocess
import sys

MIB = 1 << 20
# CUDA's libraries, which are in the image's shards and launcher also where the CPU computes.
LIBRARY_BYTES = 100 * MIB
# A shard's process beside its plan, as it counts itself (docs/OPERATIONS.md, Memory and cores).
PROCESS_BYTES = 64 * MIB + LIBRARY_BYTES
# The router: texts and bodies at their default bounds, tokenizer, connections.
ROUTER_BYTES = 1024 * MIB


def weft():
    built = pathlib.Path(__file__).resolve().parents[2] / "build/release/bin/weft"
    found = shutil.which("weft") or (str(built) if built.exists() else None)
    return found or sys.exit(
        f"resources.py: no weft on the PATH, and no {built}; name one with --weft")


def inspect(options):
    command = [options.weft or weft(), "inspect", options.model, "--json",
               f"--device={options.device}", f"--kv-memory={options.kv_memory}"]
    if options.device == "cuda":
        command.append(f"--device-memory={options.device_memory}")
    if options.config_only:
        command.append("--weights=random")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip() or f"resources.py: {command[0]} ended with {done.returncode}")
    return json.loads(done.stdout)


def choose(model, options):
    """The plan with the wanted number of shards, else the first that holds the wanted context."""
    plans = [one for one in model["plans"] if one.get("kv_tokens", 0) > 0]
    if options.shards:
        plans = [one for one in plans if one["shards"] == options.shards]
        if not plans:
            counts = ", ".join(str(one["shards"]) for one in model["plans"])
            sys.exit(f"resources.py: --shards {options.shards}: weft inspect plans {counts}, and "
                     "those must fit the memory")
        return plans[0]
    context = options.context or model["context_tokens"]
    for plan in plans:
        if plan["kv_tokens"] >= context:
            return plan
    sys.exit(f"resources.py: no number of shards has room for a context of {context} tokens: "
             "give a smaller --context or more --kv-memory")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="model directory or .gguf file")
    parser.add_argument("--weft", help="the weft to ask; the one on the PATH or in build/release")
    parser.add_argument("--config-only", action="store_true", help="MODEL has config.json alone")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--device-memory", default="141GiB", help="memory of each GPU")
    parser.add_argument("--kv-memory", default="auto", help="KV pool of all shards, as 4GiB")
    parser.add_argument("--shards", type=int, help="as many; without it as few as hold --context")
    parser.add_argument("--context", type=int, help="tokens that the pool must hold; the model's")
    options = parser.parse_args()
    model = inspect(options)
    plan = choose(model, options)
    shards = plan["shards"]
    each = plan["weights_bytes_per_shard"] + plan["workspace_bytes_per_shard"]
    print(f"# {model['family']}, {model['parameters'] / 1e9:.3g} B parameters: {shards} shard(s) "
          f"of {each / MIB:.0f} MiB,\n# a KV pool of {plan['kv_tokens']} tokens in "
          f"{plan['kv_bytes'] / MIB:.0f} MiB.")
    print(f"shards: {shards}\ndevice: {options.device}")
    if options.device == "cuda":
        return
    total = math.ceil((shards * (each + PROCESS_BYTES) + plan["kv_bytes"] + ROUTER_BYTES +
                       LIBRARY_BYTES) / MIB)
    print(f"shardFlags: {{kv-memory: {math.ceil(plan['kv_bytes'] / MIB)}MiB}}")
    print(f"resources:\n  requests: {{memory: {total}Mi}}\n  limits: {{memory: {total}Mi}}")


if __name__ == "__main__":
    main()
