#!/usr/bin/env python3
"""Checks the rules of docs/STYLE.md that a machine can check, over all tracked files.

Prints one line per finding, `file:line: what`, and exits 1 when there is any. Run from anywhere:
tests/tidy/tidy.py [--self-test].
"""

import graphlib
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

TOP_LEVEL = {
    "proto", "router", "shard", "kernels", "common", "tests", "deploy", "docs", ".ci",
    "CMakeLists.txt", "CMakePresets.json", "README.md", "LICENSE", ".clang-format", ".clang-tidy",
    ".gitignore", ".dockerignore",
}

# Folder -> folders it may include besides itself. deploy is the outermost: `weft inspect` reads
# models with the shard's own code, `weft key` writes the key file with the router's, `weft replay`
# plays recordings with its scheduler, `weft doctor` reads keys and certificates with its readers.
MAY_INCLUDE = {
    "common": set(),
    "kernels": set(),
    "proto": {"proto"},
    "router": {"common", "proto"},
    "shard": {"common", "proto", "kernels"},
    "deploy": {"common", "proto", "shard"},
    "tests": {"common", "proto", "shard", "kernels", "router", "deploy", "tests"},
}

# Headers that may be included beside MAY_INCLUDE: `weft serve` takes the router's flags from the
# router's own table, which knows nothing of the router behind it.
MAY_INCLUDE_HEADER = {
    "deploy": {"router/flag_table.h", "router/doors/identity/api_key.h",
               "router/doors/identity/file_watch.h", "router/doors/identity/key_file.h",
               "router/doors/identity/open_address.h",
               "router/doors/tls/material.h", "router/doors/tls/state.h",
               "router/recording/replay.h"},
}

# Inside a process: inner folder -> inner folders it may include besides itself. A deeper folder
# without a line of its own belongs to the one above it. The table is a graph without circles.
# WORDS are files at the root that everybody may include, and that include only each other; all other
# files at the root put the process together and include what they like, but nobody includes them.
ROOMS = {
    "router": {
        "doors": {"doors/identity", "text", "engine", "observe"},
        "doors/identity": set(),
        "doors/tls": set(),
        "tenants": set(),
        "doors/http": {"doors", "doors/identity", "text", "engine", "observe"},
        "doors/anthropic": {"doors", "doors/http", "text", "engine", "observe"},
        "doors/ollama": {"doors", "doors/http", "doors/openai", "text", "engine", "observe"},
        "doors/openai": {"doors", "doors/http", "text", "engine", "observe"},
        "doors/responses": {"doors", "doors/http", "doors/openai", "text", "engine", "observe"},
        "doors/tgi": {"doors", "doors/http", "doors/openai", "text", "engine", "observe"},
        "doors/api": {"doors", "doors/anthropic", "doors/http", "doors/ollama", "doors/openai",
                      "doors/responses", "doors/tgi"},
        "doors/ops": {"doors", "doors/http", "text", "engine", "observe"},
        "doors/ui": {"doors/http"},
        "doors/grpc": {"doors", "doors/identity", "text", "engine", "observe"},
        "text": {"engine", "scheduler", "observe", "text/ffi"},
        "groups": {"engine", "scheduler", "shards", "observe"},
        "engine": {"recording", "scheduler", "shards", "observe"},
        "recording": {"scheduler"},
        "shards": {"scheduler", "observe"},
        "observe": {"scheduler"},
        "scheduler": set(),
        "text/ffi": set(),
    },
    "shard": {
        "control": {"comm", "device", "kv", "weights"},
        "device/cpu": {"comm", "device", "device/host", "kv", "model", "sampling", "weights"},
        "device/cuda": {"comm", "device", "device/cuda/runtime", "kv", "model", "weights"},
        "sampling": {"comm", "device/host", "weights"},
        "kv": {"device/host", "model"},
        "weights": {"model"},
        "model": set(),
        "device": {"comm", "kv", "model", "weights"},
        "comm": {"device/cuda/runtime"},
        "device/host": set(),
        "device/cuda/runtime": set(),
    },
    "kernels": {
        "cpu": set(),
        "cuda/attention": {"cuda", "cuda/ptx"},
        "cuda/comm": {"cuda", "cuda/ptx"},
        "cuda/experts": {"cuda", "cuda/elementwise", "cuda/gemm", "cuda/ptx"},
        "cuda/elementwise": {"cuda", "cuda/ptx"},
        "cuda/gemm": {"cuda", "cuda/elementwise", "cuda/ptx"},
        "cuda/sampling": {"cuda", "cuda/ptx"},
        "cuda": set(),
        "cuda/ptx": set(),
    },
}
WORDS = {
    "router": {"admission.h", "answer.h", "answer_parts.h", "chat_prompt.h", "context_length.h", "errors.h",
               "grammar_spec.h", "prompt_scores.h", "range.h", "request.h", "scatter.h", "waker.h", "admission.cc",
               "answer.cc", "errors.cc", "prompt_scores.cc",
               # What metrics are labelled with.
               "shards/call.h", "shards/group_state.h",
               # Who a request runs for.
               "tenants/tenant.h", "tenants/tenant_limits.h", "tenants/tenant_meter.h",
               "tenants/tenant_use.h"},
    "shard": {"expert_load.h", "heartbeat.h", "step_batch.h", "step_masks.h", "step_masks.cc"},
    # Numbers that host and device, CPU and GPU agree on.
    "kernels": {"half.h", "philox.h", "random_weight.h", "weight_blocks.h", "weight_format.h",
                "weight_format.cc", "weight_super_blocks.h"},
}

# The scheduler is pure: Abseil containers and our plain headers, nothing that knows time or threads.
SCHEDULER_FORBIDDEN = re.compile(
    r"#include [<\"](thread|mutex|chrono|future|condition_variable|absl/synchronization|absl/time/clock"
    r"|grpc|boost|spdlog|prometheus|common/(clock|thread|log|metrics|bounded_queue))")

# gRPC is slow to compile and belongs to the edges of a process.
GRPC_ALLOWED = re.compile(
    r"^(router/(doors/grpc/|shards/client|main|engine/)|shard/(control/(health_service|peer_credentials|step_service)|main)|deploy/launcher/|tests/|docs/examples/)")

LINE_MAX = 100
FILE_MAX = 600
FUNCTION_MAX = 90

# path -> reason, for files that may be longer than FILE_MAX.
LONG_FILES = {}

# path -> reason, for the few places that may sleep.
SLEEPS = {
    "docs/examples/generate/cpp/generate.cc": "waits as long as the server asks for",
    "router/doors/http/server.cc": "drain polls a counter once in a process's life",
    "tests/router/engine/cost_test.cc": "the slow router that shards must not wait for",
    "tests/router/engine/engine_rig.cc": "polls a condition with a deadline",
    "tests/router/recording/recorded_world.cc": "polls a condition with a deadline",
    "tests/support/mock_process.cc": "the mock's step time",
}

BANNED = [
    (re.compile(r"\bstd::string_view\b"), "std::string_view (use absl::string_view)"),
    (re.compile(r"^\s*using namespace\b"), "using namespace"),
    (re.compile(r"\.detach\(\)"), "a detached thread"),
    (re.compile(r"\b(sleep_for|sleep_until|usleep|SleepFor)\b"), "a sleep (wait for the event instead)"),
    (re.compile(r"\b(TODO|FIXME|XXX|HACK)\b"), "an unfinished mark"),
    (re.compile(r"\bthrow\s+[A-Za-z_:]+[({]"), "throw (return absl::Status)"),
    (re.compile(r"\bstd::regex\b"), "std::regex"),
    (re.compile(r'\bTEST_CASE\("-'), "a test's name begins with a dash (Catch2 takes it for an option)"),
]

SOURCE = {".h", ".cc", ".cu", ".cuh"}


def tracked():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True,
                         capture_output=True, text=True).stdout
    return [path for path in out.splitlines() if (ROOT / path).is_file()]


def strip_comment(line):
    return line.split("//")[0]


def function_lengths(lines):
    """Yields (first line number, length) of blocks that open at namespace or class level."""
    start = None
    for number, line in enumerate(lines, 1):
        if start is None:
            # clang-format puts the body of a function at the indentation of its first line.
            if line and not line[0].isspace() and line.rstrip().endswith("{") and "(" in line and \
                    not line.startswith(("namespace", "extern", "class", "struct", "enum", "#")):
                start = number
        elif line.startswith("}"):
            yield start, number - start + 1
            start = None


def room(process, path):
    """The inner folder of a file by its path inside `process`; "" at its root; None without a line."""
    folder = str(pathlib.PurePosixPath(path).parent)
    while folder not in ROOMS[process] and folder != ".":
        folder = str(pathlib.PurePosixPath(folder).parent)
        if folder == ".":
            return None
    return "" if folder == "." else folder


def check_rooms(path, number, included):
    """An include of a process's own file, against the table of its rooms."""
    process, _, inside = path.partition("/")
    target_process, _, target = included.partition("/")
    if process not in ROOMS or target_process != process or target in WORDS[process]:
        return
    here, there = room(process, inside), room(process, target)
    if here == there:
        if here == "" and inside in WORDS[process]:
            yield number, f"{path} is a word of all folders: it may include nothing but other words"
        return
    if here == "" and inside not in WORDS[process]:
        return
    if there is None or here is None:
        yield number, f"{process}/: a folder without a line in ROOMS"
    elif there not in ROOMS[process].get(here, set()):
        yield number, f"{process}/{here or '(words)'} may not include {process}/{there or '(root)'}"


def check_table():
    for process, rooms in ROOMS.items():
        try:
            graphlib.TopologicalSorter(rooms).prepare()
        except graphlib.CycleError as error:
            yield "tests/tidy/tidy.py", 1, f"ROOMS of {process}/ go in a circle: {error.args[1]}"
        for folder in set(rooms) | set().union(*rooms.values()):
            if folder not in rooms or not (ROOT / process / folder).is_dir():
                yield "tests/tidy/tidy.py", 1, f"ROOMS: {process}/{folder} has no line or is no folder"


def check_assembly(path, lines):
    if path.startswith("kernels/cuda/") and not path.startswith("kernels/cuda/ptx/"):
        for number, line in enumerate(lines, 1):
            if re.search(r"\basm\b", strip_comment(line)):
                yield number, "inline assembly belongs to kernels/cuda/ptx/"


def check_includes(path, lines):
    folder = path.split("/")[0]
    allowed = MAY_INCLUDE.get(folder)
    for number, line in enumerate(lines, 1):
        match = re.match(r'#include "([^"]+)"', line)
        if match:
            target = match.group(1).split("/")[0]
            if match.group(1).endswith(".pb.h"):
                target = "proto"  # generated from it
            if allowed is not None and target in MAY_INCLUDE and target != folder and \
                    target not in allowed and \
                    match.group(1) not in MAY_INCLUDE_HEADER.get(folder, ()):
                yield number, f"{folder}/ may not include {target}/"
            yield from check_rooms(path, number, match.group(1))
            if re.match(r"(grpcpp|grpc)/", match.group(1)) or match.group(1).endswith(".grpc.pb.h"):
                if not GRPC_ALLOWED.match(path):
                    yield number, "gRPC headers are not allowed here"
        if path.startswith("router/scheduler/") and SCHEDULER_FORBIDDEN.match(line):
            yield number, "the scheduler is pure: it may not know this header"
        if path.startswith("kernels/") and re.match(r'#include "(?!kernels/)', line):
            yield number, "kernels/ includes itself and its platform's headers only"


def check_source(path, text):
    lines = text.split("\n")
    yield from check_includes(path, lines)
    yield from check_assembly(path, lines)
    for number, line in enumerate(lines, 1):
        if len(line) > LINE_MAX and "http" not in line and "#include" not in line:
            yield number, f"{len(line)} columns (at most {LINE_MAX})"
        code = strip_comment(line)
        for pattern, what in BANNED:
            if not pattern.search(line if "mark" in what else code):
                continue
            # A test may fail by an exception; a few places may sleep.
            if "throw" in what and path.startswith("tests/") or "sleep" in what and path in SLEEPS:
                continue
            yield number, what
    if path.endswith((".h", ".cuh")):
        if "#pragma once" not in text:
            yield 1, "no #pragma once"
        if not text.startswith("//"):
            yield 1, "a header begins with a paragraph that says what it is"
    limit = FILE_MAX if path not in LONG_FILES else 10**9
    if len(lines) > limit:
        yield 1, f"{len(lines)} lines (at most {FILE_MAX}; split it or list it with a reason)"
    for number, length in function_lengths(lines):
        # A table of cases makes a test long, not hard to read.
        most = 2 * FUNCTION_MAX if path.startswith("tests/") else FUNCTION_MAX
        if length > most:
            yield number, f"a function of {length} lines (at most {most})"


def check_tree(paths):
    for path in paths:
        if path.split("/")[0] not in TOP_LEVEL:
            yield path, 1, "not one of the top-level folders and files"
    lists = {str(pathlib.PurePosixPath(path).parent): (ROOT / path).read_text()
             for path in paths if path.endswith("CMakeLists.txt")}
    for path in paths:
        if path.endswith((".cc", ".cu")):
            file = pathlib.PurePosixPath(path)
            # A list in the file's folder or above it names the file, perhaps with its suffix added there.
            if not any(re.search(rf"\b{re.escape(file.stem)}\b", lists.get(str(folder), ""))
                       for folder in file.parents):
                yield path, 1, "no CMakeLists.txt names this file"


def check_docs(path, text):
    for number, line in enumerate(text.split("\n"), 1):
        for name in re.findall(r"`((?:proto|router|shard|common|kernels|tests|deploy|docs)/[\w./-]+)`", line):
            target = ROOT / name
            if not target.exists() and not list(target.parent.glob(target.name + "*")):
                yield number, f"names {name}, which does not exist"


def check_metrics(text, documented):
    for number, line in enumerate(text.split("\n"), 1):
        for name in re.findall(r'"((?:weft|process|grpc_server)_[a-z0-9_]+)"', line):
            if f"`{name}`" not in documented:
                yield number, f"docs/METRICS.md does not list {name}"


def findings():
    paths = tracked()
    yield from check_tree(paths)
    yield from check_table()
    documented = (ROOT / "docs/METRICS.md").read_text()
    for path in ("router/observe/probe.cc", "shard/control/probe.cc"):
        for number, what in check_metrics((ROOT / path).read_text(), documented):
            yield path, number, what
    for path in paths:
        if pathlib.PurePosixPath(path).suffix in SOURCE:
            for number, what in check_source(path, (ROOT / path).read_text()):
                yield path, number, what
        elif path.endswith(".md"):
            for number, what in check_docs(path, (ROOT / path).read_text()):
                yield path, number, what


def self_test():
    """Each rule must fire on a line made to break it."""
    bad = '#include "router/request.h"\nusing namespace std;\nstd::string_view v;\n' + "x" * 101
    found = {what for _, what in check_source("shard/bad.h", bad)}
    for expected in ("shard/ may not include router/", "using namespace", "no #pragma once",
                     "101 columns (at most 100)", "std::string_view (use absl::string_view)"):
        assert expected in found, expected
    assert not list(check_source("deploy/good.cc", '#include "router/flag_table.h"\n'))
    assert list(check_source("deploy/bad.cc", '#include "router/flags.h"\n'))
    assert list(check_source("tests/bad.cc", 'TEST_CASE("--flag")'))
    body = "void F() {\n" + "  x();\n" * 100 + "}\n"
    assert any("a function of" in what for _, what in check_source("shard/bad.cc", body))
    assert list(check_metrics('Gauge("weft_nowhere")', "`weft_somewhere`"))
    for path, included, fine in (
            ("shard/comm/bad.cc", "shard/device/cpu/ops.h", False),
            ("shard/model/families/bad.cc", "shard/model/decoder.h", True),
            ("shard/model/bad.cc", "shard/weights/loader.h", False),
            ("shard/model/bad.cc", "shard/step_batch.h", True),
            ("shard/step_batch.h", "shard/comm/communicator.h", False),
            ("shard/kv/bad.cc", "shard/flags.h", False),
            ("shard/main.cc", "shard/control/executor.h", True),
            ("shard/new/bad.cc", "shard/comm/communicator.h", False)):
        found = list(check_rooms(path, 1, included))
        assert bool(found) != fine, (path, included, found)
    clock = '#include "common/clock.h"\n'
    assert any("pure" in what for _, what in check_source("router/scheduler/bad.cc", clock))


def main():
    if "--self-test" in sys.argv:
        self_test()
    count = 0
    for path, number, what in findings():
        print(f"{path}:{number}: {what}")
        count += 1
    print(f"tidy: {count} findings")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
