"""The page at /ui in a real browser against real servers: tests/ui, which see. One server as it
comes, one with keys whose metrics are on the admin port; and one without the page."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from weft_server import BIN, ROOT, WEFT_CACHE, WeftServer, run_tests, skip

FOLDER = ROOT / "tests/ui"
SMALL = "--kv-memory=67108864"
TIMEOUT_S = 600


class UiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        node, browser = shutil.which("node"), shutil.which("chromium")
        modules = WEFT_CACHE / "test-browser"
        if node is None or browser is None or not (modules / "installed").is_file():
            skip("browser", "Chromium, Node.js or the packages of tests/ui are missing; "
                 "deploy/setup.sh --browser installs them")
        cls.node = node
        cls.folder = tempfile.TemporaryDirectory()
        keys = pathlib.Path(cls.folder.name) / "keys.json"
        key = subprocess.run([BIN / "weft", "key", "new", "--tenant", "page", "--file", keys],
                             check=True, capture_output=True, text=True, timeout=30).stdout
        cls.server = WeftServer(SMALL).start()
        cls.keyed = WeftServer(SMALL, f"--api-keys={keys}", "--public-ops=false").start()
        cls.environment = {
            **os.environ, "WEFT_UI_SERVER": f"http://{cls.server.http}",
            "WEFT_UI_KEYED_SERVER": f"http://{cls.keyed.http}", "WEFT_UI_KEY": key.split()[0],
            "WEFT_UI_MODULES": str(modules), "WEFT_UI_BROWSER": browser}

    @classmethod
    def tearDownClass(cls):
        for name in ("server", "keyed"):
            if hasattr(cls, name):
                getattr(cls, name).stop()
        cls.folder.cleanup()

    def browse(self, name):
        done = subprocess.run([self.node, "--test", f"{name}_test.mjs"], cwd=FOLDER,
                              env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=TIMEOUT_S, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("\n# pass 0\n", done.stdout)

    def test_chats(self):
        self.browse("chat")

    def test_keys_and_metrics_elsewhere(self):
        self.browse("access")

    def test_by_keyboard_and_screen_reader(self):
        self.browse("keyboard")

    def test_looks(self):
        self.browse("looks")

    def test_hostile_texts_and_pages(self):
        self.browse("hostile")

    def test_a_server_without_the_page(self):
        with WeftServer(SMALL, "--ui=false") as server:
            for path in ("/ui", "/ui/", "/ui/app.mjs"):
                self.assertEqual(server.request("GET", path)[0], 404)
            # Nobody's origin is its own then.
            status, _, _ = server.request("POST", "/generate", {"inputs": "x"},
                                          headers={"Origin": f"http://{server.http}"})
            self.assertEqual(status, 403)


if __name__ == "__main__":
    run_tests()
