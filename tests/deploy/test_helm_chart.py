"""deploy/helm/weft: what Helm and Kubernetes' schemas say of each layout and option, and what the
objects say of each other: addresses, certificates, ranks, probes, times, rights."""

import json
import re
import unittest

import yaml

from helm_cases import LAYOUTS, OPTIONS, SCALING, combinations
from helm_chart import (CHART, EXAMPLES, ROOT, Refused, chart_of_tomorrow, containers, helm,
                        helm_template, kubeconform, merged, pod_templates, programs, render,
                        schemas, tomorrow)
from skips import run_tests


class Rendered(unittest.TestCase):
    def setUp(self):
        schemas()

    def test_helm_has_nothing_against_the_chart(self):
        for files in ([], *([path] for path in EXAMPLES)):
            arguments = [word for path in files for word in ("--values", path)]
            done = helm("lint", "--strict", chart_of_tomorrow(), *arguments)
            self.assertEqual(done.returncode, 0, f"{files}: {done.stdout}{done.stderr}")
            self.assertIn("0 chart(s) failed", done.stdout)

    def test_each_layout_with_each_option_fits_the_schemas_of_kubernetes(self):
        for name, values in combinations():
            with self.subTest(name):
                self.assertEqual(kubeconform(helm_template(values, chart=chart_of_tomorrow())), "")

    def test_each_example_fits_the_schemas_of_kubernetes(self):
        self.assertGreaterEqual(len(EXAMPLES), 5)
        for path in EXAMPLES:
            with self.subTest(path.name):
                text = helm_template(files=[path], chart=chart_of_tomorrow())
                self.assertEqual(kubeconform(text), "")

    def test_the_claim_for_the_model_fits_the_schemas_and_the_chart(self):
        text = (ROOT / "deploy/helm/model-volume.yaml").read_text()
        self.assertEqual(kubeconform(text), "")
        claim, pod = yaml.safe_load_all(text)
        (template,) = [one for _, one in pod_templates(render())]
        # What it writes is written as the user who reads it, to the claim that the chart mounts.
        self.assertLessEqual(pod["spec"]["securityContext"].items(),
                             template["spec"]["securityContext"].items())
        for spec in (pod["spec"], template["spec"]):
            self.assertEqual([one["persistentVolumeClaim"]["claimName"] for one in spec["volumes"]
                              if "persistentVolumeClaim" in one], [claim["metadata"]["name"]])

    def test_what_does_not_fit_the_schemas_is_seen(self):
        text = helm_template()
        for fault, said in (
                (("protocol: TCP", "protocoll: TCP"), "protocoll"),
                (("replicas: 1", "replicas: one"), "replicas"),
                (("maxUnavailable: 1", "maxUnavailable: {}"), "maxUnavailable"),
                (("kind: Deployment", "kind: Deploiment"), "could not find schema")):
            self.assertIn(fault[0], text)
            self.assertIn(said, kubeconform(text.replace(*fault, 1)))
        custom = helm_template({"metrics": {"podMonitor": {"enabled": True}}})
        self.assertIn("podMetricsEndpoint",
                      kubeconform(custom.replace("podMetricsEndpoints", "podMetricsEndpointss")))

    def test_the_options_are_all_of_the_values(self):
        """A value that no combination gives would not be rendered by any test."""
        given = set()

        def walk(prefix, value):
            given.add(prefix)
            if isinstance(value, dict):
                for key, one in value.items():
                    walk(f"{prefix}.{key}" if prefix else key, one)

        for _, values in combinations():
            walk("", values)
        schema = json.loads((CHART / "values.schema.json").read_text())
        missing = set(schema["properties"]) - given - {"global"}
        seldom = {"gpuResourceName", "logFormat", "listenHost", "ports", "probes", "shm",
                  "shardFlags", "podSecurityContext", "securityContext"}
        self.assertEqual(missing, seldom)


class Layouts(unittest.TestCase):
    def test_a_layout_that_waits_for_the_programs_is_refused_and_says_for_what(self):
        both = ["split", "leaderworkerset"]
        waits = {"shardHealth": both, "shardRedial": both, "ranksAcrossPods": both,
                 "routerGroups": ["split"]}
        self.assertEqual(set(waits), set(programs()))
        for name, layouts in waits.items():
            chart = chart_of_tomorrow(but=name)
            render(LAYOUTS["replica"], chart=chart)
            for layout in layouts:
                values = merged(LAYOUTS[layout], {"replicas": 2})
                with self.assertRaises(Refused) as refused:
                    render(values, chart=chart)
                self.assertIn(f"mode {layout} with shards: {values['shards']} and replicas: 2 "
                              f"needs a version of weft in which {programs()[name]['means']}",
                              str(refused.exception))
        render(LAYOUTS["split"], chart=chart_of_tomorrow(but="routerGroups"))

    def test_the_router_of_split_names_its_shards_pods(self):
        for groups in (1, 2):
            objects = tomorrow(merged(LAYOUTS["split"], {"replicas": groups, "shards": 3}))
            service = objects["Service", "weft-shards"]
            self.assertEqual(service["spec"]["clusterIP"], "None")
            self.assertTrue(service["spec"]["publishNotReadyAddresses"])
            pods = []
            for (kind, name), one in objects.items():
                if kind == "StatefulSet":
                    self.assertEqual(one["spec"]["serviceName"], "weft-shards")
                    pods.append([f"{name}-{i}.weft-shards.llm.svc:7000"
                                 for i in range(one["spec"]["replicas"])])
            router = dict(containers(objects))["Deployment weft-router router"]
            named = [a.partition("=")[2] for a in router["args"] if a.startswith("--shard=")]
            cut = [a for a in router["args"] if a.startswith("--groups=")]
            self.assertEqual(cut, ["--groups=2"] if groups == 2 else [])
            # A group's shards stand together, by rank.
            self.assertEqual(sorted(named[i:i + 3] for i in range(0, len(named), 3)), sorted(pods))
            self.assertEqual(len(pods), groups)

    def test_the_leader_names_itself_and_its_workers(self):
        objects = tomorrow(LAYOUTS["leaderworkerset"])
        template = objects["LeaderWorkerSet", "weft"]["spec"]["leaderWorkerTemplate"]
        self.assertEqual(template["size"], 3)
        router = template["leaderTemplate"]["spec"]["containers"][0]
        self.assertIn("POD_NAME", [one["name"] for one in router["env"]])
        self.assertEqual([a for a in router["args"] if a.startswith("--shard=")], [
            "--shard=$(POD_NAME).weft.llm.svc:7000", "--shard=$(POD_NAME)-1.weft.llm.svc:7000",
            "--shard=$(POD_NAME)-2.weft.llm.svc:7000"])

    def test_shards_certificates_are_for_the_names_that_the_router_asks(self):
        for layout in ("split", "leaderworkerset"):
            objects = tomorrow(LAYOUTS[layout])
            (wildcard,) = objects["Certificate", "weft-shard-tls"]["spec"]["dnsNames"]
            addresses = [a.partition("=")[2] for _, container in containers(objects)
                         for a in container["args"] if a.startswith("--shard=")]
            self.assertEqual(len(addresses), LAYOUTS[layout]["shards"])
            for address in addresses:
                host = address.rpartition(":")[0].replace("$(POD_NAME)", "weft-0")
                self.assertEqual("*." + host.partition(".")[2], wildcard)

    def test_a_router_goes_before_the_next_one_comes(self):
        """Shards refuse a second router while the first lives, so that it would never be ready."""
        spec = tomorrow(LAYOUTS["split"])["Deployment", "weft-router"]["spec"]
        self.assertEqual(spec["replicas"], 1)
        self.assertEqual(spec["strategy"]["rollingUpdate"], {"maxSurge": 0, "maxUnavailable": 1})

    def test_ranks_are_the_pods_ordinals(self):
        labels = {"split": "apps.kubernetes.io/pod-index",
                  "leaderworkerset": "leaderworkerset.sigs.k8s.io/worker-index"}
        for layout, label in labels.items():
            found = 0
            for name, container in containers(tomorrow(LAYOUTS[layout])):
                if container["command"] == ["weft-shard"]:
                    (rank,) = [one for one in container["env"] if one["name"] == "WEFT_RANK"]
                    self.assertEqual(rank["valueFrom"]["fieldRef"]["fieldPath"],
                                     f"metadata.labels['{label}']")
                    found += 1
            self.assertGreater(found, 0)

    def test_ranks_meet_at_their_pods_addresses(self):
        for layout in ("split", "leaderworkerset"):
            for shards in (1, 2):
                values = merged(LAYOUTS[layout], {"shards": shards})
                for name, container in containers(tomorrow(values)):
                    if container["command"] != ["weft-shard"]:
                        continue
                    self.assertEqual("--comm-host=$(POD_IP)" in container["args"], shards > 1, name)
                    (own,) = [one for one in container["env"] if one["name"] == "POD_IP"]
                    self.assertEqual(own["valueFrom"]["fieldRef"]["fieldPath"], "status.podIP")

    def test_a_groups_shards_share_a_node_unless_told_otherwise(self):
        def terms(values):
            spec = tomorrow(values)["StatefulSet", "weft-group-0"]["spec"]["template"]
            return spec, spec["spec"].get("affinity", {}).get("podAffinity", {}).get(
                "requiredDuringSchedulingIgnoredDuringExecution", [])

        template, (term,) = terms(LAYOUTS["split"])
        self.assertEqual(term["topologyKey"], "kubernetes.io/hostname")
        labels = template["metadata"]["labels"]
        self.assertLessEqual(term["labelSelector"]["matchLabels"].items(), labels.items())
        self.assertEqual(terms(merged(LAYOUTS["split"], {"topologyKey": ""}))[1], [])
        own = {"affinity": {"nodeAffinity": {"a": 1}}}
        template, (term,) = terms(merged(LAYOUTS["split"], own))
        self.assertEqual(template["spec"]["affinity"]["nodeAffinity"], {"a": 1})

    def test_gpus_are_as_many_as_shards(self):
        def gpus(values):
            return {name: container["resources"].get("limits", {}).get("nvidia.com/gpu")
                    for name, container in containers(tomorrow(values))}

        self.assertEqual(gpus({"shards": 4}), {"Deployment weft weft": "4"})
        self.assertEqual(gpus({"shards": 4, "device": "cpu"}), {"Deployment weft weft": None})
        self.assertEqual(gpus(LAYOUTS["split"]), {"Deployment weft-router router": None,
                                                  "StatefulSet weft-group-0 shard": "1"})
        own = tomorrow({"resources": {"limits": {"memory": "9Gi"}}})
        (container,) = dict(containers(own)).values()
        self.assertEqual(container["resources"]["limits"],
                         {"memory": "9Gi", "nvidia.com/gpu": "1"})


class Pods(unittest.TestCase):
    def each(self):
        for layout, base in LAYOUTS.items():
            for name, template in pod_templates(tomorrow(merged(base, OPTIONS["tls"],
                                                                OPTIONS["keys"]))):
                yield f"{layout} {name}", template["spec"]

    def test_pods_are_as_restricted_as_kubernetes_asks(self):
        for name, spec in self.each():
            with self.subTest(name):
                self.assertFalse(spec["automountServiceAccountToken"])
                self.assertFalse(spec["enableServiceLinks"])
                self.assertTrue(spec["securityContext"]["runAsNonRoot"])
                self.assertEqual(spec["securityContext"]["runAsUser"], 10001)
                self.assertEqual(spec["securityContext"]["seccompProfile"],
                                 {"type": "RuntimeDefault"})
                for container in spec["containers"]:
                    self.assertEqual(container["securityContext"], {
                        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]}})

    def test_every_mount_has_its_volume_and_every_volume_a_mount(self):
        for name, spec in self.each():
            with self.subTest(name):
                volumes = {one["name"] for one in spec["volumes"]}
                self.assertEqual(len(volumes), len(spec["volumes"]))
                mounted = set()
                for container in spec["containers"]:
                    paths = [one["mountPath"] for one in container["volumeMounts"]]
                    self.assertEqual(len(set(paths)), len(paths))
                    mounted |= {one["name"] for one in container["volumeMounts"]}
                    for directory in ("/run/weft", "/tmp", "/dev/shm", "/model"):
                        self.assertIn(directory, paths)
                    # What a flag names is mounted.
                    for argument in container["args"]:
                        path = argument.partition("=")[2]
                        if path.startswith("/"):
                            self.assertTrue(any(path == one or path.startswith(one + "/")
                                                for one in paths), argument)
                self.assertEqual(mounted, volumes)

    def test_probes_ask_a_port_that_the_container_has(self):
        for name, spec in self.each():
            for container in spec["containers"]:
                ports = {one["name"] for one in container["ports"]}
                for probe, path in (("startupProbe", "/startupz"), ("readinessProbe", "/readyz"),
                                    ("livenessProbe", "/livez")):
                    asked = container[probe]["httpGet"]
                    self.assertIn(asked["port"], ports, name)
                    self.assertEqual(asked["path"], path)
                for port in ports:
                    self.assertLessEqual(len(port), 15)

    def test_a_start_may_take_as_long_as_is_said(self):
        for seconds in (10, 601, 86400):
            values = {"probes": {"startupTimeoutS": seconds}}
            (container,) = dict(containers(render(values))).values()
            probe = container["startupProbe"]
            self.assertGreaterEqual(probe["failureThreshold"] * probe["periodSeconds"], seconds)
            self.assertLess(probe["failureThreshold"] * probe["periodSeconds"], seconds + 2)

    def test_the_grace_period_is_longer_than_the_drain(self):
        for drain in ({}, {"preStopS": 0, "timeoutS": 0.5, "spareS": 0},
                      {"preStopS": 20, "timeoutS": 900, "spareS": 3}):
            values = {"drain": drain}
            (template,) = [one for _, one in pod_templates(render(values))]
            drain = {"preStopS": 5, "timeoutS": 30, "spareS": 10, **drain}
            container = template["spec"]["containers"][0]
            stop = container.get("lifecycle", {}).get("preStop", {"sleep": {"seconds": 0}})
            self.assertEqual(stop["sleep"]["seconds"], drain["preStopS"])
            self.assertIn(f'--drain-timeout-s={drain["timeoutS"]:g}', container["args"])
            # docs/OPERATIONS.md: the router has 10 s beyond its drain, each shard 5 s.
            least = drain["preStopS"] + drain["timeoutS"] + 15 + drain["spareS"]
            grace = template["spec"]["terminationGracePeriodSeconds"]
            self.assertTrue(least <= grace < least + 1, grace)
            # A router that goes on for a while after SIGTERM drains as long as others.
            values["flags"] = {"shutdown-delay-s": 60.5}
            (template,) = [one for _, one in pod_templates(render(values))]
            self.assertEqual(template["spec"]["terminationGracePeriodSeconds"], grace + 61)

    def test_shards_outlive_their_router(self):
        """All pods of a release get SIGTERM together when it is uninstalled."""
        drain = {"drain": {"preStopS": 7, "timeoutS": 120.5, "spareS": 0}}
        for layout in ("split", "leaderworkerset"):
            shards = 0
            for name, template in pod_templates(tomorrow(merged(LAYOUTS[layout], drain))):
                for container in template["spec"]["containers"]:
                    if container["command"] != ["weft-shard"]:
                        continue
                    shards += 1
                    sleep = container["lifecycle"]["preStop"]["sleep"]["seconds"]
                    self.assertGreaterEqual(sleep, 7 + 120.5 + 10, name)
                    self.assertGreaterEqual(template["spec"]["terminationGracePeriodSeconds"],
                                            sleep + 5)
            self.assertGreater(shards, 0)

    def test_what_hangs_is_not_waited_for(self):
        for name, spec in self.each():
            for container in spec["containers"]:
                most = 2 if container["command"] == ["weft-shard"] else 10
                for probe in ("startupProbe", "livenessProbe"):
                    self.assertEqual(container[probe]["terminationGracePeriodSeconds"], most, name)

    def test_large_numbers_stay_whole(self):
        text = helm_template({"flags": {"queue-tokens-max": 1099511627776},
                              "shardFlags": {"memory-fraction": 0.85, "deterministic": True},
                              "model": {"aliases": ["a", "b"]}})
        for flag in ("--queue-tokens-max=1099511627776", "--memory-fraction=0.85",
                     "--deterministic=true", "--model-alias=a", "--model-alias=b"):
            self.assertIn(f'- "{flag}"', text)


class Watching(unittest.TestCase):
    def rendered(self, layout="replica"):
        return tomorrow(merged(LAYOUTS[layout], OPTIONS["watched"]))

    def test_rules_and_board_are_the_files_of_deploy(self):
        objects = self.rendered()
        groups = [group for name in ("rules", "alerts") for group in
                  yaml.safe_load((ROOT / f"deploy/prometheus/{name}.yaml").read_text())["groups"]]
        self.assertEqual(objects["PrometheusRule", "weft"]["spec"]["groups"], groups)
        self.assertGreater(len(groups), 1)
        board = (ROOT / "deploy/grafana/weft.json").read_text()
        self.assertEqual(objects["ConfigMap", "weft-dashboard"]["data"]["weft.json"].strip(),
                         board.strip())
        self.assertLess(len(board), 1 << 20)

    def test_runbooks_are_where_the_values_say(self):
        def alerts(rule):
            one = render({"metrics": {"prometheusRule": {"enabled": True, **rule}}})
            return [rule for group in one["PrometheusRule", "weft"]["spec"]["groups"]
                    for rule in group["rules"] if "alert" in rule]

        url = "https://wiki.example.com/weft/RUNBOOKS.md"
        self.assertGreater(len(alerts({})), 10)
        for own, given in zip(alerts({}), alerts({"runbookUrl": url})):
            self.assertEqual(own["annotations"].pop("runbook_url"),
                             f"docs/RUNBOOKS.md#{own['alert'].lower()}")
            self.assertEqual(given["annotations"].pop("runbook_url"),
                             f"{url}#{own['alert'].lower()}")
            self.assertEqual(own, given)

    def test_monitors_find_each_port_of_metrics(self):
        for layout in LAYOUTS:
            objects = self.rendered(layout)
            asked = {one["port"] for one in
                     objects["PodMonitor", "weft"]["spec"]["podMetricsEndpoints"]}
            there = {one["name"] for _, container in containers(objects)
                     for one in container["ports"]}
            self.assertEqual(asked, there - {"http", "grpc", "shard"})
            selected = objects["ServiceMonitor", "weft"]["spec"]
            (service,) = [one for (kind, _), one in objects.items() if kind == "Service" and
                          selected["selector"]["matchLabels"].items() <=
                          one["metadata"]["labels"].items()]
            self.assertEqual(selected["endpoints"][0]["port"], service["spec"]["ports"][0]["name"])

    def test_scaling_reads_metrics_that_there_are(self):
        documented = (ROOT / "docs/METRICS.md").read_text()
        for name, values in SCALING.items():
            text = json.dumps(list(render(values).values()))
            asked = set(re.findall(r"weft_[a-z_]+", text))
            self.assertEqual(asked, {"weft_num_requests_waiting", "weft_kv_cache_usage_perc"}, name)
            for metric in asked:
                self.assertIn(f"| `{metric}` | gauge |", documented)

    def test_what_is_scaled_has_no_number_of_replicas_of_its_own(self):
        for layout in ("replica", "leaderworkerset"):
            for values in SCALING.values():
                objects = tomorrow(merged(LAYOUTS[layout], values))
                (target,) = [one["spec"]["scaleTargetRef"] for one in objects.values()
                             if "scaleTargetRef" in one.get("spec", {})]
                scaled = objects[target["kind"], target["name"]]
                self.assertEqual(scaled["apiVersion"], target["apiVersion"])
                self.assertNotIn("replicas", scaled["spec"])
        self.assertIn('averageValue: 800m', helm_template(SCALING["hpa"]))

    def test_keda_asks_for_the_pods_of_its_release_alone(self):
        for layout, own in (("replica", "weft-7f9c4d-x2x4z"), ("leaderworkerset", "weft-12")):
            objects = tomorrow(merged(LAYOUTS[layout], SCALING["keda"]), namespace="a-b")
            for trigger in objects["ScaledObject", "weft"]["spec"]["triggers"]:
                query = trigger["metadata"]["query"]
                found = re.fullmatch(r'sum\(weft_\w+\{namespace="a-b",pod=~"(.*)"\}\)', query)
                pods = re.compile(found[1])
                self.assertTrue(pods.fullmatch(own))
                for other in ("weft-b-7f9c4d-x2x4z", "weft-b-12", "weft-12-1"):
                    self.assertFalse(pods.fullmatch(other), other)


if __name__ == "__main__":
    run_tests()
