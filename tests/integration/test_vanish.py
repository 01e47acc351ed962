"""200 streams at once, a third of the clients vanish at random: everything comes back."""

import os
import random
import socket
import threading
import unittest

from weft_server import WeftServer

SEED = int(os.environ.get("WEFT_SEED", "7"))
STREAMS = 200


class VanishTest(unittest.TestCase):
    def stream(self, server, index, vanish_after):
        """Reads a stream by a raw socket; closes it hard after `vanish_after` bytes."""
        host, port = server.http.split(":")
        prompt = f"Number {index} tells: " + "word " * (index % 60)
        body = ('{"prompt":"%s","max_tokens":24,"temperature":0.7,"seed":%d,"stream":true,'
                '"ignore_eos":true}' % (prompt, index)).encode()
        head = (f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n").encode()
        with socket.create_connection((host, int(port)), timeout=180) as connection:
            connection.sendall(head + body)
            received = b""
            while vanish_after is None or len(received) < vanish_after:
                data = connection.recv(512)
                if not data:
                    break
                received += data
        if vanish_after is None:
            if b" 200 " not in received.split(b"\r\n", 1)[0] or b"data: [DONE]" not in received:
                self.failures_seen.append((index, received[:300]))

    def test_blocks_slots_and_permits_come_back(self):
        print(f"seed {SEED}")
        source = random.Random(SEED)
        self.failures_seen = []
        with WeftServer("--kv-memory=64MiB", "--running-max=64") as server:
            threads = []
            for index in range(STREAMS):
                vanish_after = source.choice([0, 1, 300, 1500]) if index % 3 == 0 else None
                threads.append(threading.Thread(target=self.stream,
                                                args=(server, index, vanish_after)))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(240)
            self.assertEqual(self.failures_seen, [])
            server.wait_idle(60)
            self.assertGreater(server.metric("weft_requests_cancelled_total", by="client"), 0)
            self.assertEqual(server.metric("weft_kv_blocks", state="used"), 0)
            # And it still answers.
            answer = server.post("/generate", {"inputs": "Hello", "parameters": {"max_new_tokens": 4}})
            self.assertTrue(answer["generated_text"])


if __name__ == "__main__":
    unittest.main()
