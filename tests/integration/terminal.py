"""A program in a terminal of its own (pty), and what its user would see on the screen (pyte)."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time

import pyte

TIMEOUT_S = 30


class Terminal:
    """Use as a context manager. The program has ended, one way or the other, when it is left."""

    def __init__(self, argv, environment=None, rows=24, columns=80):
        # Lines that scroll out of the screen are kept.
        self.screen = pyte.HistoryScreen(columns, rows, history=2000, ratio=0.01)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.fd, slave = pty.openpty()
        self.resize(rows, columns)
        kept = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        # setsid makes the terminal the program's own, and becomes the program.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", *argv], stdin=slave, stdout=slave, stderr=slave,
            env={**kept, "TERM": "xterm-256color", **(environment or {})})
        self.pid = self.process.pid
        # Kept open: the terminal's modes can be looked at when the program has ended.
        self.slave = slave

    def __enter__(self):
        return self

    def __exit__(self, kind, value, traceback):
        if kind is not None:
            print(self.text())
        self.process.kill()
        self.process.wait()
        os.close(self.fd)
        os.close(self.slave)

    def resize(self, rows, columns):
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def send(self, text):
        os.write(self.fd, text if isinstance(text, bytes) else text.encode())

    def read(self, timeout_s=0.02):
        """Takes what the program wrote; whether that was anything."""
        if not select.select([self.fd], [], [], timeout_s)[0]:
            return False
        data = os.read(self.fd, 1 << 16)
        self.raw += data
        self.stream.feed(data)
        return True

    def lines(self):
        """All lines so far without blanks at their ends, those that scrolled away first."""
        columns = range(self.screen.columns)
        above = ["".join(row[x].data for x in columns) for row in self.screen.history.top]
        return [line.rstrip() for line in above + list(self.screen.display)]

    def text(self):
        return "\n".join(self.lines()).rstrip()

    def joined(self):
        """The same without line ends: of a text that the terminal has wrapped."""
        return "".join(self.lines())

    def row(self):
        """The line that the cursor is in, and its column."""
        return self.screen.display[self.screen.cursor.y].rstrip(), self.screen.cursor.x

    def style_of(self, word):
        """The first character cell of `word` on the screen."""
        for y, line in enumerate(self.screen.display):
            if word in line:
                return self.screen.buffer[y][line.index(word)]
        raise AssertionError(f"{word!r} is not on the screen:\n{self.text()}")

    def wait(self, condition, what, timeout_s=TIMEOUT_S):
        deadline = time.monotonic() + timeout_s
        while not condition():
            if self.read():
                continue
            ended = self.process.poll() is not None
            if (ended or time.monotonic() > deadline) and not condition():
                raise AssertionError(f"{'the program ended' if ended else 'timed out'} before "
                                     f"{what}:\n{self.text()}")

    def expect(self, text, timeout_s=TIMEOUT_S):
        self.wait(lambda: text in self.text(), repr(text), timeout_s)

    def modes(self):
        """Those of the terminal that a shell would find: (echo, whole lines)."""
        flags = termios.tcgetattr(self.fd)[3]
        return bool(flags & termios.ECHO), bool(flags & termios.ICANON)

    def wait_end(self, timeout_s=TIMEOUT_S):
        """The exit code; negative = the signal that ended it."""
        self.wait(lambda: self.process.poll() is not None, "its end", timeout_s)
        while self.read():
            pass
        return self.process.returncode
