"""The checker of stream histories itself: each way in which a stream may be wrong is named, and
what a door sends becomes the history that it is. No server: a listener of its own plays the broken ones.
"""

import dataclasses
import http.client
import json
import socket
import threading
import types
import unittest

from stream_doors import (CHAT, COMPLETIONS, GRPC, PLAIN_COMPLETIONS, TGI, Ask, SseParser, after,
                          never, new_history, read_stream)
from stream_history import (AFTER_END, BROKEN, CLEAN, CONNECTION, COUNTS, CUT, DIFFERS, DONE, END,
                            ERROR, FAILED, FINISH, FORM, HEAD, HUNG_UP, LEFT, LOST, ORDER,
                            REORDERED, REPEATED, SILENT, STRANGE, TEXT, TOKEN, USAGE, WHOLE, WORDS,
                            Event, History, faults, sequence_faults)

WORD = {1: "one", 2: " two", 3: " three", 4: " four", 5: " five"}
IDS = [1, 2, 3, 4, 5]


def detokenize(ids):
    return "".join(WORD[token_id] for token_id in ids)


def token(number, token_id=None):
    token_id = token_id or number
    return Event(TOKEN, number=number, id=token_id, text=WORD[token_id])


def history(*events, door=COMPLETIONS, closed=CLEAN, **more):
    return History(door, events=list(events), closed=closed, **more)


END_EVENTS = [Event(FINISH, reason="length"),
              Event(USAGE, prompt_tokens=3, output_tokens=5, cached_tokens=0), Event(DONE)]
GOOD = [Event(HEAD, prompt_tokens=3, cached_tokens=0), *map(token, IDS), *END_EVENTS]
UNDISTURBED = history(*GOOD)


def found(*events, end="whole", **more):
    """Faults of a history, with every rule applied."""
    return faults(history(*events, **more), end=end, max_tokens=5, detokenize=detokenize,
                  undisturbed=UNDISTURBED)


def without_numbers(events):
    """As a door shows tokens that does not count them."""
    return [dataclasses.replace(event, number=None) for event in events]


class CheckerTest(unittest.TestCase):
    def assert_named(self, name, *events, **more):
        said = found(*events, **more)
        self.assertTrue(any(fault.startswith(name) for fault in said), (name, said))

    def test_a_whole_stream_has_no_fault(self):
        self.assertEqual(found(*GOOD), [])
        self.assertEqual(found(*without_numbers(GOOD)), [])
        tail = [*map(token, IDS[:4]), dataclasses.replace(token(5), text=" fi"),
                Event(TEXT, text="ve"), *END_EVENTS]
        self.assertEqual(found(*tail), [])

    def test_a_lost_token_is_named(self):
        for at in range(1, 6):
            for events in (GOOD, without_numbers(GOOD)):
                with self.subTest(at=at, numbered=events is GOOD):
                    self.assert_named(LOST, *events[:at], *events[at + 1:])
        self.assert_named(LOST, GOOD[0], *GOOD[3:])

    def test_a_token_that_was_lost_with_its_number_is_named(self):
        renumbered = [*map(token, (1, 2)), token(3, 4), token(4, 5), *END_EVENTS]
        self.assert_named(LOST, *renumbered)
        self.assert_named(COUNTS, *renumbered)

    def test_a_repeated_token_is_named(self):
        for at in range(1, 6):
            for events in (GOOD, without_numbers(GOOD)):
                self.assert_named(REPEATED, *events[:at], events[at], *events[at:])
        self.assert_named(REPEATED, *without_numbers(GOOD[:5] + GOOD[3:]))

    def test_reordered_tokens_are_named(self):
        for events in (GOOD, without_numbers(GOOD)):
            self.assert_named(REORDERED, *events[:2], events[3], events[2], *events[4:])

    def test_two_terminal_events_are_named(self):
        self.assert_named(END, *GOOD[:-2], Event(FINISH, reason="length"), *GOOD[-2:])
        self.assert_named(END, *GOOD[:-2], Event(ERROR, reason="late"), *GOOD[-2:])
        self.assert_named(AFTER_END, *GOOD, Event(DONE))
        self.assert_named(ORDER, *GOOD[:-1], GOOD[-2], GOOD[-1])

    def test_a_missing_end_is_named(self):
        self.assert_named(END, *GOOD[:6])
        self.assert_named(END, *GOOD[:-3], *GOOD[-2:])
        self.assert_named(END, *GOOD[:-1])
        self.assert_named(CONNECTION, *GOOD, closed=BROKEN)
        self.assert_named(CONNECTION, *GOOD, closed=None)

    def test_what_follows_the_end_is_named(self):
        for extra in (token(6, 1), Event(TEXT, text="!"), Event(HEAD, prompt_tokens=3)):
            self.assert_named(AFTER_END, *GOOD[:-2], extra, *GOOD[-2:])
            self.assert_named(AFTER_END, *GOOD, extra)

    def test_events_in_another_order_are_named(self):
        self.assert_named(ORDER, *GOOD[1:3], GOOD[0], *GOOD[3:])
        self.assert_named(ORDER, *GOOD[:3], Event(TEXT, text=""), *GOOD[3:])
        self.assert_named(FORM, *GOOD[:3], Event(STRANGE, reason="data: {"), *GOOD[3:])

    def test_wrong_counts_are_named(self):
        for output_tokens in (4, 6):
            self.assert_named(COUNTS, *GOOD[:-2], dataclasses.replace(
                GOOD[-2], output_tokens=output_tokens), GOOD[-1])
        self.assert_named(COUNTS, *GOOD[:-2], GOOD[-1])
        self.assert_named(COUNTS, *GOOD[:-2],
                          dataclasses.replace(GOOD[-2], prompt_tokens=4), GOOD[-1])
        self.assert_named(COUNTS, *GOOD[:-2],
                          dataclasses.replace(GOOD[-2], cached_tokens=3), GOOD[-1])
        self.assert_named(COUNTS, *GOOD[:-2], dataclasses.replace(GOOD[-2], cached_tokens=1),
                          GOOD[-1])
        self.assert_named(COUNTS, *GOOD[1:-2], dataclasses.replace(GOOD[-2], prompt_tokens=None),
                          GOOD[-1])
        self.assert_named(DIFFERS, *GOOD[1:-2], dataclasses.replace(GOOD[-2], prompt_tokens=4),
                          GOOD[-1])
        # Also where a stream failed.
        self.assert_named(COUNTS, *GOOD[:4], Event(ERROR), GOOD[-2], GOOD[-1], end=FAILED)
        # An answer that ends by its length has it.
        self.assertTrue(any(COUNTS in fault for fault in faults(history(*GOOD), max_tokens=6)))
        self.assertTrue(any(COUNTS in fault for fault in faults(history(*GOOD), max_tokens=4)))

    def test_a_wrong_text_is_named(self):
        other = dataclasses.replace(token(3), text=" tree")
        self.assert_named(WORDS, *GOOD[:3], other, *GOOD[4:])
        self.assert_named(DIFFERS, *GOOD[:3], other, *GOOD[4:])
        self.assert_named(WORDS, *GOOD[:6], Event(TEXT, text="!"), *GOOD[6:])
        self.assert_named(WORDS, *GOOD[:6], Event(FINISH, reason="length", whole_text="one"),
                          *GOOD[7:])

    def test_the_text_of_bytes_is_checked(self):
        def chat(*pieces, text, reason="length"):
            tokens = [Event(TOKEN, number=index + 1, piece=piece, text=text if index == 0 else "")
                      for index, piece in enumerate(pieces)]
            return faults(history(*tokens, Event(FINISH, reason=reason),
                                  Event(USAGE, prompt_tokens=3, output_tokens=len(tokens)),
                                  Event(DONE), door=CHAT))
        self.assertEqual(chat(b"\xc3", b"\xa4", text="ä"), [])
        self.assertEqual(chat(b"a", b"<end>", text="a", reason="stop"), [])
        self.assertIn(WORDS, chat(b"a", b"b", text="a")[0])
        self.assertIn(WORDS, chat(b"a", b"b", text="ac")[0])

    def test_a_stop_string_ends_the_text_and_nothing_else_does(self):
        def stopped(text, stop, reason="stop"):
            events = [dataclasses.replace(token(1), text=text),
                      dataclasses.replace(token(2), text=""),
                      Event(FINISH, reason=reason, prompt_tokens=3, output_tokens=2)]
            return faults(history(*events, wants_done=False), stops=(stop,), detokenize=detokenize,
                          ends_itself=False)
        self.assertEqual(stopped("one ", "tw"), [])
        for said in (stopped("one", "tw"), stopped("one ", "tw", reason="length"),
                     stopped("one two", "six")):
            self.assertIn(WORDS, said[0])

    def test_a_stream_that_goes_on_behind_a_stop_string_is_named(self):
        def stopped(ids, shown, stop, reason="stop"):
            events = [Event(TOKEN, id=token_id, text=shown if index == 0 else "")
                      for index, token_id in enumerate(ids)]
            finish = Event(FINISH, reason=reason, prompt_tokens=3, output_tokens=len(ids))
            return faults(history(*events, finish, wants_done=False), max_tokens=9, stops=(stop,),
                          detokenize=detokenize)
        self.assertEqual(stopped([1, 2], "one", " two"), [])
        self.assertIn("goes on behind", stopped([1, 2, 3], "one", " two")[0])
        # The second one ended it.
        self.assertIn("goes on behind", stopped([1, 2, 3, 2], "one two three", " two")[0])
        open_one = history(token(1), token(2), token(3), closed=BROKEN)
        self.assertIn("goes on behind",
                      faults(open_one, end=CUT, stops=(" two",), detokenize=detokenize)[0])

    def test_an_end_that_nothing_asked_for_is_named(self):
        stop = Event(FINISH, reason="stop")
        events = [*GOOD[:6], stop, *GOOD[7:]]
        self.assert_named(DIFFERS, *events)
        self.assertEqual(faults(history(*events)), [])
        self.assertIn(END, faults(history(*events), ends_itself=False)[0])
        for reason in ("", "?", "content_filter"):
            self.assert_named(FORM, *GOOD[:6], Event(FINISH, reason=reason), *GOOD[7:])

    def test_an_answer_of_no_token_is_named(self):
        nothing = history(Event(FINISH, reason="stop"), Event(USAGE, prompt_tokens=3,
                                                              output_tokens=0), Event(DONE))
        self.assertIn("an answer of no token", faults(nothing)[0])

    def test_text_that_is_late_is_named(self):
        """Before its end a stream shows all but what may be a part of a character or stop string."""
        def cut(*texts, stops=(), **more):
            events = [dataclasses.replace(token(index + 1), text=text, at=float(index))
                      for index, text in enumerate(texts)]
            return faults(history(*events, closed=BROKEN), end=CUT, stops=stops, **more)
        self.assertEqual(cut("one", " tw", stops=("o f",), detokenize=detokenize), [])
        self.assertIn(WORDS, cut("one", " tw", detokenize=detokenize)[0])
        self.assertIn(WORDS, cut("", "", detokenize=detokenize)[0])
        # Also where only the undisturbed run says what had come by then.
        shown = history(*[dataclasses.replace(token(index), at=float(index)) for index in IDS])
        self.assertEqual(cut("one", " two", undisturbed=shown), [])
        self.assertIn(DIFFERS, cut("one", "", undisturbed=shown)[0])
        # Which of the tokens of one message its text is of is not known.
        at_once = history(dataclasses.replace(token(1), text=detokenize(IDS)),
                          *[dataclasses.replace(token(index), text="") for index in IDS[1:]])
        self.assertEqual(cut("one", "", undisturbed=at_once), [])

    def test_another_answer_than_the_undisturbed_one_is_named(self):
        self.assert_named(DIFFERS, *GOOD[:2], token(2, 5), *GOOD[3:])
        other = history(*[dataclasses.replace(event, id=None) for event in GOOD[:-2]],
                        dataclasses.replace(GOOD[-2], output_tokens=6), GOOD[-1])
        self.assertIn(f"{DIFFERS}: 6 tokens, expected 5", faults(other, undisturbed=UNDISTURBED))

    def test_an_undisturbed_run_of_another_length_has_the_same_tokens_as_far_as_it_goes(self):
        def said(*events, closed=BROKEN, end=CUT):
            return faults(history(*events, closed=closed), end=end, undisturbed=short,
                          same_length=False)
        short = history(*GOOD[:4], dataclasses.replace(GOOD[-3]), Event(
            USAGE, prompt_tokens=3, output_tokens=3), Event(DONE))
        self.assertEqual(said(*GOOD[:3]), [])
        self.assertEqual(said(*GOOD[:6]), [])
        self.assertEqual(said(*GOOD, closed=CLEAN, end="whole"), [])
        self.assertIn(LOST, said(*without_numbers(GOOD[:2] + GOOD[3:5]))[0])
        self.assertIn(DIFFERS, said(GOOD[0], token(1, 5), token(2, 5))[0])
        self.assertIn(DIFFERS, said(*GOOD[:3], dataclasses.replace(token(3), text=" tree"))[0])

    def test_a_stream_that_was_cut_has_the_first_tokens_and_no_end(self):
        self.assertEqual(found(*GOOD[:4], end=CUT, closed=BROKEN), [])
        self.assertEqual(found(end=CUT, closed=BROKEN), [])
        self.assert_named(CONNECTION, *GOOD[:4], end=CUT)
        self.assert_named(END, *GOOD[:4], Event(ERROR, reason="x"), end=CUT, closed=BROKEN)
        self.assert_named(END, *GOOD, end=CUT, closed=BROKEN)
        self.assert_named(END, *GOOD[:4], Event(DONE), end=CUT, closed=BROKEN)
        self.assert_named(END, *GOOD[:4], Event(USAGE, output_tokens=3), end=CUT, closed=BROKEN)
        self.assert_named(CONNECTION, *GOOD[:4], end=CUT, closed=SILENT)
        self.assert_named(LOST, *GOOD[:2], *GOOD[3:5], end=CUT, closed=BROKEN)
        self.assert_named(DIFFERS, GOOD[0], token(1, 2), end=CUT, closed=BROKEN)

    def test_a_stream_that_failed_has_one_error(self):
        error = Event(ERROR, reason="lost")
        self.assertEqual(found(*GOOD[:4], error, Event(DONE), end=FAILED), [])
        self.assert_named(END, *GOOD, end=FAILED)
        self.assert_named(END, *GOOD[:4], error, error, Event(DONE), end=FAILED)
        self.assert_named(END, *GOOD[:4], error, Event(DONE))

    def test_a_stream_that_its_client_left(self):
        self.assertEqual(found(*GOOD[:4], end=HUNG_UP, closed=LEFT), [])
        self.assert_named(CONNECTION, *GOOD[:4], end=HUNG_UP, closed=BROKEN)
        self.assert_named(END, *GOOD[:4], Event(ERROR, reason="x"), end=HUNG_UP, closed=LEFT)

    def test_what_a_door_always_says_and_never_says(self):
        self.assert_named(ORDER, *GOOD[1:], wants_head=True)
        self.assert_named(FORM, *GOOD, wants_done=False)
        self.assert_named(FORM, *GOOD[:2], *without_numbers(GOOD[2:3]), *GOOD[3:])

    def test_sequences(self):
        for seen, name in (([1, 2, 3, 4], LOST), ([1, 5], f"{LOST}: 3"), ([], f"{LOST}: 5"),
                           ([1, 1, 2, 3, 4, 5], REPEATED),
                           ([1, 2, 1, 2, 3, 4, 5], f"{REPEATED}: 2"),
                           ([1, 2, 3, 4, 5, 5], REPEATED), ([2, 1, 3, 4, 5], REORDERED),
                           ([1, 2, 9, 4, 5], DIFFERS)):
            self.assertTrue(sequence_faults(seen, IDS).startswith(name), (seen, name))
        for seen in (IDS, [], [1, 2]):
            self.assertEqual(sequence_faults(seen, IDS, whole=False), "")
        for seen, name in (([1, 3, 4], LOST), ([1, 1, 2], REPEATED), ([9], DIFFERS)):
            self.assertTrue(sequence_faults(seen, IDS, whole=False).startswith(name), seen)


def sse(*events):
    return b"".join(b"data: " + (event if isinstance(event, bytes) else json.dumps(event).encode())
                    + b"\n\n" for event in events)


def tgi(index, token_id, text, whole=None, special=False):
    details = whole and {"finish_reason": "length", "generated_tokens": index, "input_length": 3}
    return {"index": index, "token": {"id": token_id, "text": text, "special": special},
            "generated_text": whole, "details": details}


def completion(number, text, reason=None, logprobs=True):
    return {"choices": [{"index": 0, "text": text, "finish_reason": reason,
                         "logprobs": {"tokens": [text]} if logprobs else None}],
            "usage": {"prompt_tokens": 3, "completion_tokens": number,
                      "prompt_tokens_details": {"cached_tokens": 0}}}


class DoorsTest(unittest.TestCase):
    """What a door sends becomes the history that it is."""

    def parsed(self, door, data):
        seen = new_history(door)
        parser = SseParser(seen)
        # A byte at a time: nothing may hang on how the bytes came.
        for byte in data:
            parser.take(bytes([byte]))
        parser.end()
        seen.closed = CLEAN
        return seen

    def test_tgi(self):
        data = sse(tgi(1, 1, "one"), tgi(2, 2, " two", "one two"))
        seen = self.parsed(TGI, b": waiting\n\n" + data)
        self.assertEqual(faults(seen, max_tokens=2, detokenize=detokenize), [])
        self.assertEqual((seen.ids(), seen.text()), ([1, 2], "one two"))
        again = self.parsed(TGI, data + data)
        self.assertTrue(any(fault.startswith(AFTER_END) for fault in faults(again)))

    def test_tgi_names_its_last_token_again_when_text_was_held_back(self):
        seen = self.parsed(TGI, sse(tgi(1, 1, "on"), tgi(1, 1, "e", "one")))
        self.assertEqual(faults(seen, max_tokens=1, detokenize=detokenize), [])
        self.assertEqual(seen.ids(), [1])

    def test_openai(self):
        data = sse(completion(1, "one"), completion(2, " two", "length"),
                   {"choices": [], "usage": completion(2, "")["usage"]})
        seen = self.parsed(COMPLETIONS, data + sse(b"[DONE]"))
        self.assertEqual(faults(seen, max_tokens=2), [])
        self.assertEqual(seen.pieces(), [b"one", b" two"])
        self.assertIn(END, faults(self.parsed(COMPLETIONS, data))[0])
        twice = self.parsed(COMPLETIONS, data + sse(b"[DONE]", b"[DONE]"))
        self.assertIn(AFTER_END, faults(twice)[0])

    def test_a_plain_chunk_without_text_may_be_the_last_token(self):
        for tokens in (1, 2, 3):
            data = sse(completion(1, "one", logprobs=False),
                       completion(2, "", "stop", logprobs=False),
                       {"choices": [], "usage": completion(tokens, "")["usage"]}, b"[DONE]")
            said = faults(self.parsed(PLAIN_COMPLETIONS, data), max_tokens=5)
            self.assertEqual(bool(said), tokens == 3, said)

    def test_errors_and_what_no_door_sends(self):
        seen = self.parsed(TGI, sse(tgi(1, 1, "one"), {"error": "lost", "error_type": "x"}))
        self.assertEqual(faults(seen, end=FAILED), [])
        one = completion(1, "one")
        for wrong in (b"data: {\n\n", sse({}), b"oh\n\n", sse({"choices": [{}]}),
                      sse({**one, "choices": [{**one["choices"][0], "index": 1}]}),
                      sse({**one, "choices": one["choices"] * 2}), sse({**one, "error": "x"})):
            self.assertIn(FORM, faults(self.parsed(COMPLETIONS, wrong))[0])

    def test_an_event_ends_with_an_empty_line(self):
        data = sse(tgi(1, 1, "one"), tgi(2, 2, " two", "one two"))
        self.assertEqual(faults(self.parsed(TGI, data), max_tokens=2), [])
        for wrong in (data.replace(b"\n\n", b"\n"), data.replace(b"\n\n", b"\n", 1), data[:-1]):
            self.assertIn(FORM, faults(self.parsed(TGI, wrong))[0])


class ConnectionTest(unittest.TestCase):
    """Streams over a socket, from a listener that plays the server."""

    def seen(self, answer, leave=never, silent=False):
        read = threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            def serve():
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1 << 16)
                    connection.sendall(answer)
                    if silent:
                        read.wait()

            thread = threading.Thread(target=serve)
            thread.start()
            address = "127.0.0.1:%d" % listener.getsockname()[1]
            server = types.SimpleNamespace(
                connection=lambda timeout_s: http.client.HTTPConnection(
                    address, timeout=0.2 if silent else timeout_s), grpc=address, headers={})
            out = new_history(TGI)
            read_stream(server, TGI, Ask("x"), out, leave)
            read.set()
            thread.join()
        return out

    HEAD = (b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n")

    @staticmethod
    def chunk(data):
        return b"%x\r\n%s\r\n" % (len(data), data)

    def test_a_chunked_body_that_ends_is_clean_and_one_that_breaks_off_is_broken(self):
        first, last = sse(tgi(1, 1, "one")), sse(tgi(2, 2, " two", "one two"))
        whole = self.HEAD + self.chunk(first) + self.chunk(last) + b"0\r\n\r\n"
        self.assertEqual(faults(self.seen(whole), max_tokens=2, detokenize=detokenize), [])
        for end in (len(whole) - 5, len(self.HEAD + self.chunk(first)), len(self.HEAD) + 9):
            self.assertEqual(self.seen(whole[:end]).closed, BROKEN, end)
        # All events came, the last chunk did not.
        self.assertIn(CONNECTION, faults(self.seen(whole[:-5]))[0])

    def test_a_server_that_says_nothing_more_has_cut_nothing(self):
        silent = self.seen(self.HEAD + self.chunk(sse(tgi(1, 1, "one"))), silent=True)
        self.assertEqual(silent.count, 1)
        for end in (CUT, FAILED, HUNG_UP, WHOLE):
            self.assertTrue(any(fault.startswith(CONNECTION) for fault in faults(silent, end=end)))

    def test_a_half_event_is_named(self):
        said = faults(self.seen(self.HEAD + self.chunk(b"data: {") + b"0\r\n\r\n"))
        self.assertIn(FORM, said[0])

    def test_a_client_that_leaves_and_one_that_is_refused(self):
        stream = self.HEAD + self.chunk(sse(tgi(1, 1, "one"))) + self.chunk(sse(tgi(2, 2, " two")))
        left = self.seen(stream, leave=after(1))
        self.assertEqual(faults(left, end=HUNG_UP), [])
        refused = self.seen(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}")
        self.assertEqual(faults(refused, end=FAILED), [])

    def test_a_reader_that_fails_is_a_finding_and_no_broken_stream(self):
        out = new_history(TGI)
        read_stream(types.SimpleNamespace(), TGI, Ask("x"), out)
        self.assertIn(FORM, faults(out, end=CUT)[0])

    def test_no_server_at_all_is_a_broken_stream(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = "127.0.0.1:%d" % listener.getsockname()[1]
        server = types.SimpleNamespace(grpc=address, headers={})
        out = new_history(GRPC)
        read_stream(server, GRPC, Ask("x"), out)
        self.assertEqual(faults(out, end=CUT), [])


if __name__ == "__main__":
    unittest.main()
