"""The container image of the build, in podman, for tests that run it for real.

Images and containers live in a folder of the test run alone. Needs root (limits of memory and
processor time belong to it) and what deploy/setup.sh --images installs.
"""

import atexit
import contextlib
import functools
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import tempfile

from weft_server import BIN, DEMO_MODEL, ROOT, WeftServer, skip, wait_until

UID = 10001
TOOLS = pathlib.Path(os.environ.get("WEFT_CACHE") or pathlib.Path(
    os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "weft") / "image-tools/bin"
MODEL = f"/models/{pathlib.Path(DEMO_MODEL).name}"
# As docs/CONTAINERS.md runs it: nothing is writable but /tmp, and nothing is allowed.
HARDENED = ("--read-only", "--read-only-tmpfs=false",
            "--tmpfs=/tmp:rw,noexec,nosuid,nodev,size=16m,mode=1777",
            "--cap-drop=all", "--security-opt=no-new-privileges")


class Podman:
    """podman with a folder of its own for all that it keeps; other programs call it by `command`."""

    def __init__(self):
        if os.getuid() != 0:
            skip("containers", "limits of containers need root")
        if not shutil.which("podman"):
            skip("containers", "podman is not installed (deploy/setup.sh --images)")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-podman-"))
        self.command = self.folder / "podman"
        (self.folder / "networks").mkdir()
        self.command.write_text(f'''#!/bin/sh
export CONTAINERS_CONF={self.folder}/containers.conf
exec {shutil.which("podman")} --root={self.folder}/images --runroot={self.folder}/run \\
  --tmpdir={self.folder}/tmp --network-config-dir={self.folder}/networks "$@"
''')
        self.command.chmod(0o755)
        # By default podman asks for higher limits than the host may allow.
        limits = [f'"{name}={most}:{most}"' for name, most in
                  (("nofile", min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[0])),
                   ("nproc", 4096))]
        # crun refuses hosts that have both versions of control groups; runc takes them.
        runtime = "runc" if pathlib.Path("/sys/fs/cgroup/unified").is_dir() else "crun"
        (self.folder / "containers.conf").write_text(f"""[containers]
default_ulimits = [{", ".join(limits)}]
[engine]
cgroup_manager = "cgroupfs"
runtime = "{runtime}"
""")
        atexit.register(self.remove)

    def remove(self):
        self("rm", "--all", "--force", "--time=0", check=False)
        self("network", "prune", "--force", check=False)
        self("rmi", "--all", "--force", check=False)
        subprocess.run(["umount", f"{self.folder}/images/overlay"], capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __call__(self, *arguments, check=True, timeout_s=300):
        done = subprocess.run([self.command, *arguments], capture_output=True, text=True,
                              timeout=timeout_s)
        if check and done.returncode != 0:
            raise AssertionError(f"podman {' '.join(arguments)}: exit code {done.returncode}\n"
                                 f"{done.stdout}{done.stderr}")
        return done

    def run(self, *options, check=False):
        """A container in the foreground, removed at its end: its exit code and what it said."""
        done = self("run", "--rm", *options, check=check, timeout_s=60)
        return done.returncode, done.stdout + done.stderr

    def inspect(self, name, template):
        return self("inspect", "--format", template, name).stdout.strip()


@functools.cache
def podman():
    return Podman()


@functools.cache
def tool(name):
    """Path of a program that deploy/setup.sh --images installs."""
    path = shutil.which(name, path=f"{TOOLS}:{os.environ['PATH']}")
    if not path:
        skip("containers", f"{name} is not installed (deploy/setup.sh --images)")
    return path


@functools.cache
def image():
    """(name of the image that deploy/image.sh makes of this build, what it printed)."""
    runtime = podman()
    archive = f"{runtime.folder}/weft.tar"
    made = subprocess.run([ROOT / "deploy/image.sh", "--uncompressed", BIN.parent, archive],
                          capture_output=True, text=True, timeout=600)
    if made.returncode != 0:
        raise AssertionError(f"deploy/image.sh: {made.stdout}{made.stderr}")
    loaded = runtime("load", "--input", archive).stdout
    os.unlink(archive)
    name = re.search(r"Loaded image: (\S+)", loaded).group(1)
    code, said = runtime.run("--network=none", *HARDENED, "--entrypoint=weft", name, "--version")
    if code == 126 or code == 127:
        skip("containers", f"no container runs on this machine: {said}")
    if code != 0:
        raise AssertionError(f"weft --version in a container: exit code {code}\n{said}")
    return name, made.stdout


class Process:
    """The launcher of a container, as WeftServer looks at it."""

    def __init__(self, pid):
        self.pid = pid


class WeftContainer(WeftServer):
    """`weft serve` in a container of the image; HTTP and gRPC are published on loopback."""

    count = 0

    def __init__(self, *flags, options=(), shards=1, model=MODEL):
        super().__init__(shards=shards)
        WeftContainer.count += 1
        self.name = f"weft-{os.getpid()}-{WeftContainer.count}"
        self.options = ["--detach", f"--name={self.name}", *HARDENED,
                        "--publish=127.0.0.1::8080", "--publish=127.0.0.1::8081",
                        f"--volume={pathlib.Path(DEMO_MODEL).parent}:/models:ro", *options]
        self.flags = [f"--model={model}", f"--shards={shards}", *flags]

    def start(self):
        self.log.close()
        podman()("run", *self.options, image()[0], *self.flags)
        self.find()
        wait_until(lambda: self.ready() or not self.running(), "readiness", 60)
        if not self.ready():
            raise AssertionError(f"the container does not serve:\n{self.log_text()}")
        return self

    def find(self):
        """After a start: the launcher's pid on the host, and the published ports."""
        self.process = Process(int(podman().inspect(self.name, "{{.State.Pid}}")))
        ports = json.loads(podman().inspect(self.name, "{{json .NetworkSettings.Ports}}"))
        self.http, self.grpc = (f"127.0.0.1:{ports[inside][0]['HostPort']}"
                                for inside in ("8080/tcp", "8081/tcp"))

    def running(self):
        return podman().inspect(self.name, "{{.State.Running}}") == "true"

    def ready(self):
        with contextlib.suppress(OSError):
            return self.request("GET", "/readyz", timeout_s=5)[0] == 200
        return False

    def log_text(self):
        done = podman()("logs", self.name, check=False)
        return done.stdout + done.stderr

    def signal(self, name):
        podman()("kill", f"--signal={name}", self.name)

    def wait_end(self, timeout_s=60):
        """The exit code of a container that ends by itself."""
        wait_until(lambda: not self.running(), "the container's end", timeout_s)
        return int(podman().inspect(self.name, "{{.State.ExitCode}}"))

    def stop(self, timeout_s=30):
        podman()("rm", "--force", "--time=0", self.name, check=False)

    # -- What the kernel says ---------------------------------------------------------------------
    def status(self, pid=None):
        """/proc/PID/status as {field: text}."""
        lines = pathlib.Path(f"/proc/{pid or self.process.pid}/status").read_text().splitlines()
        return {name: text.strip() for name, text in (line.split(":", 1) for line in lines)}

    def group(self, controller):
        """Folder of the container's control group: of version 1 the controller's, else the one."""
        paths = {}
        for line in pathlib.Path(f"/proc/{self.process.pid}/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            paths.update(dict.fromkeys(controllers.split(","), path))
        if controller in paths:
            return pathlib.Path(f"/sys/fs/cgroup/{controller}{paths[controller]}"), 1
        return pathlib.Path(f"/sys/fs/cgroup{paths['']}"), 2
