"""The programs of docs/CLIENTS.md, as they stand there, each with the Python or Node.js that has
its client; and that the versions in its table are those that are pinned.

`full` as the last argument runs those of the large clients instead."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from clients import ClientTest
from weft_server import ROOT, WEFT_CACHE, run_tests, skip

TEXT = (ROOT / "docs/CLIENTS.md").read_text()
FOLDER = ROOT / "tests/integration"
DOCUMENTED_ADDRESS = "http://localhost:8080"
FULL = sys.argv[-1] == "full"
TIMEOUT_S = 180
# Section: (virtual environment, what its program has to say).
SMALL_CLIENTS = {"openai": ("test-venv", "country="), "openai Responses": ("test-venv", "Paris"),
                 "huggingface_hub": ("test-venv", "Paris"),
                 "langchain": ("test-venv", "Paris"), "text-generation": ("test-venv-tgi", "Paris"),
                 "litellm": ("test-venv-tgi", "Paris")}
LARGE_CLIENTS = {"llama-index": ("test-venv-clients", "Paris")}


def program(section, language):
    body = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", TEXT, re.M | re.S).group(1)
    return re.search(rf"```{language}\n(.*?)```", body, re.S).group(1)


class ClientsDocTest(ClientTest):
    def here(self, text):
        self.assertIn(DOCUMENTED_ADDRESS, text)
        return text.replace(DOCUMENTED_ADDRESS, self.url)

    def run_program(self, argv, folder, **environment):
        environment = {**os.environ, "HF_HOME": str(folder), **environment}
        done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S,
                              check=False, env=environment)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def python(self, clients):
        for section, (venv, expected) in clients.items():
            interpreter = WEFT_CACHE / venv / "bin/python3"
            if not (WEFT_CACHE / venv / "requirements.txt").is_file():
                skip("clients", f"{venv} is missing; deploy/setup.sh --tests --clients installs it")
            with self.subTest(section), tempfile.TemporaryDirectory() as folder:
                script = pathlib.Path(folder) / "program.py"
                script.write_text(self.here(program(section, "python")))
                said = self.run_program([interpreter, script], folder,
                                        LITELLM_LOCAL_MODEL_COST_MAP="True")
                self.assertIn(expected, said)

    def test_programs_in_python(self):
        self.python(LARGE_CLIENTS if FULL else SMALL_CLIENTS)

    def test_the_program_in_javascript(self):
        if FULL:
            return
        node, modules = shutil.which("node"), WEFT_CACHE / "test-clients-node"
        if node is None or not (modules / "installed").is_file():
            skip("node", "Node.js or the packages of tests/integration/node are missing; "
                 "deploy/setup.sh --tests installs them")
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "node_modules").symlink_to(modules / "node_modules")
            script = pathlib.Path(folder) / "program.mjs"
            script.write_text(self.here(program("openai in JavaScript", "javascript")))
            self.assertIn("Paris", self.run_program([node, script], folder))

    def test_the_benchmarks(self):
        if not FULL:
            return
        venv = WEFT_CACHE / "test-venv-clients"
        if not (venv / "requirements.txt").is_file():
            skip("clients", "test-venv-clients is missing; deploy/setup.sh --clients installs it")
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "prompts.jsonl").write_text(
                '{"prompt": "The capital of France is", "output_tokens_count": 4}\n' * 12)
            self.run_program(
                ["bash", "-euc", self.here(program("guidellm", "sh"))], folder,
                PYTHONPATH=str(FOLDER / "stand_ins"), HF_HUB_OFFLINE="1",
                PATH=f"{venv}/bin:{os.environ['PATH']}")
            report = json.loads((pathlib.Path(folder) / "report.json").read_text())
            # Only here: its module needs what this Python has not.
            tokenizer = subprocess.run(
                [venv / "bin/python3", "-c", "import demo_model_files as files, shutil, unittest\n"
                 "one = type('One', (unittest.TestCase,), {})\n"
                 "shutil.copytree(files.tokenizer_folder(one), 'tokenizer')"],
                cwd=folder, check=False, capture_output=True, text=True, timeout=TIMEOUT_S,
                env={**os.environ, "PYTHONPATH": str(FOLDER)})
            self.assertEqual(tokenizer.returncode, 0, tokenizer.stderr)
            command = self.here(program("aiperf", "sh")).replace("MODEL_FOLDER",
                                                                 f"{folder}/tokenizer")
            self.run_program(["bash", "-euc", command], folder,
                             PATH=f"{venv}/bin:{os.environ['PATH']}")
            profile, = pathlib.Path(folder).rglob("profile_export_aiperf.json")
            self.assertEqual(json.loads(profile.read_text())["request_count"]["avg"], 12)
        state = report["benchmarks"][0]["scheduler_state"]
        self.assertEqual((state["successful_requests"], state["errored_requests"]), (12, 0))

    def test_the_versions_are_those_that_are_pinned(self):
        pinned = dict(line.split("==") for path in FOLDER.glob("requirements*.txt")
                      for line in path.read_text().split())
        # Some are in two of them, for other clients' sake.
        pinned |= dict(line.split("==") for line in
                       (FOLDER / "requirements.txt").read_text().split())
        pinned["llama-index"] = pinned["llama-index-llms-openai-like"]
        pinned["lm-eval"] = pinned["lm-eval[api]"]
        pinned["guidellm"] = re.search(r"guidellm==([\d.]+)", (
            ROOT / "deploy/setup.sh").read_text()).group(1)
        pinned["openai, JavaScript"] = json.loads(
            (FOLDER / "node/package.json").read_text())["dependencies"]["openai"]
        rows = re.findall(r"^\| \[?([\w-]+)(?:\]\([^)]*\))?([^|]*)\| ([\d.]+) \|", TEXT, re.M)
        self.assertGreater(len(rows), 8)
        for name, more, version in rows:
            name += more.strip() if more.strip() == ", JavaScript" else ""
            self.assertEqual(pinned[name], version, name)


if __name__ == "__main__":
    if FULL:
        sys.argv.pop()
    run_tests()
