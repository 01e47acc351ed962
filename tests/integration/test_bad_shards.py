"""Shards and routers on hosts of their own that do not fit together: certificates, models, builds,
ranks, names. Each is told in one line with the way out, the router is not ready and says the same,
and nothing runs hot. When it is mended the router serves, without a restart of its own.
"""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import time
import unittest

import hosts
from name_server import NameServer
from weft_server import BIN, DEMO_MODEL, ROOT, run_tests, wait_until

OTHER_MODEL = ROOT / "tests/goldens/llama_nine_heads_f16"
EXIT_STARTUP = 1
# For what has no promise; a machine may be under five times the load.
PATIENCE_S = 60
# Long enough for waits that grow to have grown.
ABSENCE_S = 30
# A name is looked up every two seconds while nobody knows it; a shard is asked every tenth of one.
FOUND_S = 8
SLOW_NAMES_S = 3


def setUpModule():
    hosts.enter()


def ends_at_once(*argv, within=()):
    """What a process says that cannot start: exit code 1 and one line, beside who it is."""
    result = subprocess.run([*within, *map(str, argv)], capture_output=True, text=True, timeout=60)
    lines = [line for line in result.stderr.splitlines() if " info  " not in line]
    if result.returncode != EXIT_STARTUP or len(lines) != 1:
        raise AssertionError(f"exit code {result.returncode}, {len(lines)} lines:\n{result.stderr}")
    return lines[0]


class OtherAuthority:
    """Certificates of the same names by somebody else."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder, "other")
        self.folder.mkdir()
        hosts.make_certificates(str(self.folder), ["router", "shard-1"])

    def __str__(self):
        return str(self.folder)


class BadShards(unittest.TestCase):
    def setUp(self):
        self.names = hosts.Names()
        self.server = hosts.SpreadServer(names=self.names)

    def tearDown(self):
        self.server.stop()
        self.names.close()

    def answer(self):
        """(status, detail) of the router's /readyz."""
        self.assertIsNone(self.server.process.poll(), self.server.log_text()[-4000:])
        status, _, body = self.server.request("GET", "/readyz")
        return status, json.loads(body)["detail"]

    def lines(self):
        return [json.loads(line) for line in self.server.log_text().splitlines()
                if line.startswith("{")]

    def waits(self, *words):
        """The router is not ready and says why; the log has the same, and no flood of it."""
        def told():
            status, detail = self.answer()
            self.assertEqual(status, 503, detail)
            return detail if all(word in detail for word in words) else None
        detail = wait_until(told, f"the router to say {words}", PATIENCE_S)
        reason = re.sub(r"^rank \d: ", "", detail)
        logged = [line for line in self.lines()
                  if line["process"] == "router" and reason in line["msg"]]
        self.assertIn(len(logged), range(1, 4), (detail, logged))
        self.assertIn(logged[0]["level"], ("warn", "error"))
        print(f"\n{detail}")
        return detail

    def serves(self, timeout_s=PATIENCE_S):
        began = time.monotonic()
        wait_until(lambda: self.answer()[0] == 200, "the router to serve", timeout_s)
        answer = self.server.post("/generate", {"inputs": "Once", "parameters":
                                                {"max_new_tokens": 2}})
        self.assertTrue(answer["generated_text"])
        return time.monotonic() - began

    def one_after_another(self, *cases):
        """Shard 1 as it should not be, each until the router has told so, and at last as it should."""
        self.server.start_shard(0)
        self.server.start_router()
        for flags, words in cases:
            self.server.start_shard(1, *flags)
            self.waits(*words)
            self.server.kill_shard(1)
        self.server.start_shard(1)
        self.serves()

    # -- Certificates -----------------------------------------------------------------------------
    def test_certificates_that_do_not_fit(self):
        path, other = self.server.path, OtherAuthority(self.server.folder.name)
        self.one_after_another(
            ([f"--tls-cert={other}/shard-1.crt", f"--tls-key={other}/shard-1.key"],
             ["rank 1", "certificate verify failed", "--shard-tls-ca has not signed"]),
            ([f"--tls-ca={other}/ca.crt"],
             ["rank 1", "shard-1:7000", "its --tls-ca must have signed --shard-tls-cert"]),
            ([f"--tls-cert={path('shard-0.crt')}", f"--tls-key={path('shard-0.key')}"],
             ["rank 1", "Peer name shard-1 is not in peer certificate",
              "give it one with this name"]))
        # The shard that does not take the router's says so itself, and not at every attempt.
        told = [line for line in self.lines()
                if line["process"] == "shard-1" and "turned a connection away" in line["msg"]]
        self.assertEqual(len(told), 1, told)
        self.assertIn("--tls-ca has not signed its certificate", told[0]["msg"])

    def test_a_certificate_that_runs_out_while_its_shard_runs(self):
        hosts.sign_for_seconds(self.server.folder.name, "shard-1", 6)
        self.server.start_shard(0)
        self.server.start_shard(1)
        end = time.monotonic() + 7
        self.server.start_router()
        self.serves()
        # The connection outlives it; a new one does not come about.
        wait_until(lambda: time.monotonic() > end, "the certificate to end", PATIENCE_S)
        self.assertEqual(self.answer()[0], 200)
        self.server.process.kill()
        self.server.process.wait()
        self.server.process.stdout.close()
        self.server.start_router()
        self.waits("rank 1", "certificate verify failed", "out of its dates")

    def test_files_that_are_no_certificates_end_the_start_by_name(self):
        path = self.server.path
        hosts.make_certificates(self.server.folder.name, ["old"], days=-1)
        pathlib.Path(path("junk")).write_text("junk")
        good = {"cert": path("router.crt"), "key": path("router.key"), "ca": path("ca.crt")}
        cases = (({"cert": path("none")}, ["-cert: ", "/none: ", "No such file"]),
                 ({"cert": path("junk")}, ["-cert: ", "/junk: holds no PEM certificate"]),
                 ({"key": path("junk")}, ["-key: ", "/junk: holds no PEM private key"]),
                 ({"key": path("shard-0.key")}, ["-key: ", "is not the key of", "router.crt"]),
                 ({"ca": path("junk")}, ["-ca: ", "/junk: holds no PEM certificate"]),
                 ({"cert": path("old.crt"), "key": path("old.key")},
                  ["-cert: ", "CN=old expired on", "renew it"]),
                 ({"cert": ""}, ["--tls-cert", "together"]))
        for change, words in cases:
            for flag, argv in (
                    ("--tls", [BIN / "weft-shard", "--device=cpu", "--listen=127.0.0.1:0"]),
                    ("--shard-tls", [BIN / "weft-router", "--shard=shard-0:7000", "--http-port=0",
                                     "--grpc-port=0"])):
                said = ends_at_once(*argv, f"--model={DEMO_MODEL}",
                                    *(f"{flag}-{kind}={file}"
                                      for kind, file in {**good, **change}.items()))
                if change != {"cert": ""}:
                    self.assertIn(flag, said)
                    for word in words:
                        self.assertIn(word, said)
                self.assertIn("together" if change == {"cert": ""} else words[0], said)

    # -- Facts ------------------------------------------------------------------------------------
    def test_shards_of_another_model_rank_or_world(self):
        self.one_after_another(
            ([f"--model={OTHER_MODEL}"],
             ["rank 1 differs from rank 0", "vocabulary", "same build, --model"]),
            (["--rank=0"], ["shard 1: rank: expected 1, found 0", "--rank of its own"]),
            (["--world=3"], ["shard 1: number of shards: expected 2, found 3", "--world of every"]),
            (["--dtype=float32"], ["rank 1 differs from rank 0: dtype float32 instead of bfloat16",
                                   "--dtype"]))

    def test_a_shard_of_another_build(self):
        build = self.server.build_revision()
        other = pathlib.Path(self.server.folder.name, "weft-shard")
        raw = (BIN / "weft-shard").read_bytes()
        self.assertEqual(raw.count(build.encode() + b"\0"), 1)
        other.write_bytes(raw.replace(build.encode() + b"\0", build[::-1].encode() + b"\0"))
        other.chmod(0o755)
        self.server.start_shard(0)
        self.server.start_router()
        self.server.start_shard(1, binary=other)
        self.waits("rank 1 differs from rank 0", f"revision {build[::-1]} instead of {build}",
                   "same build")
        self.server.kill_shard(1)
        self.server.start_shard(1)
        self.serves()

    def test_two_routers_for_one_group(self):
        self.server.start()
        first, address = self.server.process, self.server.http
        self.server.start_router()
        self.waits("another router holds the shards")
        self.server.process, second = first, self.server.process
        self.server.http, other_address = address, self.server.http
        self.assertEqual(self.answer(), (200, ""))
        self.serves()
        first.terminate()
        self.assertEqual(first.wait(PATIENCE_S), 0)
        first.stdout.close()
        self.server.process, self.server.http = second, other_address
        self.serves()

    # -- Names ------------------------------------------------------------------------------------
    def name_server(self):
        """Names are not in a file any more."""
        self.names.clear()
        self.server.names = None
        server = NameServer(f"{hosts.NETWORK}.1").use()
        self.addCleanup(server.close)
        server.of = {f"shard-{host.number - 10}": [host.address] for host in self.server.hosts}
        return server

    def start(self):
        for rank in range(2):
            self.server.start_shard(rank)
        self.server.start_router()

    def test_a_name_server_that_is_slow(self):
        names = self.name_server()
        names.delay_s = SLOW_NAMES_S
        self.start()
        self.waits("no connection: shard-", "does not answer")
        self.serves()

    def test_a_name_server_that_says_nothing_for_a_while(self):
        names = self.name_server()
        names.silent = True
        self.start()
        self.waits("no connection: shard-", "DNS resolution failed", "does the name server answer")
        names.silent = False
        took_s = self.serves()
        print(f"found after {took_s:.1f} s")

    def test_a_name_that_nobody_knows_yet(self):
        names = self.name_server()
        address = names.of.pop("shard-1")
        self.start()
        self.waits("rank 1", "no connection: shard-1:7000", "nobody knows this name")
        # An absence lasts as long as it lasts: this is no wait for something.
        time.sleep(ABSENCE_S)
        asked = len(names.asked)
        self.assertLess(asked, 10 * ABSENCE_S)
        names.of["shard-1"] = address
        took_s = self.serves()
        print(f"found after {took_s:.1f} s, asked {asked} times before")
        self.assertLess(took_s, FOUND_S)

    def test_a_name_of_many_addresses(self):
        """Nobody is at the first three; another shard is at the fourth."""
        names = self.name_server()
        own = names.of["shard-1"]
        nobody = [f"{hosts.NETWORK}.{number}" for number in (201, 202, 203)]
        names.of["shard-1"] = [*nobody, self.server.hosts[0].address, *own, nobody[0]]
        self.start()
        took_s = self.serves()
        print(f"found after {took_s:.1f} s")


class BadPlaces(unittest.TestCase):
    """What a shard and a router find where they are started."""

    def processes(self, model):
        return ([BIN / "weft-shard", "--device=cpu", "--listen=127.0.0.1:0", f"--model={model}"],
                [BIN / "weft-router", "--shard=127.0.0.1:7000", "--http-port=0", "--grpc-port=0",
                 f"--model={model}"])

    def test_a_model_volume_that_is_empty(self):
        with tempfile.TemporaryDirectory(prefix="weft-empty-") as folder:
            for argv in self.processes(folder):
                self.assertIn(folder, ends_at_once(*argv))
            for argv in self.processes(f"{folder}/model.gguf"):
                self.assertIn(f"{folder}/model.gguf does not exist", ends_at_once(*argv))

    def test_a_model_volume_that_is_read_only(self):
        with tempfile.TemporaryDirectory(prefix="weft-read-only-") as folder:
            model = pathlib.Path(folder, "model.gguf")
            shutil.copyfile(DEMO_MODEL, model)
            hosts.run("mount", "--bind", folder, folder)
            hosts.run("mount", "-o", "remount,bind,ro", folder)
            try:
                with self.assertRaises(OSError):
                    model.touch()
                server = hosts.SpreadServer(f"--model={model}", shard_flags=[f"--model={model}"])
                try:
                    server.start()
                    self.assertTrue(server.post("/generate", {"inputs": "Once"}))
                finally:
                    server.stop()
            finally:
                hosts.run("umount", folder)

    def test_a_memory_limit_that_the_model_does_not_fit(self):
        shard, _ = self.processes(DEMO_MODEL)
        # In less than a hundred a build with CUDA's libraries does not come to its first line.
        for mib, words in ((112, "a shard takes 128 MiB before it loads anything, of 112 MiB"),
                           (160, "of 160 MiB RAM for this container")):
            with hosts.MemoryGroup(mib << 20) as group:
                said = ends_at_once(*shard, within=group.within())
            self.assertIn(words, said)
            self.assertIn("raise the limit", said)
        # Nor does a launcher, with a build with CUDA's libraries, get far: it says so first.
        with hosts.MemoryGroup(112 << 20) as group:
            said = ends_at_once(BIN / "weft", "serve", f"--model={DEMO_MODEL}", "--device=cpu",
                                "--shards=2", "--http-port=0", "--grpc-port=0",
                                within=group.within())
        self.assertIn("MiB before they load anything, of 112 MiB", said)
        self.assertIn("raise the limit", said)
        with hosts.MemoryGroup(400 << 20) as group:
            said = ends_at_once(*shard, "--kv-memory=1GiB", within=group.within())
            self.assertIn("400 MiB", said)
            self.assertIn("--kv-memory", said)


if __name__ == "__main__":
    run_tests()
