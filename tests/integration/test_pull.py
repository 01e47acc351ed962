"""`weft pull` against a hub on this host, with its faults; the cache shared with huggingface_hub;
and `weft serve` of what was pulled."""

import fcntl
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

import fake_hub
from fake_hub import FakeHub, Model, cut_after, git_sha1, sha256, status
from weft_server import BIN, DEMO_MODEL, ROOT, WeftServer, run_tests, skip, wait_until

GOLDEN = ROOT / "tests/goldens/llama_tied_llama3"
MIB = 1 << 20
PIECE = 16 * MIB
TOKEN = "hf_secret"


def clean_environment():
    """Without what would send a pull elsewhere than to the test's hub."""
    return {name: value for name, value in os.environ.items()
            if not name.startswith(("HF_", "HUGGING", "TRANSFORMERS_"))
            and "proxy" not in name.lower()}


def some_bytes(count, seed=15):
    return random.Random(seed).randbytes(count)


def golden_files():
    names = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json")
    return {name: (GOLDEN / name).read_bytes() for name in names}


class PullTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weft-pull-")
        self.addCleanup(folder.cleanup)
        self.home = pathlib.Path(folder.name)
        self.cache = self.home / "hub"

    def start_hub(self, **models):
        hub = FakeHub(**models)
        hub.__enter__()
        self.addCleanup(hub.__exit__)
        return hub

    def environment(self, hub, **variables):
        return {**clean_environment(), "HF_ENDPOINT": hub.url, "HF_HOME": str(self.home),
                "HF_TOKEN": TOKEN, **variables}

    def begin(self, hub, *arguments, **variables):
        return subprocess.Popen([str(BIN / "weft"), "pull", *arguments], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env=self.environment(hub, **variables))

    def run_pull(self, hub, *arguments, **variables):
        """(exit code, stdout, stderr)"""
        process = self.begin(hub, *arguments, **variables)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def pulled(self, hub, *arguments, **variables):
        """Path that is printed, and stderr."""
        code, out, err = self.run_pull(hub, *arguments, **variables)
        self.assertEqual(code, 0, err)
        return pathlib.Path(out.strip()), err

    def refused(self, words, hub, *arguments, **variables):
        code, _, err = self.run_pull(hub, *arguments, **variables)
        self.assertEqual(code, 1, err)
        for word in words:
            self.assertIn(word, err)
        self.assertNotIn(TOKEN, err)
        return err

    def folder(self, name="org--m"):
        return self.cache / f"models--{name}"

    def blobs(self, name="org--m"):
        folder = self.folder(name) / "blobs"
        return sorted(p.name for p in folder.iterdir()) if folder.exists() else []

    def assert_snapshot(self, model, paths, name="org--m"):
        snapshot = self.folder(name) / "snapshots" / model.commit
        found = sorted(str(p.relative_to(snapshot)) for p in snapshot.rglob("*") if not p.is_dir())
        self.assertEqual(found, sorted(paths))
        for path in paths:
            self.assertTrue((snapshot / path).is_symlink())
            self.assertEqual((snapshot / path).read_bytes(), model.files[path])
            self.assertEqual((snapshot / path).resolve().name, model.digest(path))
        self.assertEqual((self.folder(name) / "refs/main").read_text(), model.commit)
        self.assertEqual([b for b in self.blobs(name) if "." in b], [])

    # -- What is fetched --------------------------------------------------------------------------
    def test_a_model_in_parts_is_fetched_by_its_index_in_parallel_and_checked(self):
        parts = {f"model-0000{i}-of-00004.safetensors": some_bytes(2 * MIB, i) for i in range(1, 5)}
        index = {"weight_map": {f"t{i}": name for i, name in enumerate(parts)}}
        model = Model({"README.md": b"read me", "config.json": b"{}", "tokenizer.json": b"{ }",
                       "model.safetensors.index.json": json.dumps(index).encode(),
                       "pytorch_model.bin": some_bytes(MIB), "original/x.pth": some_bytes(MIB),
                       "consolidated.safetensors": some_bytes(MIB, 9), **parts})
        hub = self.start_hub(org__m=model)
        hub.bytes_per_s = 8 * MIB
        path, err = self.pulled(hub, "org/m")
        self.assertEqual(path, self.folder() / "snapshots" / model.commit)
        self.assertIn("7 files, 8.00 MiB", err)
        self.assert_snapshot(model, ["config.json", "tokenizer.json",
                                     "model.safetensors.index.json", *parts])
        self.assertGreaterEqual(hub.in_flight_max, 4)
        # The token went to the hub, each time, and nowhere else.
        self.assertEqual({a.headers.get("authorization") for a in hub.requests("hub")},
                         {f"Bearer {TOKEN}"})
        self.assertEqual(len(hub.requests("cdn")), 4)
        self.assertEqual({a.headers.get("authorization") for a in hub.requests("cdn")}, {None})
        # Once more nothing is fetched.
        hub.forget()
        _, err = self.pulled(hub, "org/m")
        self.assertIn("all there", err)
        self.assertEqual(len(hub.asked), 1)

    def test_ranges_of_one_large_file_come_in_parallel(self):
        model = Model({"m.gguf": some_bytes(5 * PIECE + 12345)})
        hub = self.start_hub(org__m=model)
        hub.bytes_per_s = 200 * MIB
        path, _ = self.pulled(hub, "org/m")
        self.assertEqual(path.name, "m.gguf")
        self.assert_snapshot(model, ["m.gguf"])
        self.assertGreaterEqual(hub.in_flight_max, 4)
        self.assertEqual(hub.bytes_served(), len(model.files["m.gguf"]))
        # The hub is asked for the way once, and later pieces are bound to the first one's version.
        self.assertEqual(len(hub.requests("hub", "/resolve/")), 1)
        self.assertEqual(len([a for a in hub.requests("cdn") if "if-range" in a.headers]), 5)

    def test_connections_are_bounded(self):
        model = Model({f"f{i}.bin": some_bytes(MIB, i) for i in range(9)})
        hub = self.start_hub(org__m=model)
        hub.bytes_per_s = 16 * MIB
        self.pulled(hub, "org/m", "--include=*", "--connections=2")
        self.assertLessEqual(hub.in_flight_max, 2)
        self.assert_snapshot(model, model.files)

    def test_of_several_gguf_files_one_is_chosen(self):
        model = Model({"m-Q4_K_M.gguf": some_bytes(MIB), "m-Q8_0.gguf": some_bytes(2 * MIB)})
        hub = self.start_hub(org__m=model)
        err = self.refused(["choose one", "--include", "1.00 MiB  m-Q4_K_M.gguf"], hub, "org/m")
        self.assertIn("2.00 MiB  m-Q8_0.gguf", err)
        self.assertEqual(self.blobs(), [])
        path, _ = self.pulled(hub, "org/m", "--include", "*Q4_K_M.gguf")
        self.assertEqual(path.name, "m-Q4_K_M.gguf")
        self.assert_snapshot(model, ["m-Q4_K_M.gguf"])
        # Another one joins the same snapshot.
        path, _ = self.pulled(hub, "org/m", "--include", "*Q8_0.gguf")
        self.assertEqual(path.name, "m-Q8_0.gguf")
        self.assert_snapshot(model, ["m-Q4_K_M.gguf", "m-Q8_0.gguf"])

    def test_a_dry_run_fetches_nothing(self):
        hub = self.start_hub(org__m=Model(golden_files()))
        code, out, err = self.run_pull(hub, "org/m", "--dry-run")
        self.assertEqual((code, out), (0, ""), err)
        self.assertIn("to fetch 343 KiB  model.safetensors", err)
        self.assertFalse(self.cache.exists())

    def test_a_list_without_sizes_and_digests_is_completed_by_headers(self):
        model = Model(golden_files())
        hub = self.start_hub(org__m=model)
        hub.listing = lambda m: {"sha": m.commit, "siblings": [{"rfilename": p} for p in m.files]}
        self.pulled(hub, "org/m")
        self.assert_snapshot(model, model.files)
        self.assertEqual(len([a for a in hub.asked if a.method == "HEAD"]), 4)
        self.assertEqual(len([a for a in hub.requests("cdn") if a.method == "HEAD"]), 0)

    def test_progress_is_in_plain_lines_without_a_terminal(self):
        hub = self.start_hub(org__m=Model({"m.gguf": some_bytes(14 * MIB)}))
        hub.bytes_per_s = 2 * MIB
        _, err = self.pulled(hub, "org/m")
        self.assertRegex(err, r"\d+\.\d+ MiB of 14\.0 MiB \(\d+ %\), \d\.\d+ MiB/s, \d+ s left, "
                              r"0 of 1 file\n")
        self.assertNotIn("\r", err)

    # -- Faults of the network --------------------------------------------------------------------
    def test_cut_connections_go_on_where_they_broke(self):
        model = Model({"m.gguf": some_bytes(6 * MIB)})
        hub = self.start_hub(org__m=model)
        cuts = iter([MIB, 2 * MIB, MIB])
        hub.fault = lambda a: (cut_after(next(cuts, 1 << 40)) if a.server == "cdn" else None)
        _, err = self.pulled(hub, "org/m")
        self.assertEqual(err.count("trying again in 1 s"), 3, err)
        self.assert_snapshot(model, ["m.gguf"])
        ranges = [a.headers.get("range") for a in hub.requests("cdn")]
        self.assertEqual(len(ranges), 4)
        starts = [int(r.split("=")[1].split("-")[0]) for r in ranges[1:]]
        # What had come before a cut and was not lost in a socket is not asked for again.
        self.assertEqual(starts, sorted(starts))
        self.assertGreater(starts[0], MIB // 2)
        self.assertGreater(starts[2], 3 * MIB)

    def test_a_pull_that_was_killed_goes_on_and_says_nothing_of_a_half_model(self):
        model = Model({"config.json": b"{}", "tokenizer.json": b"{}",
                       "model.safetensors": some_bytes(12 * MIB)})
        hub = self.start_hub(org__m=model)
        hub.bytes_per_s = 4 * MIB
        process = self.begin(hub, "org/m")
        incomplete = self.folder() / "blobs" / (model.digest("model.safetensors") + ".incomplete")
        wait_until(lambda: incomplete.exists() and incomplete.stat().st_size > 2 * MIB,
                   "some bytes on the disk")
        process.kill()
        process.communicate()
        kept = incomplete.stat().st_size
        self.assertFalse((self.folder() / "snapshots").exists())
        self.assertFalse((self.folder() / "refs").exists())
        code, said = self.serve_fails("org/m")
        self.assertIn("weft pull org/m fetches it", said)
        hub.forget()
        hub.bytes_per_s = 0
        self.pulled(hub, "org/m")
        self.assert_snapshot(model, model.files)
        (asked,) = hub.requests("cdn")
        self.assertEqual(asked.headers["range"], f"bytes={kept}-{12 * MIB - 1}")

    def test_ctrl_c_keeps_what_came_and_says_so(self):
        model = Model({"m.gguf": some_bytes(12 * MIB)})
        hub = self.start_hub(org__m=model)
        hub.bytes_per_s = 4 * MIB
        process = self.begin(hub, "org/m")
        incomplete = self.folder() / "blobs" / (model.digest("m.gguf") + ".incomplete")
        wait_until(lambda: incomplete.exists() and incomplete.stat().st_size > MIB, "some bytes")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=5)
        self.assertEqual(process.returncode, 1)
        self.assertIn("interrupted; what came is kept", err)
        self.assertGreater(incomplete.stat().st_size, MIB)

    def test_what_an_earlier_pull_left_wrong_is_fetched_anew(self):
        model = Model({"m.gguf": some_bytes(2 * MIB)})
        blobs = self.folder() / "blobs"
        blobs.mkdir(parents=True)
        (blobs / (model.digest("m.gguf") + ".incomplete")).write_bytes(b"x" * MIB)
        hub = self.start_hub(org__m=model)
        _, err = self.pulled(hub, "org/m")
        self.assertIn("what an earlier pull had left was wrong", err)
        self.assert_snapshot(model, ["m.gguf"])

    def test_wrong_bytes_are_thrown_away(self):
        for size in (100, 3 * MIB):  # git's SHA-1, and SHA-256 of the large-file storage
            model = Model({"config.json": some_bytes(size)})
            hub = self.start_hub(org__m=model)
            good = model.listing()
            model.files["config.json"] = some_bytes(size, seed=16)
            hub.listing = lambda m, good=good: good

            def fault(asked):
                # The hub's own headers do not give it away.
                return None if asked.server == "cdn" or size < MIB else self.without_links
            hub.fault = fault
            self.refused(["config.json", "not those of the hub's list"], hub, "org/m",
                         "--include=config.json")
            self.assertEqual(self.blobs(), [])
            self.assertFalse((self.folder() / "snapshots").exists())

    @staticmethod
    def without_links(handler, asked):
        send = handler.send_header
        handler.send_header = lambda name, value: (
            None if name == "X-Linked-Etag" else send(name, value))
        handler.serve_hub(handler.server.hub, asked)
        return True

    def test_a_file_of_another_length_or_digest_than_listed_is_refused(self):
        model = Model({"config.json": b"{}", "big.bin": some_bytes(MIB)})
        hub = self.start_hub(org__m=model)
        listing = model.listing()
        listing["siblings"][0]["size"] = 3
        listing["siblings"][1]["lfs"]["sha256"] = "0" * 64
        hub.listing = lambda _: listing
        self.refused(["config.json: it has 2 bytes, by the hub's list 3"], hub, "org/m",
                     "--include=config.json")
        self.refused(["big.bin", "name different digests"], hub, "org/m", "--include=big.bin")

    def test_errors_that_pass_are_tried_again(self):
        model = Model(golden_files())
        hub = self.start_hub(org__m=model)
        plan = {"hub": [503, 502], "cdn": [500]}

        def fault(asked):
            codes = plan[asked.server]
            return status(codes.pop(0)) if codes else None
        hub.fault = fault
        begun = time.monotonic()
        _, err = self.pulled(hub, "org/m")
        self.assert_snapshot(model, model.files)
        self.assertEqual(plan, {"hub": [], "cdn": []})
        self.assertIn("answers 503", err)
        # Half a second and one, by chance halved.
        self.assertGreater(time.monotonic() - begun, 0.75)

    def test_errors_that_stay_are_given_up(self):
        hub = self.start_hub(org__m=Model(golden_files()))
        hub.fault = lambda a: status(503) if a.server == "cdn" else None
        self.refused(["model.safetensors", "given up after 3 tries", "answers 503"], hub, "org/m",
                     "--retries=2")
        self.assertEqual(len(hub.requests("cdn")), 3)

    def test_too_many_requests_wait_as_long_as_they_are_told(self):
        model = Model(golden_files())
        hub = self.start_hub(org__m=model)
        limits = [(0, {"Retry_After": "2"}), (2, {"RateLimit": '"api";r=0;t=2'})]

        def fault(asked):
            with hub.lock:
                if limits and len(hub.asked) > limits[0][0]:
                    return status(429, **limits.pop(0)[1])
            return None
        hub.fault = fault
        begun = time.monotonic()
        self.pulled(hub, "org/m")
        self.assertGreater(time.monotonic() - begun, 4)
        self.assert_snapshot(model, model.files)

    def test_a_silent_server_is_left_and_asked_again(self):
        model = Model({"m.gguf": some_bytes(2 * MIB)})
        hub = self.start_hub(org__m=model)
        silent = threading.Event()
        self.addCleanup(silent.set)

        def hang(handler, _):
            silent.wait(60)
            handler.close_connection = True
            return True
        faults = [hang]
        hub.fault = lambda a: faults.pop() if faults and a.server == "cdn" else None
        begun = time.monotonic()
        self.pulled(hub, "org/m", "--stall-timeout-s=1")
        self.assertLess(time.monotonic() - begun, 30)
        self.assert_snapshot(model, ["m.gguf"])
        self.assertEqual(len(hub.requests("cdn")), 2)

    def test_a_hub_that_is_not_there_is_named(self):
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{bound.getsockname()[1]}"
            hub = self.start_hub()
            err = self.refused(["given up after 2 tries", "127.0.0.1"], hub, "org/m",
                               "--retries=1", HF_ENDPOINT=url)
            self.assertIn("trying again in 1 s", err)

    def test_a_server_without_ranges_is_read_from_its_beginning(self):
        model = Model({"m.gguf": some_bytes(2 * PIECE)})
        hub = self.start_hub(org__m=model)
        hub.ranges = False
        cuts = iter([1 << 40, 3 * MIB])
        hub.fault = lambda a: (cut_after(next(cuts, 1 << 40)) if a.server == "cdn" else None)
        self.pulled(hub, "org/m")
        self.assert_snapshot(model, ["m.gguf"])

    def test_addresses_that_expire_are_asked_for_anew(self):
        model = Model({"m.gguf": some_bytes(3 * PIECE)})
        hub = self.start_hub(org__m=model)
        hub.ticket_uses = 1
        self.pulled(hub, "org/m", "--connections=1")
        self.assert_snapshot(model, ["m.gguf"])
        self.assertEqual(len(hub.requests("hub", "/resolve/")), 3)

    def test_a_file_that_changes_on_its_way_is_begun_anew(self):
        model = Model({"m.gguf": some_bytes(2 * PIECE)})
        hub = self.start_hub(org__m=model)
        other = some_bytes(2 * PIECE, seed=16)
        served = []

        def fault(asked):
            if asked.server != "cdn":
                return None
            served.append(asked)
            ticket = next(reversed(hub.tickets.values()))
            ticket[0] = other if len(served) == 1 else model.files["m.gguf"]
            return None
        hub.fault = fault
        self.pulled(hub, "org/m", "--connections=1")
        self.assert_snapshot(model, ["m.gguf"])

    # -- Refusals ---------------------------------------------------------------------------------
    def test_refusals_say_what_to_do(self):
        hub = self.start_hub(org__m=Model(golden_files()))
        self.refused(["org/none", "404", "look at its name", "Repository not found"], hub,
                     "org/none")
        self.refused(["has no revision v9", "/org/m/tree/main"], hub, "org/m@v9")
        self.refused(["no file matches `*.bin`"], hub, "org/m", "--include=*.bin")
        self.refused(["expected org/name"], hub, "m")
        self.refused(["expected a branch, a tag or a commit"], hub, "org/m@../x")
        hub.fault = lambda _: status(401, X_Error_Code="RepoNotFound")
        self.refused(["401", "private", "HF_TOKEN, or the file token in HF_HOME"], hub, "org/m")
        self.refused(["give a token by HF_TOKEN"], hub, "org/m", HF_TOKEN="")
        hub.fault = lambda _: status(403, X_Error_Code="GatedRepo",
                                     X_Error_Message="Access is restricted\x1b[31m")
        err = self.refused(["is gated", f"ask for access at {hub.url}/org/m"], hub, "org/m")
        self.assertIn("Access is restricted", err)
        self.assertNotIn("\x1b", err)
        self.assertEqual(self.blobs(), [])

    def test_no_name_of_a_file_leads_out_of_the_cache(self):
        hub = self.start_hub(org__m=Model({"config.json": b"{}"}))
        for name in ("../../../../../evil", "/tmp/weft-evil", "a/../../../../b", "a\nb",
                     "x" * 300, "..", "a//b", ".", "\x1b]0;x\x07"):
            hub.listing = lambda m, name=name: {
                "sha": m.commit, "siblings": [{"rfilename": name, "size": 2,
                                               "blobId": git_sha1(b"{}")}]}
            err = self.refused(["the hub names a file"], hub, "org/m", "--include=*")
            self.assertNotIn("\x1b", err)
        hub.listing = lambda m: {"sha": "../../x", "siblings": []}
        self.refused(["names no commit"], hub, "org/m")
        hub.listing = lambda m: {"sha": m.commit, "siblings": [
            {"rfilename": "config.json", "size": 2, "lfs": {"sha256": "../../../evil"}}]}
        self.refused(["no version of a file"], hub, "org/m", "--include=*")
        self.assertEqual([p for p in self.home.rglob("*") if p.is_file()], [])

    def test_an_index_that_names_foreign_files_is_refused(self):
        for name, words in (("../../x.safetensors", "leads out"), ("absent.st", "does not have")):
            index = json.dumps({"weight_map": {"t": name}}).encode()
            hub = self.start_hub(org__m=Model({"config.json": b"{}",
                                               "model.safetensors.index.json": index}))
            self.refused([words], hub, "org/m")
            self.assertFalse((self.folder() / "snapshots").exists())

    def test_redirects_lead_in_no_circle_and_to_no_file(self):
        hub = self.start_hub(org__m=Model(golden_files()))
        for location, words in (("/org/m/resolve/x/again", "leads on more than 5 times"),
                                ("file:///etc/passwd", "no address of http or https")):
            hub.forget()
            hub.fault = lambda a, location=location: (
                status(302, Location=location) if "/resolve/" in a.path else None)
            self.refused([words], hub, "org/m")

    def test_a_redirect_of_the_hub_to_itself_keeps_the_token(self):
        """As for a model that was renamed."""
        model = Model(golden_files())
        hub = self.start_hub(org__old=model, org__m=model)
        hub.fault = lambda a: (status(307, Location=a.path.replace("/old/", "/m/"))
                               if "/old/" in a.path else None)
        self.pulled(hub, "org/old")
        self.assert_snapshot(model, model.files, name="org--old")
        self.assertEqual({a.headers.get("authorization") for a in hub.requests("hub")},
                         {f"Bearer {TOKEN}"})

    def test_a_full_disk_is_seen_before_anything_is_fetched(self):
        model = Model({"m.gguf": b"x"})
        hub = self.start_hub(org__m=model)
        listing = model.listing()
        listing["siblings"][0]["size"] = 1 << 44
        hub.listing = lambda _: listing
        self.refused(["16.0 TiB more are to be written", "HF_HOME"], hub, "org/m")
        self.assertEqual(len(hub.asked), 1)

    def test_offline_nothing_is_asked(self):
        model = Model(golden_files())
        hub = self.start_hub(org__m=model)
        self.refused(["HF_HUB_OFFLINE is set", "no model of that name was pulled"], hub, "org/m",
                     HF_HUB_OFFLINE="1")
        self.assertEqual(hub.asked, [])
        self.pulled(hub, "org/m")
        hub.forget()
        self.pulled(hub, "org/m", HF_HUB_OFFLINE="1")
        # And a commit that is there needs no hub.
        self.pulled(hub, f"org/m@{model.commit}")
        self.assertEqual(hub.asked, [])

    def test_tokens_come_from_the_file_too(self):
        hub = self.start_hub(org__m=Model(golden_files()))
        (self.home / "token").write_text("hf_of_file\n")
        self.pulled(hub, "org/m", HF_TOKEN="")
        self.assertEqual(hub.asked[0].headers["authorization"], "Bearer hf_of_file")

    def test_a_proxy_of_the_environment_is_asked(self):
        hub = self.start_hub(org__m=Model(golden_files()))
        self.pulled(hub, "org/m", "--include=config.json", http_proxy=hub.url,
                    HF_ENDPOINT="http://hub.invalid")
        self.assertTrue(hub.asked[0].path.startswith("http://hub.invalid/api/models/org/m"))

    # -- TLS --------------------------------------------------------------------------------------
    def start_tls_hub(self, **models):
        key, certificate = self.home / "key.pem", self.home / "cert.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-days", "1", "-subj", "/CN=hub",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key,
                        "-out", certificate], check=True, capture_output=True)
        return self.start_hub(tls=(certificate, key), **models), certificate

    def test_only_certificates_that_are_trusted_are_taken(self):
        model = Model(golden_files())
        hub, certificate = self.start_tls_hub(org__m=model)
        self.refused(["127.0.0.1", "certificate", "SSL_CERT_FILE"], hub, "org/m")
        self.assertEqual(hub.asked, [])
        _, err = self.pulled(hub, "org/m", SSL_CERT_FILE=str(certificate))
        self.assertNotIn("in clear", err)
        self.assert_snapshot(model, model.files)

    def test_nothing_leads_from_https_to_http(self):
        hub, certificate = self.start_tls_hub(org__m=Model(golden_files()))
        hub.cdn_url = self.start_hub().url
        self.refused(["leads from https to http"], hub, "org/m", SSL_CERT_FILE=str(certificate))

    # -- Two at once ------------------------------------------------------------------------------
    def test_two_pulls_of_one_model_fetch_it_once(self):
        model = Model({"m.gguf": some_bytes(4 * MIB)})
        hub = self.start_hub(org__m=model)
        hub.bytes_per_s = 2 * MIB
        both = [self.begin(hub, "org/m") for _ in range(2)]
        said = [process.communicate(timeout=60)[1] for process in both]
        self.assertEqual([p.returncode for p in both], [0, 0], said)
        self.assertEqual(sum("another weft pull of org/m runs" in text for text in said), 1, said)
        self.assertEqual(hub.bytes_served(), 4 * MIB)
        self.assert_snapshot(model, ["m.gguf"])

    def test_a_lock_that_stays_is_named_after_a_while(self):
        hub = self.start_hub(org__m=Model(golden_files()))
        locks = self.cache / ".locks/models--org--m"
        locks.mkdir(parents=True)
        with open(locks / "weft-pull.lock", "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            self.refused(["another weft pull of org/m has held", "weft-pull.lock"], hub, "org/m",
                         "--lock-timeout-s=0")

    def test_a_blob_that_huggingface_hub_fetches_is_waited_for(self):
        model = Model(golden_files())
        hub = self.start_hub(org__m=model)
        digest = model.digest("model.safetensors")
        locks = self.cache / ".locks/models--org--m"
        locks.mkdir(parents=True)
        blobs = self.folder() / "blobs"
        blobs.mkdir(parents=True)
        with open(locks / f"{digest}.lock", "w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            process = self.begin(hub, "org/m")
            wait_until(lambda: len(self.blobs()) == 3, "the other files")
            (blobs / digest).write_bytes(model.files["model.safetensors"])
        _, err = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 0, err)
        self.assert_snapshot(model, model.files)
        self.assertEqual(hub.requests("cdn"), [])

    # -- huggingface_hub --------------------------------------------------------------------------
    def in_python(self, hub, code, *arguments):
        """A fresh interpreter: the library reads its variables when it is imported."""
        done = subprocess.run([sys.executable, "-c", code, *arguments], text=True,
                              capture_output=True, timeout=120,
                              env=self.environment(hub, HF_HUB_DISABLE_XET="1",
                                                   HF_HUB_DISABLE_TELEMETRY="1",
                                                   HF_HUB_DISABLE_PROGRESS_BARS="1"))
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_huggingface_hub_finds_what_weft_pulled(self):
        files = {**golden_files(), "sub/extra.json": b"{}"}
        model = Model(files)
        hub = self.start_hub(org__m=model)
        self.pulled(hub, "org/m", "--include=*")
        hub.forget()
        found = json.loads(self.in_python(hub, """
import json
from huggingface_hub import scan_cache_dir, snapshot_download, try_to_load_from_cache
snapshot = snapshot_download("org/m", local_files_only=True)
(repo,) = scan_cache_dir().repos
(revision,) = repo.revisions
print(json.dumps([snapshot, try_to_load_from_cache("org/m", "sub/extra.json"),
                  repo.repo_id, repo.size_on_disk, sorted(revision.refs), revision.commit_hash,
                  [str(w) for w in scan_cache_dir().warnings]]))
"""))
        snapshot = self.folder() / "snapshots" / model.commit
        self.assertEqual(found, [str(snapshot), str(snapshot / "sub/extra.json"), "org/m",
                                 sum(map(len, files.values())), ["main"], model.commit, []])
        self.assertEqual(hub.asked, [])
        # Online it has nothing left to fetch.
        self.in_python(hub, "import huggingface_hub as h; h.snapshot_download('org/m')")
        self.assertEqual(hub.requests("cdn"), [])

    def test_weft_finds_what_huggingface_hub_fetched(self):
        model = Model(golden_files())
        hub = self.start_hub(org__m=model)
        self.in_python(hub, "import huggingface_hub as h; h.snapshot_download('org/m')")
        self.assertEqual(len(hub.requests("cdn")), 1)
        self.assert_snapshot(model, model.files)
        hub.forget()
        _, err = self.pulled(hub, "org/m")
        self.assertIn("all there", err)
        self.assertEqual(len(hub.asked), 1)
        self.check_serves("org/m", self.environment(hub), "org/m")
        self.assertEqual(len(hub.asked), 1)

    # -- Serving ----------------------------------------------------------------------------------
    def serve_fails(self, model, *flags, hub=None):
        environment = {**clean_environment(), "HF_HOME": str(self.home),
                       "HF_ENDPOINT": hub.url if hub else "http://127.0.0.1:9"}
        done = subprocess.run([str(BIN / "weft"), "serve", f"--model={model}", "--http-port=0",
                               "--grpc-port=0", *flags], text=True, capture_output=True,
                              timeout=60, env=environment)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.returncode, done.stderr

    def check_serves(self, model, environment, name, *flags):
        with WeftServer("--device=cpu", *flags, model=model, environment=environment) as server:
            with urllib.request.urlopen(f"http://{server.http}/v1/models", timeout=10) as answer:
                self.assertEqual(json.load(answer)["data"][0]["id"], name)
            body = json.dumps({"model": name, "prompt": [1, 2, 3], "max_tokens": 4,
                               "temperature": 0, "ignore_eos": True}).encode()
            request = urllib.request.Request(f"http://{server.http}/v1/completions", body,
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=30) as answer:
                self.assertEqual(json.load(answer)["usage"]["completion_tokens"], 4)
            self.assertEqual(server.stop(), 0)
            return server.log_text()

    def test_a_pulled_model_is_served_by_its_name_without_a_network(self):
        hub = self.start_hub(org__m=Model(golden_files()))
        self.pulled(hub, "org/m")
        hub.forget()
        self.check_serves("org/m", self.environment(hub), "org/m")
        self.check_serves("org/m@main", self.environment(hub), "mine", "--served-model-name=mine")
        for command in (["inspect", "org/m"], ["doctor", "--model=org/m", "--device=cpu"]):
            done = subprocess.run([str(BIN / "weft"), *command], text=True, capture_output=True,
                                  env=self.environment(hub), timeout=60)
            self.assertIn("models--org--m/snapshots/", done.stdout, done.stderr)
        self.assertEqual(hub.asked, [])

    def test_what_was_not_pulled_is_said_with_the_command(self):
        _, said = self.serve_fails("org/m")
        self.assertIn("--model: org/m is no file or directory here", said)
        self.assertIn("weft pull org/m fetches it", said)
        _, said = self.serve_fails("org/m.gguf")
        self.assertIn("--model: org/m.gguf does not exist", said)

    def test_a_directory_of_that_name_wins(self):
        hub = self.start_hub(org__m=Model(golden_files()))
        self.pulled(hub, "org/m")
        here = self.home / "here"
        shutil.copytree(GOLDEN, here / "org/m")
        done = subprocess.run([str(BIN / "weft"), "inspect", "org/m"], text=True, cwd=here,
                              capture_output=True, env=self.environment(hub), timeout=60)
        self.assertTrue(done.stdout.startswith("org/m\n"), done.stdout + done.stderr)

    def test_serve_pulls_first_where_it_is_told_to(self):
        model = Model(golden_files())
        hub = self.start_hub(org__m=model)
        log = self.check_serves("org/m", self.environment(hub), "org/m", "--pull")
        self.assertIn("4 files", log)
        self.assert_snapshot(model, model.files)
        # A hub that is away does not keep it from being served.
        hub.fault = lambda _: status(503, Retry_After="0")
        log = self.check_serves("org/m", self.environment(hub), "org/m", "--pull",
                                "--log-format=json")
        self.assertIn("serving what was pulled before", log)
        for line in log.splitlines():
            json.loads(line)
        hub.fault = None
        _, said = self.serve_fails("org/none", "--pull", hub=hub)
        self.assertIn("--pull: org/none: 127.0.0.1", said)
        _, said = self.serve_fails(str(GOLDEN), "--pull", hub=hub)
        self.assertIn("is no model of a hub", said)

    def test_the_demo_model_is_pulled_and_talks(self):
        if not os.path.exists(DEMO_MODEL):
            skip("demo", f"{DEMO_MODEL} is not there; run deploy/setup.sh")
        name = "SmolLM2-135M-Instruct"
        data = pathlib.Path(DEMO_MODEL).read_bytes()
        model = Model({f"{name}.Q4_1.gguf": data, f"{name}.Q8_0.gguf": b"another"})
        hub = self.start_hub(**{f"org__{name}": model})
        with WeftServer("--device=cpu", "--pull", "--pull-include=*Q4_1.gguf",
                        model=f"org/{name}", environment=self.environment(hub)) as server:
            body = json.dumps({"model": f"org/{name}", "max_tokens": 8, "temperature": 0,
                               "messages": [{"role": "user", "content": "Say hello."}]}).encode()
            request = urllib.request.Request(f"http://{server.http}/v1/chat/completions", body,
                                             {"Content-Type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as answer:
                said = json.load(answer)["choices"][0]["message"]["content"]
        self.assertIn("ello", said)
        self.assert_snapshot(model, [f"{name}.Q4_1.gguf"], name=f"org--{name}")


if __name__ == "__main__":
    print(f"seed of all bytes: 15; bounds: {fake_hub.LARGE_BYTES} bytes make a large file; "
          f"{sha256(b'')[:8]}", file=sys.stderr)
    run_tests()
