"""A name server for tests that have a network of their own: it answers, late or never, with no
address, one or many, as the test says, and notes what it was asked.
"""

import pathlib
import socket
import struct
import subprocess
import tempfile
import threading

TYPE_A, CLASS_IN, NO_SUCH_NAME = 1, 1, 3
# What a client may keep an answer for: a pod that comes back is found at once.
TTL_S = 1
CONFIGURATION = pathlib.Path("/etc/resolv.conf").resolve()
POLL_S = 0.1


class NameServer:
    """On port 53 of `address`. From `use` on it is the only one that this mount namespace knows."""

    def __init__(self, address):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind((address, 53))
        self.socket.settimeout(POLL_S)
        self.address, self.of, self.delay_s, self.silent, self.asked = address, {}, 0.0, False, []
        self.closing = False
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def use(self):
        self.file = tempfile.NamedTemporaryFile("w", prefix="weft-resolv-")
        self.file.write(f"nameserver {self.address}\n")
        self.file.flush()
        subprocess.run(["mount", "--bind", self.file.name, str(CONFIGURATION)], check=True)
        return self

    def close(self):
        self.closing = True
        self.thread.join()
        self.socket.close()
        subprocess.run(["umount", str(CONFIGURATION)], check=True)
        self.file.close()

    def serve(self):
        while not self.closing:
            try:
                question, client = self.socket.recvfrom(4096)
            except TimeoutError:
                continue
            name, kind, end = self.parse(question)
            self.asked.append(name)
            if self.silent:
                continue
            answer = self.answer(question, name, kind, end)
            timer = threading.Timer(self.delay_s, self.send, (answer, client))
            timer.daemon = True
            timer.start()

    def send(self, answer, client):
        try:
            self.socket.sendto(answer, client)
        except OSError:
            pass  # the test is over

    @staticmethod
    def parse(question):
        """(name, type, where the question ends)."""
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1:at + 1 + question[at]].decode())
            at += 1 + question[at]
        kind, _ = struct.unpack_from(">HH", question, at + 1)
        return ".".join(labels).lower(), kind, at + 5

    def answer(self, question, name, kind, end):
        addresses = self.of.get(name)
        records = addresses if addresses and kind == TYPE_A else []
        # A response, authoritative, recursion available as far as it was desired.
        flags = 0x8580 | (0 if addresses else NO_SUCH_NAME)
        body = b"".join(struct.pack(">HHHIH", 0xc00c, TYPE_A, CLASS_IN, TTL_S, 4)
                        + socket.inet_aton(address) for address in records)
        return (question[:2] + struct.pack(">HHHHH", flags, 1, len(records), 0, 0)
                + question[12:end] + body)
