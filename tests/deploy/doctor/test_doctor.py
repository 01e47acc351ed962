"""`weft doctor` of this machine, with a small model: what it prints and how it ends."""

import json
import os
import pathlib
import socket
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
WEFT = pathlib.Path(os.environ["WEFT_BIN_DIR"]) / "weft"
MODEL = ROOT / "tests/goldens/llama_q4_0/model.gguf"


def doctor(*flags):
    """(exit code, stdout, stderr)"""
    done = subprocess.run(
        [str(WEFT), "doctor", f"--model={MODEL}", "--device=cpu", "--http-port=0", "--grpc-port=0",
         *flags], capture_output=True, text=True, timeout=60, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("WEFT_")})
    return done.returncode, done.stdout, done.stderr


def checks(*flags):
    code, out, err = doctor("--json", *flags)
    found = json.loads(out)
    assert code == (1 if found["failed"] else 0), (code, out, err)
    return {check["what"]: check for check in found["checks"]}


class Doctor(unittest.TestCase):
    def test_a_machine_that_runs_tests_can_serve(self):
        code, out, err = doctor("--shards=2")
        self.assertEqual((code, err), (0, ""), out)
        for line in out.splitlines():
            self.assertRegex(line, r"^(ok  |warn)  [^:]+: ")
        for what in ("model", "shared memory of shards", "memory", "open files",
                     "processes and threads", "cores", "clock", "run directory"):
            self.assertRegex(out, rf"(?m)^(ok  |warn)  {what}: ")

    def test_what_is_wrong_fails_by_name(self):
        with socket.create_server(("127.0.0.1", 0)) as taken, \
                tempfile.TemporaryDirectory() as folder:
            port = taken.getsockname()[1]
            found = checks(f"--http-port={port}", f"--model={folder}", "--shards=2",
                           f"--api-keys={folder}/keys.json")
        failed = {what: check for what, check in found.items() if check["verdict"] == "fail"}
        self.assertEqual(set(failed), {f"--http-port {port}", "model", "keys"})
        self.assertIn("config.json", failed["model"]["found"])
        self.assertIn("name another port", failed[f"--http-port {port}"]["way_out"])

    def test_flags_of_serve_come_from_the_environment_and_a_file_too(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "weft.toml"
            file.write_text("cpu-isa = \"mmx\"\n")
            found = checks(f"--config={file}")
            self.assertIn("--cpu-isa mmx", found["instruction set"]["found"])
        code, _, err = doctor("--sharts=2")
        self.assertEqual(code, 1)
        self.assertIn("--shards", err)


if __name__ == "__main__":
    unittest.main()
