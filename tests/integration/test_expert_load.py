"""Rows of experts on demand: from the flag of `weft serve` to the shards' /metrics."""

import json
import re
import unittest
import urllib.request

from weft_server import ROOT, WeftServer, wait_until

GOLDENS = ROOT / "tests/goldens"
EXPERTS, PER_TOKEN, LAYERS = 11, 4, 2  # of qwen3_moe


class ExpertLoadTest(unittest.TestCase):
    def shard_metrics(self, server, rank):
        """What the shard of a rank says of experts: {(layer, expert): rows}."""
        address = wait_until(
            lambda: re.search(rf"shard-{rank}.*metrics on (http://[^\s\"]+)", server.log_text()),
            "the address of a shard's metrics").group(1)
        with urllib.request.urlopen(address, timeout=30) as answer:
            text = answer.read().decode()
        pattern = r'weft_shard_expert_rows_total{.*expert="(\d+)",layer="(\d+)"} (\d+)'
        return {(int(layer), int(expert)): int(rows)
                for expert, layer, rows in re.findall(pattern, text)}

    def test_rows_of_requests_are_counted_on_shard_0(self):
        with WeftServer("--expert-load", "--shard-metrics-port=0", "--device=cpu",
                        "--log-format=json", model=GOLDENS / "qwen3_moe", shards=2) as server:
            before = self.shard_metrics(server, 0)
            self.assertEqual(before, {(layer, expert): 0 for layer in range(LAYERS)
                                      for expert in range(EXPERTS)})
            usage = server.post("/v1/completions", {"prompt": "word", "max_tokens": 6,
                                                    "ignore_eos": True})["usage"]
            after = self.shard_metrics(server, 0)
            rows = [sum(after[layer, expert] for expert in range(EXPERTS))
                    for layer in range(LAYERS)]
            # The last token of an answer goes through no layer; the last layer has no prompt but
            # its last row.
            new = usage["completion_tokens"]
            self.assertEqual(rows, [PER_TOKEN * (usage["prompt_tokens"] + new - 1),
                                    PER_TOKEN * new])
            self.assertEqual(self.shard_metrics(server, 1), {})
            # Where a shard shows its metrics is its own line and no error of the launcher's.
            lines = [json.loads(line) for line in server.log_text().splitlines()]
            told = [line for line in lines if "metrics on" in line["msg"]]
            self.assertEqual(sorted((line["process"], line["level"]) for line in told),
                             [("shard-0", "info"), ("shard-1", "info")])

    def test_a_model_without_experts_says_so_once(self):
        with WeftServer("--expert-load", "--shard-metrics-port=0", "--device=cpu",
                        model=GOLDENS / "qwen3", shards=2) as server:
            self.assertEqual(server.log_text().count("has no experts"), 1)
            self.assertEqual(self.shard_metrics(server, 0), {})


if __name__ == "__main__":
    unittest.main()
