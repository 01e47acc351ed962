"""What deploy/image.sh and deploy/Dockerfile make: the same image, each time the same, of files that
linters and other programs take."""

import hashlib
import json
import os
import pathlib
import shutil
import stat
import subprocess
import tarfile
import tempfile
import unittest

from containers import image, podman, tool
from weft_server import BIN, ROOT, run_tests

# Of the build's own: paths differ by nothing but what a builder of images adds.
BUILDERS_LABELS = ("io.buildah.version",)


def run(*argv, **options):
    done = subprocess.run(argv, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **options)
    if done.returncode != 0:
        raise AssertionError(f"{argv}: {done.returncode}\n{done.stdout}")
    return done.stdout


def small_build(folder):
    """A build folder with three programs, two of which need libraries that a bundle brings."""
    for name in ("bin", "lib"):
        (folder / name).mkdir(parents=True)
    run("c++", "-x", "c++", "-", "-shared", "-fPIC", "-o", folder / "lib/libnccl.so.2",
        "-Wl,-soname,libnccl.so.2", input="int Seven() { return 7; }")
    for name, libraries in (("weft", [folder / "lib/libnccl.so.2"]), ("weft-router", ["-lz"]),
                            ("weft-shard", [])):
        run("c++", "-x", "c++", "-", "-x", "none", "-Wl,--no-as-needed", *libraries, "-o",
            folder / "bin" / name, "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib",
            input="int main() { return 7; }")
    return folder


def blob(archive, descriptor):
    """The bytes of a blob, whose digest and size are those that it is named by."""
    data = archive.extractfile("./blobs/" + descriptor["digest"].replace(":", "/")).read()
    assert "sha256:" + hashlib.sha256(data).hexdigest() == descriptor["digest"]
    assert len(data) == descriptor["size"]
    return data


def files_below(root):
    """{path: what it is} of all files, without their times."""
    found = {}
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = pathlib.Path(folder) / name
            info = path.lstat()
            content = os.readlink(path) if stat.S_ISLNK(info.st_mode) else None
            if stat.S_ISREG(info.st_mode):
                with open(path, "rb") as file:
                    content = hashlib.file_digest(file, "sha256").hexdigest()
            found[str(path.relative_to(root))] = (stat.filemode(info.st_mode), info.st_uid,
                                                  info.st_gid, content)
    return found


class Archive(unittest.TestCase):
    def setUp(self):
        podman()  # and what comes with it
        temporary = tempfile.TemporaryDirectory(prefix="weft-image-")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def make(self, out, *options, umask="022", epoch="1700000000"):
        return run("bash", "-euc", f'umask {umask}; exec "$@"', "-", ROOT / "deploy/image.sh",
                   *options, self.folder / "build", self.folder / out,
                   env={**os.environ, "SOURCE_DATE_EPOCH": epoch})

    def test_the_same_input_gives_the_same_bytes(self):
        small_build(self.folder / "build")
        self.make("a.tar")
        for path in (self.folder / "build/bin").iterdir():
            os.utime(path, (1, 1))
        self.make("b.tar", umask="077")
        self.make("later.tar", epoch="1700000001")
        a, b, later = ((self.folder / name).read_bytes() for name in ("a.tar", "b.tar", "later.tar"))
        self.assertTrue(a == b)
        self.assertFalse(a == later)
        with tarfile.open(self.folder / "a.tar") as archive:
            self.check_archive(archive)

    def check_archive(self, archive):
        index = json.load(archive.extractfile("./index.json"))
        manifest = json.loads(blob(archive, index["manifests"][0]))
        config = json.loads(blob(archive, manifest["config"]))
        self.assertEqual(config["created"], "2023-11-14T22:13:20Z")
        # System, CUDA's libraries, weft.
        self.assertEqual(len(manifest["layers"]), 3)
        for layer, diff_id in zip(manifest["layers"], config["rootfs"]["diff_ids"]):
            data = subprocess.run(["gzip", "-dc"], input=blob(archive, layer), check=True,
                                  stdout=subprocess.PIPE).stdout
            self.assertEqual("sha256:" + hashlib.sha256(data).hexdigest(), diff_id)
        self.assertEqual(sum(name.startswith("./blobs/sha256/") for name in archive.getnames()), 5)

    def refused(self, expected, *argv):
        done = subprocess.run(argv, text=True, capture_output=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(expected, done.stderr)

    def test_what_cannot_work_is_refused(self):
        script = ROOT / "deploy/image.sh"
        self.refused("unknown option --bogus", script, "--bogus")
        self.refused("usage:", script, "build")
        self.refused("nowhere/bin/weft is not built", script, "nowhere", self.folder / "x.tar")
        build = small_build(self.folder / "build")
        self.refused("cannot write to the folder of", script, build, "/nonexistent/x.tar")
        # A library that neither the bundle nor a package brings.
        deploy = self.folder / "deploy"
        shutil.copytree(ROOT / "deploy", deploy, ignore=lambda folder, names: {
            name for name in names if (pathlib.Path(folder) / name).is_dir()})
        shutil.copy(ROOT / "LICENSE", self.folder)
        packages = deploy / "image_packages.txt"
        packages.write_text(packages.read_text().replace("libstdc++6\n", ""))
        self.refused("libstdc++.so.6 is needed, and neither in the bundle nor in a package",
                     deploy / "image_root.sh", build, self.folder / "root")
        self.refused("root is there already", deploy / "image_root.sh", build, self.folder / "root")
        (build / "bin/weft-shard").unlink()
        self.refused("bin/weft-shard is not built", script, build, self.folder / "x.tar")


class Dockerfile(unittest.TestCase):
    def test_it_makes_the_same_image(self):
        """All but the compilation: what this build gives stands in the place of that stage."""
        name, _ = image()
        target = "cuda" if name.endswith("-cuda") else "cpu"
        context = podman().folder / "context"
        context.mkdir()
        run(ROOT / "deploy/image_root.sh", BIN.parent, context / "image")
        podman()("build", "--file", str(ROOT / "deploy/Dockerfile"), "--ignorefile",
                 str(ROOT / "deploy/Dockerfile.dockerignore"), "--target", target,
                 "--build-context", f"build-{target}={context}", "--build-arg",
                 "REVISION=" + run("git", "-C", ROOT, "rev-parse", "HEAD").strip(),
                 "--tag", "localhost/weft:dockerfile", str(ROOT))
        configs, files = [], []
        for each in (name, "localhost/weft:dockerfile"):
            config = json.loads(podman()("inspect", "--type=image", "--format={{json .Config}}",
                                         each).stdout)
            for label in BUILDERS_LABELS:
                config["Labels"].pop(label, None)
            configs.append(config)
            files.append(files_below(podman()("image", "mount", each).stdout.strip()))
            podman()("image", "unmount", each)
        self.assertEqual(*configs)
        self.assertEqual(*files)
        self.assertIn("opt/weft/bin/weft", files[0])

    def test_linters_have_nothing_to_say(self):
        run(tool("hadolint"), ROOT / "deploy/Dockerfile")
        run(tool("shellcheck"), "-x", *(ROOT / "deploy" / name for name in
                                        ("image.sh", "image_root.sh", "bundle.sh", "setup.sh")),
            cwd=ROOT)


if __name__ == "__main__":
    run_tests()
