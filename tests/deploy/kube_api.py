"""A Kubernetes API server of one's own: etcd and kube-apiserver on loopback, no node and no
controller. What is sent to it is checked as in a cluster (schemas, defaults, rules in CEL, pod
security), and kept, but nothing runs."""

import json
import pathlib
import secrets
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

import yaml


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class KubeApi:
    def __init__(self, tools, deadline_s=180):
        self.tools = pathlib.Path(tools)
        self.temporary = tempfile.TemporaryDirectory(prefix="weft-kube-")
        self.folder = pathlib.Path(self.temporary.name)
        self.token = secrets.token_hex(16)
        self.port = free_port()
        self.children = []
        self.deadline = time.monotonic() + deadline_s
        try:
            self.start()
        except BaseException:
            self.close()
            raise

    def start(self):
        etcd = f"http://127.0.0.1:{free_port()}"
        peer = f"http://127.0.0.1:{free_port()}"
        self.spawn("etcd", "--data-dir", self.folder / "etcd", "--listen-client-urls", etcd,
                   "--advertise-client-urls", etcd, "--listen-peer-urls", peer,
                   "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}",
                   "--unsafe-no-fsync")
        key = self.folder / "accounts.key"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{self.token},admin,admin,"system:masters"\n')
        self.spawn("kube-apiserver", "--etcd-servers", etcd, "--bind-address", "127.0.0.1",
                   "--secure-port", self.port, "--cert-dir", self.folder / "certificates",
                   "--service-cluster-ip-range", "10.0.0.0/24", "--token-auth-file", tokens,
                   "--authorization-mode", "RBAC", "--service-account-issuer", "https://weft.test",
                   "--service-account-key-file", key, "--service-account-signing-key-file", key,
                   "--endpoint-reconciler-type", "none")
        while not self.answers("/readyz"):
            for name, child in self.children:
                if child.poll() is not None:
                    raise RuntimeError(f"{name} ended: {self.log(name)}")
            if time.monotonic() > self.deadline:
                raise RuntimeError(f"no answer from kube-apiserver: {self.log('kube-apiserver')}")
            time.sleep(0.2)
        self.kubeconfig = self.folder / "kubeconfig"
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": f"https://127.0.0.1:{self.port}", "insecure-skip-tls-verify": True}}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}]}))

    def spawn(self, name, *arguments):
        log = open(self.folder / f"{name}.log", "wb")
        child = subprocess.Popen([self.tools / name, *map(str, arguments)], stdout=log,
                                 stderr=subprocess.STDOUT)
        log.close()
        self.children.append((name, child))

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")[-2000:]

    def answers(self, path):
        try:
            self.call("GET", path)
            return True
        except (OSError, urllib.error.URLError):
            return False

    def call(self, method, path, body=None):
        """The answer's JSON; urllib.error.HTTPError when the server refuses."""
        unverified = ssl.create_default_context()
        unverified.check_hostname = False
        unverified.verify_mode = ssl.CERT_NONE
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.port}{path}", method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"authorization": f"Bearer {self.token}", "content-type": "application/json"})
        with urllib.request.urlopen(request, context=unverified, timeout=30) as answer:
            text = answer.read().decode()
        return json.loads(text) if text.startswith("{") else text

    def define(self, folder):
        """Makes the custom resources whose definitions are in `folder`, and waits for them."""
        names = []
        at = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        for path in sorted(pathlib.Path(folder).glob("*.yaml")):
            for one in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader):
                if one:
                    names.append(self.call("POST", at, one)["metadata"]["name"])
        for name in names:
            while not any(one["type"] == "Established" and one["status"] == "True" for one in
                          self.call("GET", f"{at}/{name}").get("status", {}).get("conditions", [])):
                if time.monotonic() > self.deadline:
                    raise RuntimeError(f"{name} is not established")
                time.sleep(0.1)
        return names

    def close(self):
        for _, child in reversed(self.children):
            child.kill()
            child.wait()
        self.temporary.cleanup()
