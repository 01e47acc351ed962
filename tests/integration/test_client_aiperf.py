"""aiperf (genai-perf's successor), a benchmark client: chats and completions at once; what it
reports is what the server counted."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import demo_model_files
from clients import ClientTest
from weft_server import run_tests

REQUESTS, INPUT_TOKENS, OUTPUT_TOKENS = 12, 32, 16
TIMEOUT_S = 180


class AiperfTest(ClientTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.tokenizer = demo_model_files.tokenizer_folder(cls)

    def check(self, kind):
        before = {name: self.server.metric(f"weft_{name}_tokens_total")
                  for name in ("prompt", "generation")}
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [pathlib.Path(sys.executable).parent / "aiperf", "profile", "--model", self.model,
                 "--url", self.url, "--endpoint-type", kind, "--streaming",
                 "--tokenizer", self.tokenizer, "--concurrency", "4",
                 "--request-count", str(REQUESTS), "--use-server-token-count",
                 "--synthetic-input-tokens-mean", str(INPUT_TOKENS),
                 "--synthetic-input-tokens-stddev", "0",
                 "--output-tokens-mean", str(OUTPUT_TOKENS), "--output-tokens-stddev", "0",
                 "--extra-inputs", "ignore_eos:true", "--ui", "none", "--random-seed", "1",
                 "--artifact-dir", folder],
                cwd=folder, timeout=TIMEOUT_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, check=False, env={**os.environ, "HF_HOME": folder})
            self.assertEqual(done.returncode, 0, done.stdout)
            report, = pathlib.Path(folder).rglob("profile_export_aiperf.json")
            found = json.loads(report.read_text())
        self.assertEqual(found["request_count"]["avg"], REQUESTS)
        self.assertFalse(found.get("error_summary"), found.get("error_summary"))
        self.assertEqual(found["output_sequence_length"]["min"], OUTPUT_TOKENS)
        self.assertEqual(found["output_sequence_length"]["max"], OUTPUT_TOKENS)
        for name, total in (("prompt", "total_usage_prompt_tokens"),
                            ("generation", "total_usage_completion_tokens")):
            self.assertEqual(found[total]["avg"],
                             self.server.metric(f"weft_{name}_tokens_total") - before[name])
        self.assertGreater(found["time_to_first_token"]["min"], 0)
        self.assertLess(found["time_to_first_token"]["max"], found["request_latency"]["max"])

    def test_chats(self):
        self.check("chat")

    def test_completions(self):
        self.check("completions")


if __name__ == "__main__":
    run_tests()
