"""`weft chat` as its users see it: in a terminal and in pipes, with a server that does as it is told and
with a real one that dies in the middle of an answer."""

import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import tempfile
import unittest

from fake_chat_server import FakeChatServer
from terminal import Terminal
from weft_server import BIN, WeftServer, grpc_modules, run_tests, wait_until

PASTE_BEGIN, PASTE_END = "\x1b[200~", "\x1b[201~"
LEFT, RIGHT, UP, DOWN, HOME = "\x1b[D", "\x1b[C", "\x1b[A", "\x1b[B", "\x1b[H"
CTRL_C, CTRL_D, CTRL_R, CTRL_U = "\x03", "\x04", "\x12", "\x15"
ALT_ENTER = "\x1b\r"


class ChatCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {"XDG_STATE_HOME": folder.name, "HOME": folder.name}

    def chat(self, server, *flags, **arguments):
        """In a terminal, at its prompt."""
        arguments["environment"] = {**self.environment, **arguments.get("environment", {})}
        terminal = Terminal([str(BIN / "weft"), "chat", f"--connect={server.grpc}", *flags],
                            **arguments)
        self.at_prompt(terminal)
        return terminal

    def at_prompt(self, terminal):
        terminal.wait(lambda: terminal.row() == (">", 2), "an empty prompt")

    def tell(self, terminal, text):
        """Types `text` and Enter, and waits for the prompt behind what comes of it."""
        # Each prompt asks for marked pastes, and so does the chat between two prompts.
        asked = b"\x1b[?2004h"
        before = terminal.raw.count(asked)
        terminal.send(text + "\r")
        terminal.wait(lambda: terminal.raw.count(asked) >= before + 2, f"the end of {text!r}")
        self.at_prompt(terminal)

    def run_chat(self, *arguments, stdin="", environment=None):
        return subprocess.run([str(BIN / "weft"), "chat", *arguments], input=stdin, text=True,
                              capture_output=True, timeout=60,
                              env={**os.environ, **self.environment, **(environment or {})})


class EditingTest(ChatCase):
    def test_keys_move_by_character_whatever_its_width(self):
        with FakeChatServer() as server, self.chat(server) as terminal:
            # Columns behind "> ": ab 2, 日本 4, an emoji 2, an e with an accent of its own 1.
            terminal.send("ab日本😀e\u0301")
            terminal.wait(lambda: terminal.row()[1] == 2 + 9, "the cursor behind the text")
            for column in (10, 8, 6, 4, 3, 2):
                terminal.send(LEFT)
                terminal.wait(lambda: terminal.row()[1] == column, f"column {column}")
            terminal.send(RIGHT + RIGHT + RIGHT + "X")
            terminal.wait(lambda: terminal.row()[1] == 2 + 5, "the cursor behind X")
            terminal.send("\x7f\x7f")  # X and 日
            terminal.send("Y\r")
            terminal.expect("Yes.")
            self.assertEqual(server.questions(), ["abY本😀e\u0301"])

    def test_a_line_longer_than_the_screen_is_wide_wraps_and_follows_its_size(self):
        with FakeChatServer() as server, self.chat(server, columns=40) as terminal:
            text = "".join(f"{i:03} " for i in range(25))
            terminal.send(text)
            terminal.expect("024")
            self.assertEqual(terminal.row()[1], (2 + 100) % 40)
            terminal.resize(24, 60)
            terminal.wait(lambda: terminal.row()[1] == (2 + 100) % 60, "the wrap at 60 columns")
            terminal.send(HOME + "X\r")
            terminal.expect("Yes.")
            self.assertEqual(server.questions(), ["X" + text.rstrip()])

    def test_a_paste_is_one_message_and_no_keys(self):
        pasted = "def f():\n\treturn '\u65e5'\n\n/help\n"
        with FakeChatServer() as server, self.chat(server) as terminal:
            terminal.send(PASTE_BEGIN + pasted.replace("\n", "\r") + PASTE_END)
            terminal.expect("/help")
            self.assertEqual(server.requests, [])
            terminal.send("\r")
            terminal.expect("Yes.")
            # Escape sequences and control characters inside are no keys and are not sent.
            self.at_prompt(terminal)
            terminal.send(PASTE_BEGIN + "a\x03\x04\x1b[Ab\x1b]0;t\x07c" + PASTE_END)
            terminal.wait(lambda: terminal.row()[0].startswith("> ab"), "the paste")
            terminal.send("\r")
            terminal.wait(lambda: len(server.requests) == 2, "the second message")
        self.assertEqual(server.questions()[0], pasted.rstrip())
        self.assertRegex(server.questions()[1], r"\Aab[^\x00-\x1f]*c\Z")

    def test_a_long_paste_stands_in_the_line_as_a_label(self):
        pasted = "\n".join(f"line {i} \u00e9" for i in range(500))
        with FakeChatServer(context_tokens=5000) as server, self.chat(server) as terminal:
            terminal.send("Sum up: ")
            terminal.send(PASTE_BEGIN + pasted + PASTE_END)
            terminal.expect("[pasted text 1: 500 lines, 5389 characters]")
            terminal.send(" thanks\r")
            terminal.expect("Yes.")
            self.assertEqual(server.questions(), [f"Sum up: {pasted} thanks"])

    def test_lines_are_typed_with_alt_enter_ctrl_j_and_quotes(self):
        with FakeChatServer() as server, self.chat(server) as terminal:
            terminal.send("one" + ALT_ENTER + "two\nthree\r")
            terminal.expect("Yes.")
            self.at_prompt(terminal)
            terminal.send('"""\r/help is\rno command\r"""\r')
            terminal.wait(lambda: len(server.requests) == 2, "the second message")
        self.assertEqual(server.questions(), ["one\ntwo\nthree", "/help is\nno command"])

    def test_up_moves_in_lines_and_then_in_the_history_of_earlier_conversations(self):
        with FakeChatServer() as server:
            with self.chat(server) as terminal:
                self.tell(terminal, "the first one")
                terminal.send("two" + ALT_ENTER + "lines\r")
                terminal.wait(lambda: len(server.requests) == 2, "the message")
                self.at_prompt(terminal)
                terminal.send(CTRL_D)
                self.assertEqual(terminal.wait_end(), 0)
            file = self.folder / "weft/chat_history"
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
            self.assertEqual(file.read_text(), "the first one\ntwo\\nlines\n")
            with self.chat(server) as terminal:
                terminal.send(UP)
                terminal.expect("lines")
                terminal.send(UP + UP)
                terminal.wait(lambda: terminal.row()[0] == "> the first one", "the first message")
                terminal.send(DOWN)
                terminal.expect("lines")
                terminal.send(CTRL_C)
                self.at_prompt(terminal)
                terminal.send(CTRL_R + "first")
                terminal.expect("the first one")
                terminal.send("\r")
                terminal.wait(lambda: len(server.requests) == 3, "the message found")
            self.assertEqual(server.questions(), ["the first one", "two\nlines", "the first one"])
            with self.chat(server, "--no-history") as terminal:
                self.tell(terminal, "a secret")
        self.assertNotIn("secret", file.read_text())

    def test_ctrl_c_clears_the_line_and_ctrl_d_ends(self):
        with FakeChatServer() as server, self.chat(server) as terminal:
            terminal.send("never sent")
            terminal.expect("never sent")
            terminal.send(CTRL_C)
            self.at_prompt(terminal)
            self.tell(terminal, "sent")
            terminal.send(CTRL_D)
            self.assertEqual(terminal.wait_end(), 0)
            self.assertEqual(server.questions(), ["sent"])
            self.assertEqual(terminal.modes(), (True, True))

    def test_bytes_that_are_no_text_lose_the_line_alone(self):
        with FakeChatServer() as server, self.chat(server) as terminal:
            terminal.send(b"a\xff\xfe")
            terminal.expect("no UTF-8")
            self.at_prompt(terminal)
            terminal.send(CTRL_U)
            self.tell(terminal, "fine")
            self.assertEqual(server.questions(), ["fine"])

    def test_tab_completes_commands(self):
        with FakeChatServer() as server, self.chat(server) as terminal:
            terminal.send("/set temp\t")
            terminal.wait(lambda: terminal.row()[0] == "> /set temperature", "the completion")


class AnswersTest(ChatCase):
    def test_markdown_is_shown_while_it_comes(self):
        answer = ["# Ti", "tle\n", "plain *", "*bold*", "* `co", "de`\n", "- item\n", "```", "py\nx = 1",
                  "\n``", "`\n", "end **half"]
        with FakeChatServer(answer) as server:
            server.hold = 9
            with self.chat(server) as terminal:
                terminal.send("go\r")
                # The line of code is there before the rest has come.
                terminal.expect("x = 1")
                self.assertEqual(terminal.style_of("x = 1").fg, "cyan")
                server.go.set()
                terminal.expect("end **half")
                self.at_prompt(terminal)
                self.assertIn("\nTitle\nplain bold code\n• item\n```py\nx = 1\n```\nend **half\n>",
                              terminal.text())
                self.assertTrue(terminal.style_of("Title").bold)
                self.assertTrue(terminal.style_of("bold code").bold)
                self.assertEqual(terminal.style_of("code").fg, "cyan")
                self.assertFalse(terminal.style_of("plain").bold)
                self.assertFalse(terminal.style_of("end **half").bold)

    def test_without_styles_markdown_is_as_it_was_written(self):
        for flags, environment in ((["--plain"], {}), ([], {"NO_COLOR": "1"}),
                                   ([], {"TERM": "dumb"})):
            with self.subTest(flags=flags, environment=environment), \
                    FakeChatServer(["# T **b**\n- `c`"]) as server:
                arguments = {**self.environment, **environment}
                with Terminal([str(BIN / "weft"), "chat", f"--connect={server.grpc}", *flags],
                              environment=arguments) as terminal:
                    terminal.wait(lambda: terminal.row() == (">", 2), "an empty prompt")
                    terminal.send("go\r")
                    terminal.expect("# T **b**\n- `c`\n")
                    self.assertNotRegex(terminal.raw.split(b"go")[-1], rb"\x1b\[[0-9;]*m")

    def test_an_answer_cannot_command_the_terminal(self):
        hostile = ["\x1b", "[2J", "\x1b]0;own", "ed\x07", "\x1b[6n", "\x9b1m\u009b31m", "\r", "over",
                   "\x08\x08", "\x1bP$q\x1b\\", "\u202eabc", "\x7f"]
        for flags in ([], ["--plain"]):
            with self.subTest(flags=flags), FakeChatServer(hostile) as server:
                with self.chat(server, *flags) as terminal:
                    terminal.send("go\r")
                    terminal.expect("abc")
                    self.at_prompt(terminal)
                    self.assertIn("␛[2J␛]0;owned␇␛[6n", terminal.text())
                    self.assertIn("<U+009B>31m", terminal.text())
                    self.assertIn("␍over␈␈␛P$q␛\\<U+202E>abc␡", terminal.text())
                    self.assertIn("> go", terminal.text())  # nothing was cleared
                    said = terminal.raw
                    for sequence in (b"\x1b[2J", b"\x1b]", b"\x1bP", b"\x1b[6n", b"\x9b\x31", b"\x07"):
                        self.assertNotIn(sequence, said)
                    # Nor can the model's name, which is shown first.
                    self.assertIn("fake␛[31m", terminal.text())

    def test_ctrl_c_stops_the_answer_and_keeps_what_came(self):
        with FakeChatServer(["one ", "two ", "three"]) as server:
            server.hold = 2
            with self.chat(server) as terminal:
                terminal.send("count\r")
                terminal.expect("one two")
                self.assertTrue(server.holding.wait(10))
                terminal.send(CTRL_C)
                terminal.expect("[stopped]")
                self.at_prompt(terminal)
                wait_until(lambda: server.cancelled == 1, "the cancelled request")
                server.hold = None
                self.tell(terminal, "more")
                messages = server.requests[1].chat.messages
                self.assertEqual([m.content for m in messages], ["count", "one two ", "more"])

    def test_what_is_typed_during_an_answer_waits_for_the_prompt(self):
        with FakeChatServer(["one ", "two"]) as server:
            server.hold = 1
            with self.chat(server) as terminal:
                terminal.send("count\r")
                terminal.expect("one")
                terminal.send("next\r" + PASTE_BEGIN + "a\rb" + PASTE_END)
                server.go.set()
                terminal.wait(lambda: len(server.requests) == 2, "the second message")
                terminal.expect("> a\nb")
                self.assertIn("\none two\n> next\n", terminal.text())
                self.assertEqual(server.questions(), ["count", "next"])

    def test_a_full_context_goes_on_without_the_oldest_exchanges(self):
        with FakeChatServer(["w "] * 10, context_tokens=100) as server:
            with self.chat(server) as terminal:
                for i in range(6):
                    self.tell(terminal, f"q{i} a b c d e f g h i")
                terminal.expect("the oldest 2 exchanges are no longer sent")
                first = [request.chat.messages[0].content[:2] for request in server.requests]
                self.assertEqual(first, ["q0", "q0", "q0", "q0", "q2", "q2"])
                # A message that does not fit alone is refused, and the next one goes on.
                terminal.send(PASTE_BEGIN + "word " * 200 + PASTE_END + "\r")
                terminal.expect("send a shorter one")
                self.tell(terminal, "short")
                self.assertEqual(server.questions()[-1], "short")


class CommandsTest(ChatCase):
    def test_settings_are_sent_and_refused_by_range(self):
        with FakeChatServer() as server, self.chat(server, "--seed=7") as terminal:
            self.tell(terminal, "/set temperature 0.5")
            self.tell(terminal, "/set top_p 2")
            terminal.expect('top_p: "2" is no number in above 0, at most 1')
            self.tell(terminal, "/set max_tokens 17")
            self.tell(terminal, "/set")
            for name in ("temperature        0.5", "top_p              default", "seed               7"):
                self.assertIn(name, terminal.text())
            self.tell(terminal, "hello")
            request = server.requests[0]
            self.assertAlmostEqual(request.sampling.temperature, 0.5)
            self.assertEqual((request.sampling.seed, request.stopping.max_tokens), (7, 17))
            self.assertFalse(request.sampling.HasField("top_p"))

    def test_system_retry_undo_and_clear(self):
        with FakeChatServer() as server, self.chat(server, "--system=S") as terminal:
            def sent():
                return [message.content for message in server.requests[-1].chat.messages]

            self.tell(terminal, "one")
            self.assertEqual(sent(), ["S", "one"])
            self.tell(terminal, "/system T U")
            self.tell(terminal, "two")
            self.assertEqual(sent(), ["T U", "one", "Yes.", "two"])
            self.tell(terminal, "/retry")
            self.assertEqual(len(server.requests), 3)
            self.assertEqual(sent(), ["T U", "one", "Yes.", "two"])
            self.tell(terminal, "/undo")
            self.tell(terminal, "/system -")
            self.tell(terminal, "three")
            self.assertEqual(sent(), ["one", "Yes.", "three"])
            self.tell(terminal, "/clear")
            self.tell(terminal, "four")
            self.assertEqual(sent(), ["four"])

    def test_unknown_commands_stay_here_and_two_slashes_send(self):
        with FakeChatServer() as server, self.chat(server) as terminal:
            self.tell(terminal, "/hlep")
            terminal.expect("unknown command /hlep (/help?)")
            self.tell(terminal, "/help")
            terminal.expect("/save FILE")
            self.assertEqual(server.requests, [])
            self.tell(terminal, "//etc")
            self.assertEqual(server.questions(), ["/etc"])
            self.tell(terminal, "/stats")
            terminal.expect("its prompt   1 tokens, 3 of them cached")
            terminal.expect("2 tokens used, 998 left of 1000")
            terminal.send("/exit\r")
            self.assertEqual(terminal.wait_end(), 0)

    def test_a_conversation_is_saved_and_loaded(self):
        file = self.folder / "talk.json"
        with FakeChatServer(["an **answer**"]) as server:
            with self.chat(server) as terminal:
                self.tell(terminal, "question")
                self.tell(terminal, "/save ~/talk.json")
                self.tell(terminal, f"/save {self.folder}/talk.md")
                self.assertEqual(json.loads(file.read_text())["messages"],
                                 [{"role": "user", "content": "question"},
                                  {"role": "assistant", "content": "an **answer**"}])
                self.assertIn("## User\n\nquestion", (self.folder / "talk.md").read_text())
            with self.chat(server) as terminal:
                self.tell(terminal, f"/save {file}")
                terminal.expect("is there already")
                self.tell(terminal, f"/load {file}")
                self.tell(terminal, "second")
                self.assertEqual([m.content for m in server.requests[-1].chat.messages],
                                 ["question", "an **answer**", "second"])
                self.tell(terminal, "/load ~/talk.md")
                terminal.expect("is no conversation as /save writes it")


class PipesTest(ChatCase):
    def test_a_pipe_is_one_question_and_its_answer_alone(self):
        answer = ["# **b**\n", "\x1b[1m", "end"]
        with FakeChatServer(answer) as server:
            connect = f"--connect={server.grpc}"
            for arguments, stdin, question in (
                    ([], "hi\nthere\n", "hi\nthere"), (["what?"], "", "what?"),
                    (["what is this?"], "a\nb\n", "what is this?\n\na\nb"),
                    (["--prompt=what?"], "left alone", "what?")):
                with self.subTest(arguments=arguments, stdin=stdin):
                    done = self.run_chat(connect, *arguments, stdin=stdin)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    # As it came, to the byte, and the end of the line.
                    self.assertEqual(done.stdout, "".join(answer) + "\n")
                    self.assertEqual(server.questions()[-1], question)

    def test_errors_go_to_stderr_with_a_code(self):
        with FakeChatServer(["one ", "two"]) as server:
            connect = f"--connect={server.grpc}"
            for arguments, stdin, said in (
                    ([], "", "nothing to answer"), ([], "\n \n", "nothing to answer"),
                    (["a", "--prompt=b"], "", "give one of them"),
                    ([], "word " * 2000, "send a shorter one"),
                    (["--top-p=3", "x"], "", "at most 1")):
                with self.subTest(said=said):
                    done = self.run_chat(connect, *arguments, stdin=stdin)
                    self.assertEqual((done.returncode, done.stdout), (1, ""))
                    self.assertIn(said, done.stderr)
            server.break_at = 1
            server.code = grpc_modules()[0].StatusCode.FAILED_PRECONDITION
            done = self.run_chat(connect, "x")
            self.assertEqual((done.returncode, done.stdout), (1, "one \n"))
            self.assertIn("the answer broke off here", done.stderr)
            done = subprocess.run([str(BIN / "weft"), "chat", connect], input=b"\xff\xfe",
                                  capture_output=True, timeout=60)
            self.assertIn(b"no UTF-8", done.stderr)

    def test_a_reader_that_has_enough_ends_the_request(self):
        with FakeChatServer(["line\n"] * 50) as server:
            server.hold = 2
            chat = subprocess.Popen([str(BIN / "weft"), "chat", f"--connect={server.grpc}", "x"],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
            self.assertEqual(chat.stdout.readline(), b"line\n")
            chat.stdout.close()
            server.go.set()
            self.assertEqual(chat.wait(30), 0)

    def test_without_a_server_it_says_how_to_start_one(self):
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{nobody.getsockname()[1]}"
            done = self.run_chat(f"--connect={address}", "--connect-timeout-s=1", "x")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("weft serve", done.stderr)
            with Terminal([str(BIN / "weft"), "chat", f"--connect={address}",
                           "--connect-timeout-s=1"], environment=self.environment) as terminal:
                self.assertEqual(terminal.wait_end(), 1)
                self.assertIn("weft serve", terminal.joined())
                self.assertEqual(terminal.modes(), (True, True))


class BreaksTest(ChatCase):
    def test_a_stream_that_breaks_goes_on(self):
        with FakeChatServer([f"t{i} " for i in range(8)]) as server:
            server.break_at = 4
            with self.chat(server) as terminal:
                self.tell(terminal, "go")
                text = terminal.joined()
                self.assertIn("\nt0 t1 t2 t3\n[broken␛[2J; trying", terminal.text())
                self.assertEqual([text.count(f"t{i}") for i in range(8)], [1] * 8)
            self.assertEqual(list(server.requests[1].resume.output_ids), [0, 1, 2, 3])
            self.assertEqual((server.requests[1].resume.seed, server.requests[1].resume.fingerprint),
                             (5, "f"))

    def test_a_server_that_stays_away_costs_the_rest_of_the_answer_alone(self):
        with FakeChatServer(["one ", "two ", "three"]) as server:
            server.hold = 2
            with self.chat(server, "--reconnect-timeout-s=1") as terminal:
                terminal.send("count\r")
                terminal.expect("one two")
                server.server.stop(0).wait(10)
                terminal.wait(lambda: "the answer broke off here" in terminal.joined(), "the note")
                self.at_prompt(terminal)
                with FakeChatServer(["three"], port=server.port) as second:
                    terminal.send("/retry\r")
                    # It may try more than once: the channel remembers a failure for a moment.
                    terminal.expect("\nthree")
                    self.assertEqual(second.questions(), ["count"])

    def test_a_signal_gives_the_terminal_back(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with FakeChatServer() as server, self.chat(server) as terminal:
                self.assertNotEqual(terminal.modes(), (True, True))
                os.kill(terminal.pid, number)
                self.assertEqual(terminal.wait_end(), -number)
                self.assertEqual(terminal.modes(), (True, True))

    def test_a_question_on_a_terminal_is_answered_in_styles_and_leaves_none_behind(self):
        with FakeChatServer(["```\n", "code", " more"]) as server:
            server.hold = 2
            for ends in (True, False):
                with Terminal([str(BIN / "weft"), "chat", f"--connect={server.grpc}", "x"],
                              environment=self.environment) as terminal:
                    terminal.expect("code")
                    self.assertEqual(terminal.style_of("code").fg, "cyan")
                    if ends:
                        terminal.send(CTRL_C)
                    else:
                        server.go.set()
                    self.assertEqual(terminal.wait_end(), -signal.SIGINT if ends else 0)
                    self.assertEqual(terminal.screen.cursor.attrs.fg, "default")
                    self.assertEqual("code more" in terminal.text(), not ends)

    def test_what_a_server_says_of_an_error_cannot_command_the_terminal(self):
        with FakeChatServer(["one ", "two"]) as server:
            server.break_at, server.code = 0, grpc_modules()[0].StatusCode.FAILED_PRECONDITION
            done = self.run_chat(f"--connect={server.grpc}", "x")
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn("broken␛[2J", done.stderr)

    def test_a_real_answer_survives_kills_of_router_and_shard(self):
        question = "Tell me a long story about the sea and a ship."
        with WeftServer() as server:
            flags = (f"--connect={server.grpc}", "--max-tokens=200", question)
            whole = self.run_chat(*flags)
            self.assertEqual((whole.returncode, whole.stderr), (0, ""))
            self.assertGreater(len(whole.stdout), 400)
            chat = subprocess.Popen([str(BIN / "weft"), "chat", *flags], stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)
            said = chat.stdout.read(20)
            os.kill(server.shard_pid(0), signal.SIGKILL)
            said += chat.stdout.read(20)
            os.kill(server.router_pid(), signal.SIGKILL)
            rest, errors = chat.communicate(timeout=120)
            self.assertEqual(chat.returncode, 0, errors)
            self.assertEqual((said + rest).decode(), whole.stdout)
            self.assertIn(b"to go on where the answer broke off", errors)


if __name__ == "__main__":
    run_tests()
