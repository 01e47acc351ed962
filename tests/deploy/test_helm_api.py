"""The chart installed in a real API server (kube_api.py): every example is taken, upgraded and
removed; pods are let into a namespace with restricted pod security; what is wrong is refused."""

import json
import os
import re
import subprocess
import unittest
import urllib.error

import yaml

from helm_cases import combinations
from helm_chart import (CACHE, EXAMPLES, KUBERNETES, ROOT, SCRATCH, chart_of_tomorrow,
                        pod_templates, render, schemas, tool)
from kube_api import KubeApi
from skips import run_tests, skip

PLURALS = {"NetworkPolicy": "networkpolicies", "HTTPRoute": "httproutes"}


class Api(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        for name in ("kube-apiserver", "etcd"):
            if not (CACHE / "tools/bin" / name).exists():
                skip("kube_api", f"{CACHE}/tools/bin has no {name}: run deploy/setup.sh --kubernetes")
        schemas()
        cls.api = KubeApi(CACHE / "tools/bin")
        cls.addClassCleanup(cls.api.close)
        cls.defined = cls.api.define(CACHE / "kubernetes/crds")
        cls.api.call("POST", "/apis/node.k8s.io/v1/runtimeclasses", {
            "metadata": {"name": "nvidia"}, "handler": "nvidia"})
        cls.namespace("llm")
        cls.namespace("open", enforce="privileged")

    @classmethod
    def namespace(cls, name, enforce="restricted"):
        cls.api.call("POST", "/api/v1/namespaces", {
            "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": enforce}}})

    def helm(self, *arguments):
        return subprocess.run(
            [tool("helm"), *map(str, arguments)], capture_output=True, text=True, timeout=120,
            env={"PATH": os.environ["PATH"], "HOME": str(SCRATCH),
                 "KUBECONFIG": str(self.api.kubeconfig)})

    def done(self, *arguments):
        done = self.helm(*arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def path(self, one, namespace):
        version = one["apiVersion"]
        root = "/apis/" + version if "/" in version else "/api/" + version
        plural = PLURALS.get(one["kind"], one["kind"].lower() + "s")
        return f"{root}/namespaces/{namespace}/{plural}"

    def missing(self, objects, namespace):
        found = []
        for one in objects.values():
            try:
                self.api.call("GET", self.path(one, namespace) + "/" + one["metadata"]["name"])
            except urllib.error.HTTPError as error:
                self.assertEqual(error.code, 404)
                found.append(one["metadata"]["name"])
        return found

    def test_the_server_is_of_the_version_that_is_rendered_for(self):
        self.assertEqual(self.api.call("GET", "/version")["gitVersion"], "v" + KUBERNETES)
        self.assertEqual(len(self.defined), 9)

    def test_every_example_is_installed_upgraded_and_removed(self):
        chart = chart_of_tomorrow()
        for path in EXAMPLES:
            with self.subTest(path.name):
                at = ("--namespace", "llm")
                objects = render(files=[path], chart=chart)
                self.done("install", "weft", chart, *at, "--values", path)
                self.assertEqual(self.missing(objects, "llm"), [])
                self.done("upgrade", "weft", chart, *at, "--values", path,
                          "--set", "drain.timeoutS=77")
                (workload,) = [one for one in objects.values() if
                               one["kind"] in ("Deployment", "LeaderWorkerSet")]
                stored = self.api.call("GET", self.path(workload, "llm") + "/" +
                                       workload["metadata"]["name"])
                for _, template in pod_templates({("", ""): stored}):
                    grace = template["spec"]["terminationGracePeriodSeconds"]
                    self.assertGreaterEqual(grace, 77 + 15)
                self.done("uninstall", "weft", *at)
                self.assertEqual(len(self.missing(objects, "llm")), len(objects))

    def test_all_options_of_a_layout_together_are_taken(self):
        for name, values in combinations():
            if not name.endswith("together"):
                continue
            with self.subTest(name):
                path = SCRATCH / "together.json"
                path.write_text(json.dumps(values))
                at = ("--namespace", "open")
                objects = render(values, chart=chart_of_tomorrow(), release="all", namespace="open")
                said = self.done("install", "all", chart_of_tomorrow(), *at, "--values", path)
                self.assertIn("kubectl --namespace open port-forward service/", said)
                self.assertEqual(self.missing(objects, "open"), [])
                # Octal in YAML, decimal in the API: readable by the pod's group alone.
                (server,) = [one for one in objects.values() if one["kind"] in
                             ("Deployment", "LeaderWorkerSet")]
                stored = self.api.call("GET", self.path(server, "open") + "/" +
                                       server["metadata"]["name"])
                modes = re.findall(r'"defaultMode": (\d+)', json.dumps(stored["spec"]))
                self.assertGreaterEqual(len(modes), 3)
                self.assertEqual(set(modes), {str(0o440)})
                self.done("uninstall", "all", *at)

    def pod(self, template, namespace):
        """Tries to make a pod of the template, as a controller would; nothing is kept."""
        return self.api.call("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", {
            "metadata": dict(template["metadata"], generateName="weft-"), "spec": template["spec"]})

    def test_pods_are_let_into_a_restricted_namespace(self):
        accounts = "/api/v1/namespaces/llm/serviceaccounts"
        self.api.call("POST", accounts, {"metadata": {"name": "weft"}})
        self.addCleanup(self.api.call, "DELETE", accounts + "/weft")
        count = 0
        for path in EXAMPLES:
            for name, template in pod_templates(render(files=[path], chart=chart_of_tomorrow())):
                with self.subTest(f"{path.name} {name}"):
                    count += 1
                    if any("hostPath" in one for one in template["spec"]["volumes"]):
                        with self.assertRaises(urllib.error.HTTPError) as refused:
                            self.pod(template, "llm")
                        self.assertIn("hostPath", refused.exception.read().decode())
                        continue
                    made = self.pod(template, "llm")
                    self.assertEqual(made["spec"]["securityContext"]["runAsUser"], 10001)
                    template["spec"]["containers"][0]["securityContext"]["privileged"] = True
                    with self.assertRaises(urllib.error.HTTPError) as refused:
                        self.pod(template, "llm")
                    self.assertEqual(refused.exception.code, 422)
                    template["spec"]["containers"][0]["securityContext"] = {}
                    with self.assertRaises(urllib.error.HTTPError) as refused:
                        self.pod(template, "llm")
                    self.assertIn("restricted", refused.exception.read().decode())
        self.assertGreaterEqual(count, 6)

    def test_a_pod_that_fills_the_models_volume_is_let_in(self):
        text = (ROOT / "deploy/helm/model-volume.yaml").read_text()
        self.api.call("POST", "/api/v1/namespaces/llm/serviceaccounts",
                      {"metadata": {"name": "default"}})
        for one in yaml.safe_load_all(text):
            self.api.call("POST", self.path(one, "llm") + "?dryRun=All", one)
        one["spec"]["containers"][0]["securityContext"] = {}
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.api.call("POST", self.path(one, "llm") + "?dryRun=All", one)
        self.assertEqual(refused.exception.code, 403)

    def walk(self):
        """The shell blocks of docs/OPERATIONS.md's way from an install to an alert, with files of
        their own."""
        text = (ROOT / "docs/OPERATIONS.md").read_text()
        text = text.partition("\n## From install to an alert\n")[2].partition("\n## ")[0]
        blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
        return [one.replace("/tmp/weft-", f"{SCRATCH}/") for one in blocks]

    def test_the_documented_way_to_an_alert_installs_what_it_says(self):
        tools = f"{CACHE / 'tools/bin'}:{os.environ['PATH']}"
        said = []
        for block in self.walk():
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block], cwd=ROOT, capture_output=True, text=True,
                timeout=120, env={"PATH": tools, "HOME": str(SCRATCH),
                                  "KUBECONFIG": str(self.api.kubeconfig)})
            self.assertEqual(done.returncode, 0, block + done.stdout + done.stderr)
            said.append(done.stdout)
        self.assertEqual(len(said), 3)
        self.assertIn("0 chart(s) failed", said[0])
        self.assertIn("Valid: 5, Invalid: 0, Errors: 0, Skipped: 0", said[0])
        self.assertIn("STATUS: deployed", said[1])
        self.assertIn("REVISION: 2", said[2])
        at = "/apis/monitoring.coreos.com/v1/namespaces/llm"
        monitor = self.api.call("GET", f"{at}/podmonitors/weft")
        rule = self.api.call("GET", f"{at}/prometheusrules/weft")
        for one in (monitor, rule):
            self.assertEqual(one["metadata"]["labels"]["release"], "prometheus")
        links = [one["annotations"]["runbook_url"] for group in rule["spec"]["groups"]
                 for one in group["rules"] if "alert" in one]
        self.assertIn("https://wiki.example.com/weft/RUNBOOKS.md#weftmetricsabsent", links)
        # The alert of the walk is one for a server without pods.
        deployment = "/apis/apps/v1/namespaces/llm/deployments/weft"
        scale = self.api.call("GET", f"{deployment}/scale")
        scale["spec"]["replicas"] = 0
        self.api.call("PUT", f"{deployment}/scale", scale)
        self.assertEqual(self.api.call("GET", deployment)["spec"]["replicas"], 0)
        self.done("uninstall", "weft", "--namespace", "llm")

    def test_what_the_server_refuses_is_not_installed(self):
        wrong = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "bad"},
                 "spec": {"ports": [{"port": 70000}]}}
        path = SCRATCH / "wrong.json"
        path.write_text(json.dumps({"extraObjects": [wrong]}))
        done = self.helm("install", "bad", chart_of_tomorrow(), "--namespace", "open",
                         "--values", path)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("must be between 1 and 65535", done.stderr)


if __name__ == "__main__":
    run_tests()
