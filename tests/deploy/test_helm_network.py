"""Who reaches whom in the rendered chart, by its NetworkPolicies, and which pods its Services,
budgets and pools mean."""

import unittest

from helm_cases import LAYOUTS, OPTIONS
from helm_chart import merged, pod_templates, render, tomorrow
from skips import run_tests


def selects(selector, labels):
    if not all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for one in selector.get("matchExpressions", []):
        assert one["operator"] == "In"
        if labels.get(one["key"]) not in one["values"]:
            return False
    return True


class Network(unittest.TestCase):
    """NetworkPolicies as a network applies them: pod is (namespace, labels, named ports)."""

    def setUp(self):
        self.strangers = {
            "client": ("apps", {"app": "chat"}, {}),
            "neighbour": ("llm", {"app": "other"}, {}),
            "prometheus": ("monitoring", {"app": "prometheus"}, {}),
        }

    def pods(self, objects):
        pods = dict(self.strangers)
        for name, template in pod_templates(objects):
            ports = {one["name"]: one["containerPort"] for container in
                     template["spec"]["containers"] for one in container["ports"]}
            pods[name] = ("llm", template["metadata"]["labels"], ports)
        return pods

    def peer_matches(self, peer, pod):
        self.assertNotIn("ipBlock", peer)
        namespace, labels, _ = pod
        if "namespaceSelector" in peer:
            if not selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": namespace}):
                return False
        elif namespace != "llm":
            return False
        return selects(peer.get("podSelector", {}), labels)

    def port_matches(self, rule, target, port):
        if "ports" not in rule:
            return True
        for one in rule["ports"]:
            if one["protocol"] != "TCP":
                continue
            if isinstance(one["port"], str):
                if target[2].get(one["port"]) == port:
                    return True
            elif one["port"] <= port <= one.get("endPort", one["port"]):
                return True
        return False

    def reaches(self, objects, source, target, port):
        pods = self.pods(objects)
        for direction, own, other, peers in (("Ingress", pods[target], pods[source], "from"),
                                             ("Egress", pods[source], pods[target], "to")):
            policies = [one["spec"] for (kind, _), one in objects.items() if
                        kind == "NetworkPolicy" and own[0] == "llm" and
                        selects(one["spec"]["podSelector"], own[1])]
            if not policies:
                continue
            self.assertTrue(all(direction in one["policyTypes"] for one in policies))
            if not any(self.port_matches(rule, pods[target], port) and
                       (peers not in rule or any(self.peer_matches(peer, other)
                                                 for peer in rule[peers]))
                       for policy in policies for rule in policy.get(direction.lower(), [])):
                return False
        return True

    def check(self, objects, expected):
        for source, target, port, way in expected:
            self.assertEqual(self.reaches(objects, source, target, port), way,
                             f"{source} -> {target}:{port}")

    def test_only_the_router_reaches_shards_and_only_shards_each_other(self):
        objects = tomorrow(LAYOUTS["split"])
        router, shard = "Deployment weft-router", "StatefulSet weft-group-0"
        self.check(objects, [
            ("client", router, 8080, True), ("client", router, 8081, True),
            ("client", router, 9090, False), ("prometheus", router, 9090, True),
            ("neighbour", router, 9090, False), ("neighbour", shard, 7000, False),
            ("client", shard, 7000, False), ("prometheus", shard, 7000, False),
            ("prometheus", shard, 9400, True), ("client", shard, 9400, False),
            (router, shard, 7000, True), (router, shard, 9400, False),
            (shard, shard, 7000, True), (shard, shard, 40123, True),
            (shard, router, 9090, False), (router, "client", 443, False),
            (shard, "client", 443, False)])

    def test_a_replica_is_reached_by_clients_and_by_who_reads_metrics(self):
        objects = render({"shards": 2})
        server = "Deployment weft"
        self.check(objects, [
            ("client", server, 8080, True), ("neighbour", server, 8081, True),
            ("client", server, 9090, False), ("client", server, 9400, False),
            ("prometheus", server, 9090, True), ("prometheus", server, 9400, True),
            ("prometheus", server, 9401, True), ("prometheus", server, 9402, False),
            (server, "client", 443, False), (server, server, 9400, False)])
        narrow = render({"networkPolicy": {"clients": [{"podSelector": {}}]}})
        self.check(narrow, [("neighbour", server, 8080, True), ("client", server, 8080, False)])

    def test_a_leaders_rank_is_reached_by_its_workers(self):
        objects = tomorrow(LAYOUTS["leaderworkerset"])
        leader, worker = "weft leader", "weft worker"
        self.check(objects, [
            ("client", leader, 8080, True), ("client", leader, 7000, False),
            ("client", worker, 7000, False), (leader, worker, 7000, True),
            (worker, leader, 40123, True), (worker, worker, 40123, True),
            ("prometheus", leader, 9400, True), ("prometheus", worker, 9400, True),
            ("neighbour", leader, 9090, False)])

    def test_services_and_budgets_select_the_pods_they_are_for(self):
        for layout, base in LAYOUTS.items():
            more = (OPTIONS["headless"], OPTIONS["watched"], OPTIONS["pool"])
            objects = tomorrow(merged(base, *more))
            pods = {name: template["metadata"]["labels"]
                    for name, template in pod_templates(objects)}
            servers = {name for name in pods if not name.startswith("StatefulSet") and
                       not name.endswith("worker")}
            self.assertEqual(len(servers), 1)
            for (kind, name), one in objects.items():
                if kind == "Service":
                    found = {pod for pod, labels in pods.items()
                             if one["spec"]["selector"].items() <= labels.items()}
                elif kind in ("PodDisruptionBudget", "InferencePool"):
                    found = {pod for pod, labels in pods.items()
                             if selects(one["spec"]["selector"], labels)}
                else:
                    continue
                shards = name.endswith("-shards") or name.endswith("-shard")
                self.assertEqual(found, set(pods) - servers if shards else servers, name)


if __name__ == "__main__":
    run_tests()
