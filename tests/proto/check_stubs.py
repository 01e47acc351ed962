#!/usr/bin/env python3
"""Makes client stubs of our protos in five languages, with nothing but `protoc -I proto`, as
somebody does who writes a client; then looks at what came out.

C++: the generated headers name our services. Python: the stubs import beside the packages `google`
and `grpc` of this interpreter. Go: gofmt parses them. Java: the classes lie where java_package says.
TypeScript: tsc checks them. A missing tool is a failure, never a skip: deploy/setup.sh --tests
installs them all.

Usage: check_stubs.py NODE_MODULES [LANGUAGE ...]
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = ["weft/v1/types.proto", "weft/v1/generation.proto", "weft/shard/v1/shard.proto",
         "inference/open_inference.proto"]


def tool(name):
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/local/go/bin")
    if found is None:
        raise AssertionError(f"{name} is missing: run deploy/setup.sh --tests")
    return found


def run(*command, **arguments):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=60, **arguments)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def protoc(*arguments):
    """Each file in a run of its own: so that it needs nothing but what it imports."""
    for file in FILES:
        run(tool("protoc"), "-I", ROOT / "proto", *arguments, file)


def expect(folder, *files, holds=()):
    """All files exist; the last one holds these words."""
    for file in files:
        if not (folder / file).is_file():
            made = sorted(str(path.relative_to(folder)) for path in folder.rglob("*.*"))
            raise AssertionError(f"no {file}; made: {made}")
    text = (folder / files[-1]).read_text()
    for word in holds:
        if word not in text:
            raise AssertionError(f"{files[-1]} does not hold `{word}`")


def check_cpp(out, _):
    protoc(f"--cpp_out={out}", f"--grpc_out={out}",
           f"--plugin=protoc-gen-grpc={tool('grpc_cpp_plugin')}")
    expect(out, "weft/shard/v1/shard.grpc.pb.h", holds=["namespace shard", "class ShardService"])
    expect(out, "weft/v1/types.pb.h", "weft/v1/generation.grpc.pb.h",
           holds=["class TextGeneration final"])


def check_python(out, _):
    protoc(f"--python_out={out}", f"--grpc_out={out}",
           f"--plugin=protoc-gen-grpc={tool('grpc_python_plugin')}")
    run(sys.executable, "-c", """
import google.protobuf.message, grpc
from weft.v1 import generation_pb2, generation_pb2_grpc
from weft.shard.v1 import shard_pb2, shard_pb2_grpc
request = generation_pb2.GenerateRequest(text="Hi")
assert generation_pb2.GenerateRequest.FromString(request.SerializeToString()).text == "Hi"
channel = grpc.insecure_channel("127.0.0.1:1")
assert generation_pb2_grpc.TextGenerationStub(channel).Generate
assert shard_pb2_grpc.ShardServiceStub(channel).Decode
""", env={**os.environ, "PYTHONPATH": str(out), "PYTHONDONTWRITEBYTECODE": "1"})


def check_go(out, _):
    for name in ("protoc-gen-go", "protoc-gen-go-grpc"):
        tool(name)
    protoc(f"--go_out={out}", f"--go-grpc_out={out}")
    expect(out, "weft/v1/types.pb.go", "weft/v1/generation.pb.go", "weft/shard/v1/shard_grpc.pb.go",
           holds=["package shardv1"])
    expect(out, "weft/v1/generation_grpc.pb.go", holds=["package weftv1", "TextGenerationClient"])
    run(tool("gofmt"), "-e", "-l", *sorted(out.rglob("*.go")))


def check_java(out, _):
    protoc(f"--java_out={out}", f"--grpc_out={out}",
           f"--plugin=protoc-gen-grpc={tool('grpc_java_plugin')}")
    expect(out, "weft/shard/v1/ShardServiceGrpc.java", holds=["package weft.shard.v1;"])
    expect(out, "weft/v1/GenerateRequest.java", "weft/v1/TextGenerationGrpc.java",
           holds=["package weft.v1;"])


def check_typescript(out, modules):
    plugin = modules / ".bin/protoc-gen-ts"
    if not plugin.exists():
        raise AssertionError(f"{plugin} is missing: run deploy/setup.sh --tests")
    tool("node")
    protoc(f"--ts_out={out}", f"--plugin=protoc-gen-ts={plugin}")
    expect(out, "weft/shard/v1/shard.client.ts", "weft/v1/generation.client.ts",
           holds=["class TextGenerationClient"])
    (out / "node_modules").symlink_to(modules)
    run(modules / ".bin/tsc", "--noEmit", "--strict", "--skipLibCheck", "--target", "es2020", "--module",
        "commonjs", "--moduleResolution", "node", *sorted((out / "weft").rglob("*.ts")), cwd=out)


CHECKS = {"cpp": check_cpp, "python": check_python, "go": check_go, "java": check_java,
          "typescript": check_typescript}


def main():
    modules = pathlib.Path(sys.argv[1]).resolve()
    failed = False
    for language in sys.argv[2:] or CHECKS:
        with tempfile.TemporaryDirectory(prefix="weft-stubs-") as folder:
            try:
                CHECKS[language](pathlib.Path(folder), modules)
                print(f"{language}: ok")
            except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
                failed = True
                print(f"{language}: {error}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
