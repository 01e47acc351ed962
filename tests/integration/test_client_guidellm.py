"""guidellm, a benchmark client: completions and chats at once and one by one; what it reports is
what the server counted. It runs without torch, with stand_ins/torch for its data loader."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from clients import ClientTest
from weft_server import run_tests

STAND_INS = pathlib.Path(__file__).resolve().parent / "stand_ins"
REQUESTS = 12
TIMEOUT_S = 180


class GuidellmTest(ClientTest):
    def run_benchmark(self, request_format, profile):
        """The report, of prompts whose answers have 8, 9 and 10 tokens."""
        with tempfile.TemporaryDirectory() as folder:
            data, report = (pathlib.Path(folder) / name for name in ("data.jsonl", "report.json"))
            data.write_text("".join(json.dumps({
                "prompt": f"Item {number}: The capital of France is",
                "output_tokens_count": 8 + number % 3}) + "\n" for number in range(REQUESTS)))
            done = subprocess.run(
                [pathlib.Path(sys.executable).parent / "guidellm", "run",
                 "--backend", f"kind=openai_http,target={self.url},request_format={request_format}",
                 "--profile", profile, "--constraint", f"kind=max_requests,count={REQUESTS}",
                 "--data", f"kind=json_file,path={data}", "--output", f"kind=json,path={report}",
                 "--disable-console-interactive"],
                cwd=folder, timeout=TIMEOUT_S, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, check=False, env={
                    **os.environ, "PYTHONPATH": str(STAND_INS), "HF_HUB_OFFLINE": "1",
                    "HF_HOME": folder})
            self.assertEqual(done.returncode, 0, done.stdout)
            benchmark, = json.loads(report.read_text())["benchmarks"]
            return benchmark

    def check(self, request_format, profile):
        before = {name: self.server.metric(f"weft_{name}_tokens_total")
                  for name in ("prompt", "generation")}
        benchmark = self.run_benchmark(request_format, profile)
        state = benchmark["scheduler_state"]
        self.assertEqual((state["successful_requests"], state["errored_requests"],
                          state["cancelled_requests"]), (REQUESTS, 0, 0))
        requests = benchmark["requests"]["successful"]
        self.assertEqual(sorted(request["output_metrics"]["text_tokens"] for request in requests),
                         sorted(8 + number % 3 for number in range(REQUESTS)))
        for name, metrics in (("prompt", "input_metrics"), ("generation", "output_metrics")):
            self.assertEqual(sum(request[metrics]["text_tokens"] for request in requests),
                             self.server.metric(f"weft_{name}_tokens_total") - before[name])
        for request in requests:
            self.assertGreater(len(request["output"]), 5)
            self.assertLess(0, request["time_to_first_token_ms"])
            self.assertLess(request["time_to_first_token_ms"],
                            1000 * request["request_latency"])
            # An event a token: else what it reports of single tokens would be of groups.

    def test_completions_four_at_once(self):
        self.check("/v1/completions", "kind=concurrent,streams=4")

    def test_chats_one_by_one(self):
        self.check("/v1/chat/completions", "kind=synchronous")


if __name__ == "__main__":
    run_tests()
