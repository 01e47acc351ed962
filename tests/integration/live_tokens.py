"""What a recovery has to compute again, and how fast: the time that is promised for a loss grows with
the tokens of the streams that live, at the rate at which the shards compute prompts.
"""

import time

from stream_clients import of_any_length

# Tokens of the prompt that is timed: several steps, and little beside a recovery.
TIMED_WORDS = 600
WORDS = "river stone paper light garden market winter letter music window".split()


def prompt_rate(server, source):
    """Prompt tokens a second, of a prompt that is in no cache, as the machine is now."""
    prompt = f"{source.randrange(10**9)} " + " ".join(source.choices(WORDS, k=TIMED_WORDS))
    began = time.monotonic()
    status, headers, body = server.request("POST", "/generate", {
        "inputs": prompt, "parameters": {"max_new_tokens": 1}})
    took_s = time.monotonic() - began
    assert status == 200, body
    return int(headers["x-prompt-tokens"]) / took_s


def live_tokens(checker, streams):
    """Prompts and answers so far of all streams that have begun and not ended."""
    total = 0
    for (_, ask), history in zip(streams.requests, streams.histories):
        if history.closed is None and history.count:
            _, undisturbed = checker.undisturbed[of_any_length(ask)]
            total += undisturbed.counted("prompt_tokens") + history.count
    return total
