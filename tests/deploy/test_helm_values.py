"""Wrong values are refused before anything is installed, with what is wrong and what would be
right: single values by values.schema.json, values that do not fit each other by sentences of the chart."""

import json
import re
import unittest

import yaml

from helm_chart import CHART, Refused, chart_of_tomorrow, merged, render, tool
from skips import run_tests

SPLIT = {"mode": "split", "shards": 2, "groupTls": {"certManager": {"enabled": True}}}

# What the checks of flags let through: the ends of ranges, and each way to write a value.
FLAGS = {"queue-requests-max": 8192, "io-threads": "1", "queue-tokens-max": 1099511627776,
         "trace-sample": 0, "watchdog-s": ".5", "prefix-cache": False,
         "strict-fields": "1", "otlp-endpoint": "http://127.0.0.1:4318",
         "cors-origins": ["http://a", "http://b"], "metrics-compat": "tgi"}

# (values, where, what is said of it)
SCHEMA = [
    ({"mode": "pods"}, "/mode", "value must be one of 'replica', 'split', 'leaderworkerset'"),
    ({"replicas": -1}, "/replicas", "minimum: got -1, want 0"),
    ({"replicas": "2"}, "/replicas", "got string, want integer"),
    ({"shards": 0}, "/shards", "minimum: got 0, want 1"),
    ({"shards": 65}, "/shards", "maximum: got 65, want 64"),
    ({"shards": 1.5}, "/shards", "got number, want integer"),
    ({"device": "gpu"}, "/device", "value must be one of 'cuda', 'cpu'"),
    ({"gpuResourceName": "gpu"}, "/gpuResourceName", "does not match pattern"),
    ({"shard": 2}, "", "additional properties 'shard' not allowed"),
    ({"image": {"tag": "latest"}}, "/image/tag", "'not' failed"),
    ({"image": {"digest": "sha256:12"}}, "/image/digest", "does not match pattern"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy", "value must be one of 'Always'"),
    ({"image": {"name": "weft"}}, "/image", "additional properties 'name' not allowed"),
    ({"imagePullSecrets": ["registry"]}, "/imagePullSecrets/0", "got string, want object"),
    ({"model": {"hostPath": "srv"}}, "/model/hostPath", "does not match pattern"),
    ({"model": {"aliases": "a"}}, "/model/aliases", "got string, want array"),
    ({"model": {"existingClaim": "My Claim"}}, "/model/existingClaim", "does not match pattern"),
    ({"flags": {"queueRequestsMax": 1}}, "/flags", "additional properties 'queueRequestsMax' not"),
    ({"flags": {"queue-requests-max": {"a": 1}}}, "/flags/queue-requests-max", "got object"),
    ({"logFormat": "xml"}, "/logFormat", "value must be one of 'json', 'text'"),
    ({"listenHost": ""}, "/listenHost", "minLength: got 0, want 1"),
    ({"ports": {"http": 0}}, "/ports/http", "minimum: got 0, want 1"),
    ({"ports": {"grpc": 65536}}, "/ports/grpc", "maximum: got 65,536, want 65,535"),
    ({"ports": {"https": 443}}, "/ports", "additional properties 'https' not allowed"),
    ({"publicOps": "yes"}, "/publicOps", "got string, want boolean"),
    ({"auth": {"key": "a/b"}}, "/auth/key", "does not match pattern"),
    ({"tls": {"clientCerts": "always"}}, "/tls/clientCerts", "value must be one of 'none'"),
    ({"groupTls": {"certManager": {"duration": "90d"}}}, "/groupTls/certManager/duration",
     "does not match pattern"),
    ({"probes": {"startupTimeoutS": 5}}, "/probes/startupTimeoutS", "minimum: got 5, want 10"),
    ({"drain": {"timeoutS": -1}}, "/drain/timeoutS", "minimum: got -1, want 0"),
    ({"drain": {"timeoutS": 100000}}, "/drain/timeoutS", "maximum: got 100,000, want 86,400"),
    ({"drainTimeoutS": 3}, "", "additional properties 'drainTimeoutS' not allowed"),
    ({"resources": {"request": {}}}, "/resources", "additional properties 'request' not allowed"),
    ({"resources": {"limits": {"memory": "3GB"}}}, "/resources/limits/memory",
     "'3GB' does not match pattern"),
    ({"resources": {"requests": {"cpu": "two"}}}, "/resources/requests/cpu",
     "'two' does not match pattern"),
    ({"resources": {"requests": {"cpu": -1}}}, "/resources/requests/cpu", "minimum: got -1"),
    ({"resources": {"limits": {"memroy": "3Gi"}}}, "/resources/limits",
     "additional properties 'memroy' not allowed"),
    ({"router": {"resources": {"limits": {"memory": "4GiB"}}}}, "/router/resources/limits/memory",
     "'4GiB' does not match pattern"),
    ({"topologySpreadConstraints": [{}]}, "/topologySpreadConstraints/0", "missing properties"),
    ({"shm": {"sizeLimit": "1 GB"}}, "/shm/sizeLimit", "does not match pattern"),
    ({"strategy": {"type": "Blue"}}, "/strategy/type", "value must be one of 'RollingUpdate'"),
    ({"strategy": {"rollingUpdate": {"maxSurge": "120%"}}}, "/strategy/rollingUpdate/maxSurge",
     "does not match pattern"),
    ({"env": [{"name": "a-b"}]}, "/env/0/name", "does not match pattern"),
    ({"podLabels": {"a": 1}}, "/podLabels/a", "want string"),
    ({"service": {"type": "External"}}, "/service/type", "value must be one of 'ClusterIP'"),
    ({"podDisruptionBudget": {"maxUnavailable": -1}}, "/podDisruptionBudget/maxUnavailable",
     "minimum: got -1, want 0"),
    ({"networkPolicy": {"clients": {}}}, "/networkPolicy/clients", "got object, want array"),
    ({"metrics": {"podMonitor": {"interval": "15"}}}, "/metrics/podMonitor/interval",
     "does not match pattern"),
    ({"metrics": {"prometheusRule": {"runbookUrl": "wiki"}}}, "/metrics/prometheusRule/runbookUrl",
     "does not match pattern"),
    ({"metrics": {"prometheusRule": {"runbookUrl": "https://a/b#c"}}},
     "/metrics/prometheusRule/runbookUrl", "does not match pattern"),
    ({"autoscaling": {"kvUsage": 80}}, "/autoscaling/kvUsage", "maximum: got 80, want 1"),
    ({"autoscaling": {"kvUsage": 0}}, "/autoscaling/kvUsage", "exclusiveMinimum: got 0, want 0"),
    ({"autoscaling": {"keda": {"serverAddress": "prometheus:9090"}}},
     "/autoscaling/keda/serverAddress", "does not match pattern"),
    ({"gateway": {"httpRoute": {"timeout": "forever"}}}, "/gateway/httpRoute/timeout",
     "does not match pattern"),
]

SENTENCES = [
    ({"model": {"hostPath": "/srv"}}, "model: exactly one of existingClaim, hostPath and "
     "image.reference says where the files are; given: existingClaim, hostPath"),
    ({"model": {"existingClaim": ""}}, "given: none"),
    ({"model": {"path": "/abs"}}, 'model.path: "/abs" must be relative to the volume\'s root'),
    ({"model": {"path": "a/../../b"}}, 'model.path: "a/../../b" must be relative'),
    ({"flags": {"http-port": 80}}, "flags.http-port: the chart sets --http-port itself, from "
     "ports.http"),
    ({"shardFlags": {"rank": 1}}, "shardFlags.rank: the chart sets --rank itself, from the pod's "
     "ordinal"),
    ({"flags": {"kv-memory": "1GiB"}, "shardFlags": {"kv-memory": "2GiB"}},
     "flags.kv-memory is also in shardFlags"),
    ({"flags": {"no-such-flag": 1}}, "flags.no-such-flag: weft serve of weft 0.1.0 has no flag "
     "--no-such-flag; `weft serve --help` lists those that it has"),
    (merged(SPLIT, {"shardFlags": {"no-such-flag": 1}}), "shardFlags.no-such-flag: weft-shard of "),
    (merged(SPLIT, {"flags": {"kv-memory": "1GiB"}}), "flags.kv-memory: weft-router has no flag "
     "--kv-memory; weft-shard has it: shardFlags.kv-memory"),
    (merged(SPLIT, {"shardFlags": {"io-threads": 2}}), "weft-router has it: flags.io-threads"),
    ({"flags": {"io-threads": [1, 2]}}, "flags.io-threads: --io-threads takes one value, no list"),
    ({"flags": {"prefix-cache": "maybe"}}, 'flags.prefix-cache: "maybe" is neither true nor false'),
    ({"flags": {"queue-requests-max": 0}},
     'flags.queue-requests-max: "0" is not a whole number in its range, 1 to 8192'),
    ({"flags": {"queue-requests-max": 8193}}, '"8193" is not a whole number in its range, 1 to'),
    ({"flags": {"queue-requests-max": 1.5}}, '"1.5" is not a whole number in its range, 1 to'),
    ({"flags": {"queue-requests-max": "many"}}, '"many" is not a whole number in its range, 1 to'),
    ({"flags": {"queue-tokens-max": 1099511627777}}, '"1099511627777" is not a whole number in '),
    ({"flags": {"trace-sample": 1.01}}, '"1.01" is not a number in its range, 0 to 1'),
    ({"shardFlags": {"watchdog-s": -0.5}}, '"-0.5" is not a number in its range, 0 to 86400'),
    (merged(SPLIT, {"shardFlags": {"running-max": -1}}),
     'shardFlags.running-max: "-1" is not a whole number in its range, 0 or more'),
    ({"resources": {"requests": {"memory": "4Gi"}, "limits": {"memory": "4G"}}},
     "resources.requests.memory: 4Gi is above limits.memory: 4G"),
    ({"resources": {"requests": {"cpu": 2}, "limits": {"cpu": "1900m"}}},
     "resources.requests.cpu: 2 is above limits.cpu: 1900m"),
    ({"router": {"resources": {"requests": {"memory": "5Gi"}}}},
     "router.resources.requests.memory: 5Gi is above limits.memory: 4Gi"),
    ({"tls": {"clientCerts": "required"}}, "tls.clientCerts: required needs tls.existingSecret"),
    ({"tls": {"certManager": {"enabled": True}}}, "tls.certManager: it needs issuerRef"),
    ({"tls": {"existingSecret": "a", "certManager": {"enabled": True, "issuerRef": {"name": "b"}}}},
     "leave tls.existingSecret empty"),
    ({"tls": {"clientCaSecret": "ca"}}, "tls.clientCaSecret: nothing reads it"),
    ({"mode": "split"}, "mode split: router and shards meet over mutual TLS; give "
     "groupTls.routerSecret and groupTls.shardSecret"),
    (merged(SPLIT, {"groupTls": {"shardSecret": "a"}}), "groupTls: certManager.enabled makes the "
     "Secrets"),
    (merged(SPLIT, {"mode": "leaderworkerset", "strategy": {"type": "Recreate"}}),
     "strategy.type: Recreate is for mode: replica; in mode: leaderworkerset it is RollingUpdate"),
    ({"strategy": {"rollingUpdate": {"maxSurge": "0%"}}},
     "strategy.rollingUpdate: maxSurge and maxUnavailable are both 0"),
    (merged(SPLIT, {"replicas": 0}), "replicas: 0 leaves a router of mode: split without shards"),
    (merged(SPLIT, {"replicas": 17, "shards": 1}), "replicas: 17 is above 16"),
    (merged(SPLIT, {"replicas": 16, "shards": 5}), "replicas: with shards: 5 they are 80 shards"),
    ({"flags": {"replicas": 4}}, "flags.replicas: a pod has one group of shards"),
    ({"ports": {"grpc": 8080}}, "ports.http and ports.grpc are both 8080"),
    ({"ports": {"shardMetrics": 9089}, "shards": 2},
     "ports.admin and ports.shardMetrics + 1 are both 9090"),
    ({"ports": {"shardMetrics": 65534}, "shards": 3},
     "ports.shardMetrics + 2 is 65536; ports end at 65535"),
    (merged(SPLIT, {"ports": {"shard": 9400}}), "ports.shard and ports.shardMetrics are both 9400"),
    ({"autoscaling": {"hpa": {"enabled": True},
                      "keda": {"enabled": True, "serverAddress": "http://p"}}},
     "autoscaling: hpa.enabled and keda.enabled would scale the same pods"),
    ({"autoscaling": {"keda": {"enabled": True}}},
     "autoscaling.keda.serverAddress: name Prometheus"),
    ({"autoscaling": {"minReplicas": 5, "hpa": {"enabled": True}}},
     "autoscaling.minReplicas: 5 is above maxReplicas: 4"),
    (merged(SPLIT, {"autoscaling": {"hpa": {"enabled": True}}}),
     "autoscaling: in mode: split the router's flags name each group"),
    ({"publicOps": True, "gateway": {"inferencePool": {"enabled": True}}},
     "gateway.inferencePool.endpointPicker.name: name the Service"),
    ({"gateway": {"inferencePool": {"enabled": True, "endpointPicker": {"name": "epp"}}}},
     "gateway: an endpoint picker reads /metrics at the public HTTP port"),
    ({"publicOps": True, "gateway": {
        "inferencePool": {"enabled": True, "endpointPicker": {"name": "epp"}},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "g"}], "pool": "other"}}},
     "gateway.httpRoute.pool names a pool of others"),
    ({"gateway": {"httpRoute": {"enabled": True}}},
     "gateway.httpRoute.parentRefs: name the Gateway"),
]


class Values(unittest.TestCase):
    def setUp(self):
        tool("helm")

    def said(self, values):
        with self.assertRaises(Refused) as refused:
            render(values, chart=chart_of_tomorrow())
        return str(refused.exception)

    def test_a_value_out_of_its_range_is_refused_with_its_name_and_the_range(self):
        for values, where, what in SCHEMA:
            with self.subTest(json.dumps(values)):
                said = self.said(values)
                self.assertIn("values don't meet the specifications of the schema", said)
                self.assertTrue(any(f"at '{where}'" in one and what in one
                                    for one in said.splitlines()), said)

    def test_values_that_do_not_fit_each_other_are_refused_in_a_sentence(self):
        for values, sentence in SENTENCES:
            with self.subTest(json.dumps(values)):
                self.assertIn(sentence, self.said(values))

    def test_right_values_of_flags_are_taken(self):
        shard = {"kv-memory": "1GiB", "threads": 1024, "memory-fraction": 0.85}
        for values in ({}, SPLIT):
            render(merged(values, {"flags": FLAGS, "shardFlags": shard}), chart=chart_of_tomorrow())
        render({"flags": {"kv-memory": 1 << 30}})
        render({"resources": {"limits": {"memory": 3 << 30, "nvidia.com/gpu": 1},
                              "requests": {"cpu": "500m", "memory": "3145728Ki",
                                           "hugepages-2Mi": 0}}})

    def test_each_sentence_of_the_chart_is_seen_here(self):
        text = "".join(one.read_text() for one in sorted(CHART.glob("templates/_check*.tpl")))
        # The part of each sentence before its first gap; what waits for programs is another test's.
        sentences = re.findall(r'fail (?:\(printf\s+)?"([^"]+)"', text)
        begins = {re.split(r"%[a-z]", one)[0] for one in sentences}
        begins.discard("mode ")
        said = [self.said(values) for values, _ in SENTENCES]
        for begin in {one or "." for one in begins}:
            self.assertTrue(any(begin in one for one in said), f"no wrong value shows: {begin}")
        self.assertGreater(len(begins), 10)

    def test_every_value_has_a_schema_and_the_other_way_round(self):
        values = yaml.safe_load((CHART / "values.yaml").read_text())
        schema = json.loads((CHART / "values.schema.json").read_text())

        def compare(place, value, node):
            if "$ref" in node:
                node = schema["definitions"][node["$ref"].rpartition("/")[2]]
            if "properties" not in node or not isinstance(value, dict):
                return
            known = set(node["properties"]) - {"global"}
            if place.endswith(("resources", "issuerRef")):
                self.assertLessEqual(set(value), known, place)
                return
            self.assertEqual(set(value), known, place)
            self.assertIs(node["additionalProperties"], False, place)
            for key in value:
                compare(f"{place}.{key}", value[key], node["properties"][key])

        compare("values", values, schema)


if __name__ == "__main__":
    run_tests()
