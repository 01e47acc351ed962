"""What the templates render against the programs themselves: each flag and each variable is one
that --help has, files/programs.yaml says what is there, and the rendered command line is understood."""

import os
import pathlib
import re
import shlex
import subprocess
import unittest

import yaml

from helm_chart import (EXAMPLES, KUBERNETES, ROOT, SCRATCH, chart_of_tomorrow, containers,
                        helm, programs, render, tool)
from skips import run_tests

BIN = pathlib.Path(os.environ.get("WEFT_BIN_DIR", ROOT / "build/ci/bin"))


def help_text(*command):
    done = subprocess.run([BIN / command[0], *command[1:], "--help"], capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def command_lines(chart):
    """(where, program with its subcommand, arguments, environment) of all that is rendered."""
    for path in EXAMPLES:
        for name, container in containers(render(files=[path], chart=chart)):
            words = container["command"] + container["args"]
            program = tuple(word for word in words if not word.startswith("-"))
            yield (f"{path.name}: {name}", program,
                   [word for word in words if word.startswith("-")],
                   [one["name"] for one in container["env"]])


class Flags(unittest.TestCase):
    def test_every_flag_and_variable_is_one_that_the_program_has(self):
        waited_for = {one["shown"] for one in programs().values() if not one["there"]}
        seen = set()
        for where, program, arguments, environment in command_lines(chart_of_tomorrow()):
            text = help_text(*program)
            known = set(re.findall(r"^  (?:-\w,)?(--[a-z-]+)", text, re.M))
            self.assertGreater(len(known), 10, program)
            for argument in arguments:
                flag = argument.partition("=")[0]
                self.assertIn(flag, known | waited_for, f"{where}: {program} has no {flag}")
                seen.add((program[0], flag))
            variables = set(re.findall(r"\(Env:(WEFT_[A-Z_]+)\)", text))
            for name in environment:
                if name.startswith("WEFT_"):
                    self.assertIn(name, variables, where)
        # One of each program, so that the loop above has looked at all three.
        self.assertLessEqual({("weft", "--shards"), ("weft-router", "--shard-tls-ca"),
                              ("weft-shard", "--listen")}, seen)

    def test_what_the_programs_can_do_is_what_the_chart_says_of_them(self):
        for name, one in programs().items():
            there = one["shown"] in help_text(one["program"])
            self.assertEqual(one["there"], there,
                             f"files/programs.yaml: {name}: `{one['program']} --help` "
                             f"{'shows' if there else 'does not show'} {one['shown']}")

    def test_the_chart_is_for_this_version_of_weft(self):
        said = subprocess.run([BIN / "weft", "--version"], capture_output=True, text=True,
                              timeout=60).stdout
        chart = yaml.safe_load((ROOT / "deploy/helm/weft/Chart.yaml").read_text())
        self.assertEqual(said.split()[:2], ["weft", chart["appVersion"]])

    def test_flags_that_the_chart_keeps_for_itself_are_flags(self):
        text = (chart_of_tomorrow() / "templates/_check_flags.tpl").read_text()
        table = re.search(r'\$own := dict (.*?)-}}', text, re.S).group(1)
        kept = re.findall(r'"([^"]*)"', table)[::2]
        known = "".join(help_text(*one) for one in (("weft", "serve"), ("weft-router",),
                                                    ("weft-shard",)))
        waited_for = {one["shown"] for one in programs().values() if not one["there"]}
        for flag in kept:
            self.assertTrue(f"--{flag} " in known or f"--{flag}=" in known or
                            f"--{flag}" in waited_for, flag)
        self.assertGreater(len(kept), 20)

    def test_the_programs_understand_the_rendered_command_lines(self):
        """All but the model, which is not there: that, and no flag, is what they have to say."""
        shown = {one["shown"] for one in programs().values() if not one["there"]}
        for where, program, arguments, _ in command_lines(chart_of_tomorrow()):
            if shown & {argument.partition("=")[0] for argument in arguments}:
                continue
            # Whether there is a GPU is asked before the model.
            arguments = [re.sub(r"=/model\b", "=/nonexistent/model", one).replace("=cuda", "=cpu")
                         .replace("$(POD_IP)", "127.0.0.1") for one in arguments]
            done = subprocess.run([BIN / program[0], *program[1:], *arguments], text=True,
                                  capture_output=True, timeout=60,
                                  env={"PATH": os.environ["PATH"], "WEFT_RANK": "0"})
            with self.subTest(where):
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn("/nonexistent/model", done.stderr, where)


class Resources(unittest.TestCase):
    SHAPE = ROOT / "tests/bench/shapes/llama-3.1-70b"

    def propose(self, *arguments):
        done = subprocess.run(
            [ROOT / "deploy/helm/resources.py", self.SHAPE, "--config-only", "--weft", BIN / "weft",
             *arguments], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout, done.stderr

    def test_as_few_shards_as_hold_the_model_and_its_context(self):
        # 70.6 B parameters in bfloat16 are 141 GB.
        for memory, context, shards in (("141GiB", 8192, 2), ("80GiB", 131072, 4),
                                        ("80GiB", 600000, 8)):
            code, values, said = self.propose(f"--device-memory={memory}", f"--context={context}")
            self.assertEqual(code, 0, said)
            self.assertEqual(yaml.safe_load(values), {"shards": shards, "device": "cuda"})

    def test_what_cannot_work_is_said(self):
        self.assertIn("none of these shard counts works", self.propose("--device-memory=8GiB")[2])
        self.assertIn("--shards 3: weft inspect plans 1, 2, 4, 8", self.propose("--shards=3")[2])
        code, _, said = self.propose("--context=99999999")
        self.assertIn("no number of shards has room for a context of 99999999 tokens", said)
        self.assertEqual(code, 1)


class Documented(unittest.TestCase):
    def setUp(self):
        tool("helm")

    def commands(self):
        text = (ROOT / "docs/KUBERNETES.md").read_text()
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
            for line in block.replace("\\\n", " ").splitlines():
                yield shlex.split(line)

    def test_the_commands_of_the_documentation_render(self):
        rendered = 0
        for words in self.commands():
            with self.subTest(" ".join(words)):
                if words[0] == "deploy/helm/resources.py":
                    words, target = words[:-1], words[-1]
                    self.assertEqual(target, ">values.yaml")
                    done = subprocess.run([*words, "--weft", BIN / "weft"], cwd=ROOT, text=True,
                                          capture_output=True, timeout=60)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    (SCRATCH / "values.yaml").write_text(done.stdout)
                    continue
                self.assertIn(tuple(words[:2]), (("helm", "install"), ("helm", "upgrade")))
                self.assertEqual(words[2:4], ["weft", "deploy/helm/weft"])
                more = [str(SCRATCH / one) if one == "values.yaml" else one for one in words[4:]
                        if one != "--reset-then-reuse-values"]
                done = helm("template", "weft", chart_of_tomorrow(), "--kube-version", KUBERNETES,
                            *more)
                self.assertEqual(done.returncode, 0, done.stderr)
                rendered += 1
        self.assertGreaterEqual(rendered, 8)

    def test_a_prometheus_that_finds_the_monitors_finds_the_rules(self):
        """One label selects both, so a command that gives it to one of them gives it to both."""
        labelled = 0
        for words in self.commands():
            given = {word.partition("=")[0].removesuffix(".labels.release").rpartition(".")[2]
                     for word in words if ".labels.release=" in word}
            if given:
                self.assertEqual(given, {"podMonitor", "prometheusRule"}, " ".join(words))
                labelled += 1
        self.assertEqual(labelled, 1)

    def test_the_endpoint_picker_is_told_metrics_that_there_are(self):
        values = yaml.safe_load((ROOT / "deploy/helm/endpoint-picker-values.yaml").read_text())
        documented = (ROOT / "docs/METRICS.md").read_text()
        named = [one for one in values["inferenceExtension"]["flags"].values() if one]
        self.assertEqual(len(named), 4)
        for metric in named:
            self.assertIn(f"| `{metric}` | gauge |", documented)
        deployment = render({"publicOps": True})["Deployment", "weft"]
        self.assertLessEqual(values["inferencePool"]["modelServers"]["matchLabels"].items(),
                             deployment["spec"]["template"]["metadata"]["labels"].items())


if __name__ == "__main__":
    run_tests()
