#!/usr/bin/env python3
"""What greedy_streams.py lets pass and what not, with answers made up here. Needs no GPU."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/gpu"), str(ROOT / "tests/integration")]
from greedy_streams import candidates_of, compare  # noqa: E402

WANTED = list(range(100, 140))
# At every token another one was nearly as good, and a third one far behind.
CANDIDATES = [{token: 0.0, token + 1000: 1e-5, token + 2000: 3.0} for token in WANTED]
EXPECTED = [(WANTED, CANDIDATES)]


class Compare(unittest.TestCase):
    def refuses(self, ids, *parts):
        with self.assertRaises(AssertionError) as refused:
            compare([ids], EXPECTED, "float32")
        for part in parts:
            self.assertIn(part, str(refused.exception))

    def test_the_same_tokens_are_equal(self):
        self.assertEqual(compare([WANTED], EXPECTED, "float32"), "1 of 1 equal")

    def test_a_nearly_equal_candidate_may_come_and_another_text_with_it(self):
        flipped = WANTED[:10] + [1110] + [7] * 29
        self.assertEqual(compare([flipped], EXPECTED, "float32"),
                         "0 of 1 equal, largest margin flipped 0.00001")

    def test_a_token_far_behind_is_refused(self):
        self.refuses(WANTED[:10] + [2110] + WANTED[11:], "token 10 is 2110", "behind 110 by 3.0000")

    def test_a_lost_token_is_refused_also_where_candidates_are_close(self):
        for lost in (1, 3):
            self.refuses(WANTED[:10] + WANTED[10 + lost:] + [0] * lost, "token 10",
                         f"{lost} tokens lost")

    def test_a_repeated_token_is_refused_also_where_candidates_are_close(self):
        self.refuses(WANTED[:10] + WANTED[8:38], "token 10", "2 tokens repeated")

    def test_another_length_is_refused(self):
        self.refuses(WANTED[:-1], "39 tokens, expected 40")
        self.refuses(WANTED + [1], "41 tokens, expected 40")

    def test_a_stream_without_an_expectation_is_refused(self):
        with self.assertRaises(ValueError):
            compare([WANTED, WANTED], EXPECTED, "float32")

    def test_candidates_are_told_by_how_far_they_were_behind(self):
        details = {"tokens": [{"id": 5, "logprob": -0.5}],
                   "top_tokens": [[{"id": 5, "logprob": -0.5}, {"id": 9, "logprob": -0.75}]]}
        self.assertEqual(candidates_of(details), [{5: 0.0, 9: 0.25}])


if __name__ == "__main__":
    unittest.main()
