"""Broken HTTP: every mistake is answered with a 4xx (or 505) in the shape of the path's family, and
the server serves on. Bytes are written by hand: client libraries do not make such requests."""

import json
import socket
import time
import unittest

from weft_server import WeftServer, wait_until

BODY_MAX = 100_000
HEADER_MAX = 16 << 10
GOOD_BODY = b'{"inputs":"Hi","parameters":{"max_new_tokens":1}}'
BAD_BODY = b'{"inputs":"Hi","parameters":{"max_new_tokens":0}}'


def request(body=GOOD_BODY, line=b"POST /generate HTTP/1.1", headers=()):
    lines = [line, b"Host: x", *headers]
    if body is not None:
        lines.append(b"Content-Length: %d" % len(body))
    return b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")


class Connection:
    """A socket and a reader of answers."""

    def __init__(self, server, timeout_s=30):
        host, port = server.http.split(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.reader = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.reader.close()
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def answer(self, head=False):
        """(status, headers, body) of the next answer that is not 100; None at the end."""
        line = self.reader.readline()
        if not line:
            return None
        version, status = line.split()[:2]
        assert version == b"HTTP/1.1", line
        headers = {}
        while (line := self.reader.readline().strip()):
            name, value = line.decode().split(":", 1)
            headers[name.lower()] = value.strip()
        length = 0 if head else int(headers.get("content-length", 0))
        return int(status), headers, self.reader.read(length)

    def ended(self):
        """True when the server says no more."""
        return self.reader.read(1) == b""


class BadHttpTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = WeftServer(environment={
            "WEFT_STRICT_FIELDS": "true", "WEFT_HEADER_TIMEOUT_S": "1", "WEFT_BODY_TIMEOUT_S": "1",
            "WEFT_BODY_BYTES_MAX": str(BODY_MAX)}).start()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def tearDown(self):
        with Connection(self.server) as connection:
            connection.send(request())
            self.assertEqual(connection.answer()[0], 200)
        self.server.wait_idle()
        # The one left is that of the question itself.
        wait_until(lambda: self.server.metric("weft_http_connections") == 1, "connections to close")

    def assert_shape(self, answer, openai):
        body = json.loads(answer[2])
        if openai:
            self.assertEqual(set(body["error"]), {"message", "type", "param", "code"}, answer)
        else:
            self.assertEqual(set(body), {"error", "error_type"}, answer)

    def assert_answer(self, data, status, closes=True, openai=False, half_close=False):
        with Connection(self.server) as connection:
            connection.send(data)
            if half_close:
                connection.socket.shutdown(socket.SHUT_WR)
            answer = connection.answer()
            self.assertIsNotNone(answer, (data[:200], "no answer"))
            self.assertEqual(answer[0], status, (data[:200], answer))
            self.assert_shape(answer, openai)
            if closes:
                self.assertEqual(answer[1].get("connection"), "close", data[:200])
                self.assertTrue(connection.ended())
            else:
                connection.send(request())
                self.assertEqual(connection.answer()[0], 200, data[:200])
            return answer

    # -- Requests that are no HTTP ----------------------------------------------------------------
    def test_malformed_requests(self):
        for data in (
                b"hello\r\n\r\n", b"POST /generate\r\n\r\n",
                b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
                b"POST  /generate HTTP/1.1\r\n\r\n", b"POST /gen\x00erate HTTP/1.1\r\n\r\n",
                b"POST /generate HTTP/1.1\r\nno colon\r\n\r\n",
                b"POST /generate HTTP/1.1\r\nbad name: x\r\n\r\n",
                b"POST /generate HTTP/1.1\r\nHost: a\x00b\r\n\r\n",
                b"GET /info HTTP/1.1\r\n\r\n", request(headers=[b"Host: y"]),
                request(None, headers=[b"Content-Length: -1"]),
                request(None, headers=[b"Content-Length: 5x"]),
                request(None, headers=[b"Content-Length: 99999999999999999999"]),
                request(None, headers=[b"Transfer-Encoding: chunked"]) + b"zz\r\nab\r\n0\r\n\r\n",
                request(None, headers=[b"Transfer-Encoding: chunked"]) + b"2\r\nabc\r\n0\r\n\r\n",
                request(None, headers=[b"Transfer-Encoding: chunked"]) + b"ffffffffffffffffffg\r\n"):
            self.assert_answer(data, 400)
        for line in (b"POST /a b HTTP/1.1", b"POST * HTTP/1.1", b"POST /generate http/1.1"):
            self.assert_answer(line + b"\r\nHost: x\r\n\r\n", 400)
        for line in (b"POST /generate HTTP/2.0", b"POST /generate HTTP/1.7"):
            self.assert_answer(line + b"\r\n\r\n", 505)

    def test_bodies_of_two_lengths_are_refused(self):
        """What two servers in a row would read differently (request smuggling)."""
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(GOOD_BODY), GOOD_BODY)
        self.assert_answer(request(headers=[b"Content-Length: 5"]), 400)
        self.assert_answer(request(headers=[b"Transfer-Encoding: chunked"]), 400)
        self.assert_answer(request(None, headers=[b"Transfer-Encoding: chunked",
                                                  b"Content-Length: 5"]) + chunked, 400)

    def test_requests_cut_short(self):
        for data in (b"POST /gen", request()[:40], request()[:-1],
                     request(None, headers=[b"Transfer-Encoding: chunked"]) + b"5\r\nab"):
            self.assert_answer(data, 400, half_close=True)
        # And with the client gone altogether.
        for data in (b"", b"POST /gen", request()[:-1]):
            with Connection(self.server) as connection:
                connection.send(data)

    def test_slow_requests_time_out(self):
        self.assert_answer(b"POST /generate HTTP/1.1\r\nHost:", 408)
        self.assert_answer(request()[:-1], 408)
        self.assert_answer(request(line=b"POST /v1/completions HTTP/1.1")[:-1], 408, openai=True)
        # One byte at a time does not prolong a header's time.
        start = time.monotonic()
        with Connection(self.server, timeout_s=0.05) as connection:
            connection.send(b"POST /generate HTTP/1.1\r\n")
            answer = b""
            while not answer:
                connection.send(b"a: b\r\n")
                try:
                    answer = connection.socket.recv(100)
                except TimeoutError:
                    self.assertLess(time.monotonic() - start, 20)
            self.assertIn(b" 408 ", answer)
        # Nothing was asked: nothing is answered.
        with Connection(self.server) as connection:
            self.assertIsNone(connection.answer())

    # -- Limits -----------------------------------------------------------------------------------
    def test_bodies_over_the_limit(self):
        def padded(size):
            body = b'{"inputs":"Hi","parameters":{"max_new_tokens":1}%s}'
            return body % (b" " * (size - len(body) + 2))

        def chunked(body):
            half = len(body) // 2
            pieces = [b"%x\r\n%s\r\n" % (len(part), part)
                      for part in (body[:half], body[half:], b"")]
            return request(None, headers=[b"Transfer-Encoding: chunked"]) + b"".join(pieces)

        for data in (request(padded(BODY_MAX)), chunked(padded(BODY_MAX))):
            with Connection(self.server) as connection:
                connection.send(data)
                self.assertEqual(connection.answer()[0], 200)
        for data in (request(padded(BODY_MAX + 1)), chunked(padded(BODY_MAX + 1))):
            self.assertIn(str(BODY_MAX), self.assert_answer(data, 413)[2].decode())
        # Told by the size of its first chunk, without waiting for it.
        for size in (b"%x" % (BODY_MAX + 1), b"f" * 15, b"f" * 16, b"f" * 40):
            data = request(None, line=b"POST /v1/completions HTTP/1.1",
                           headers=[b"Transfer-Encoding: chunked"]) + size + b"\r\n"
            self.assert_answer(data, 413, openai=True)
        # Told by its length alone, without waiting for the body or asking for it.
        for headers in ([], [b"Expect: 100-continue"]):
            data = request(None, line=b"POST /v1/completions HTTP/1.1",
                           headers=[b"Content-Length: 9999999999", *headers])
            self.assert_answer(data, 413, openai=True)

    def test_headers_over_the_limit(self):
        with Connection(self.server) as connection:
            connection.send(request(headers=[b"a: " + b"b" * (HEADER_MAX - 200)]))
            self.assertEqual(connection.answer()[0], 200)
        for headers in ([b"a: " + b"b" * HEADER_MAX], [b"a%d: b" % i for i in range(3000)]):
            answer = self.assert_answer(request(headers=headers), 431)
            self.assertIn(str(HEADER_MAX), answer[2].decode())
        self.assert_answer(request(line=b"POST /" + b"a" * HEADER_MAX + b" HTTP/1.1"), 431)

    # -- Routes -----------------------------------------------------------------------------------
    def test_paths_and_methods(self):
        for line, status, openai, allow in (
                (b"POST /quux", 404, False, None), (b"POST /generate/", 404, False, None),
                (b"POST /v1/quux", 404, True, None), (b"GET /v1/models/quux", 404, True, None),
                (b"GET /../../etc/passwd", 404, False, None), (b"POST http://x/quux", 404, False, None),
                (b"GET /generate", 405, False, "POST"), (b"PUT /generate", 405, False, "POST"),
                (b"DELETE /v1/completions", 405, True, "POST"),
                (b"QUUX /v1/chat/completions", 405, True, "POST"),
                (b"POST /info", 405, False, "GET, HEAD"),
                (b"POST /v1/models", 405, True, "GET, HEAD")):
            answer = self.assert_answer(request(line=line + b" HTTP/1.1"), status, closes=False,
                                        openai=openai)
            self.assertEqual(answer[1].get("allow"), allow, line)

    def test_head(self):
        for path, status in ((b"/info", 200), (b"/quux", 404), (b"/generate", 405)):
            with Connection(self.server) as connection:
                connection.send(request(None, line=b"HEAD %s HTTP/1.1" % path))
                answer = connection.answer(head=True)
                self.assertEqual(answer[0], status)
                self.assertGreater(int(answer[1]["content-length"]), 0)
                connection.send(request())  # no body came: the next answer follows at once
                self.assertEqual(connection.answer()[0], 200)

    def test_strict_fields(self):
        self.assert_answer(request(b'{"inputs":"Hi","quux":1}'), 422, closes=False)
        answer = self.assert_answer(
            request(b'{"prompt":"Hi","quux":1}', line=b"POST /v1/completions HTTP/1.1"), 400,
            closes=False, openai=True)
        self.assertEqual(json.loads(answer[2])["error"]["param"], "quux")

    # -- Connections ------------------------------------------------------------------------------
    def test_pipelined_requests_are_answered_in_order(self):
        with Connection(self.server) as connection:
            connection.send(request() + request(BAD_BODY) + request(b"{") + request())
            self.assertEqual([connection.answer()[0] for _ in range(4)], [200, 422, 422, 200])
        with Connection(self.server) as connection:
            connection.send(request() + b"quux\r\n\r\n" + request())
            self.assertEqual([connection.answer()[0] for _ in range(2)], [200, 400])
            self.assertTrue(connection.ended())

    def test_errors_keep_the_connection(self):
        stream = request(b'{"inputs":""}', line=b"POST /generate_stream HTTP/1.1")
        with Connection(self.server) as connection:
            for _ in range(100):
                for data in (request(BAD_BODY), stream):
                    connection.send(data)
                    self.assertEqual(connection.answer()[0], 422)

    def test_http_1_0(self):
        line = b"POST /generate HTTP/1.0"
        with Connection(self.server) as connection:
            connection.send(request(line=line))
            answer = connection.answer()
            self.assertEqual((answer[0], answer[1]["connection"]), (200, "close"))
            self.assertTrue(connection.ended())
        with Connection(self.server) as connection:
            for body, status in ((BAD_BODY, 422), (GOOD_BODY, 200)):
                connection.send(request(body, line=line, headers=[b"Connection: keep-alive"]))
                self.assertEqual(connection.answer()[0], status)

    def test_expectations(self):
        with Connection(self.server) as connection:
            head, body = request(headers=[b"Expect: 100-continue"]).split(b"\r\n\r\n")
            connection.send(head + b"\r\n\r\n")
            self.assertEqual(connection.answer()[0], 100)
            connection.send(body)
            self.assertEqual(connection.answer()[0], 200)
        self.assert_answer(request(headers=[b"Expect: quux"]), 417)
        self.assert_answer(request(line=b"POST /v1/completions HTTP/1.1",
                                   headers=[b"Expect: quux"]), 417, openai=True)


if __name__ == "__main__":
    unittest.main()
