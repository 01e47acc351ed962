"""The watchdog in real processes: quiet while they load, rest and work; with a limit far too short
it names threads by what they do, and disturbs nobody."""

import re
import time
import unittest

from weft_server import WeftServer, run_tests, wait_until

# Takes some milliseconds to be tokenised.
LONG = "word " * 6000
LINE = re.compile(r'a thread is stuck thread=(\S+) stuck_s=\S+ stack="([^"]*)"')


def generate(server, text="Hi", tokens=8):
    return server.post("/generate", {"inputs": text, "parameters": {
        "max_new_tokens": tokens, "temperature": 0.0001, "truncate": 64}})["generated_text"]


class Watchdog(unittest.TestCase):
    def test_a_server_that_loads_rests_and_works_has_no_stuck_thread(self):
        with WeftServer("--watchdog-s=2.5", shards=2) as server:
            for _ in range(3):
                generate(server, tokens=32)
            rested_at = time.monotonic() + 6
            wait_until(lambda: time.monotonic() > rested_at, "six seconds of rest")
            self.assertEqual(server.metric("weft_watchdog_stalls_total"), 0)
            self.assertNotIn("is stuck", server.log_text())

    def test_a_thread_that_works_for_long_is_named_with_its_stack_and_goes_on(self):
        with WeftServer() as server:
            expected = generate(server, text=LONG)
        with WeftServer("--watchdog-s=0.002") as server:
            stacks = []

            def text_in_is_named():
                self.assertEqual(generate(server, text=LONG), expected)
                stacks[:] = [stack for name, stack in LINE.findall(server.log_text())
                             if name.startswith("text-in")]
                return bool(stacks)
            # The watchdog may look before and after a short piece of work: again, then.
            wait_until(text_in_is_named, "a thread that reads a prompt to be named")
            self.assertGreater(server.metric("weft_watchdog_stalls_total"), 0)
            # Whatever it stood in, it came there by way of reading a prompt.
            self.assertIn("PrepareAndSend", stacks[0])
            wait_until(lambda: "a thread that was stuck goes on" in server.log_text(), "its end")


if __name__ == "__main__":
    run_tests()
