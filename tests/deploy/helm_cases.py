"""What the chart's tests render: each layout, each option, and what they make together."""

from helm_chart import merged

GROUP_TLS = {"groupTls": {"certManager": {"enabled": True}}}
LAYOUTS = {
    "replica": {"mode": "replica", "shards": 2},
    "split": {"mode": "split", "shards": 2, **GROUP_TLS},
    "leaderworkerset": {"mode": "leaderworkerset", "shards": 3, **GROUP_TLS},
}
# Each is tried with each layout, and all of a layout's together.
OPTIONS = {
    "as it is": {},
    "cpu": {"device": "cpu", "resources": {"requests": {"cpu": 4, "memory": "3Gi"},
                                           "limits": {"memory": "3Gi"}}},
    "one shard": {"shards": 1},
    "hostPath": {"model": {"existingClaim": "", "hostPath": "/srv/models"}},
    "image volume": {"model": {"existingClaim": "", "image": {"reference": "r.example/m:1"}}},
    "keys": {"auth": {"existingSecret": "keys"}},
    "tls": {"tls": {"existingSecret": "tls", "clientCerts": "optional",
                    "clientCaSecret": "clients"}},
    "tls of cert-manager": {"tls": {"certManager": {
        "enabled": True, "issuerRef": {"kind": "ClusterIssuer", "name": "public"},
        "dnsNames": ["llm.example"]}}},
    "digest": {"image": {"digest": "sha256:" + "0123456789abcdef" * 4}},
    "pull secrets": {"imagePullSecrets": [{"name": "registry"}]},
    "names": {"nameOverride": "llm", "fullnameOverride": "a" * 60},
    "no own account": {"serviceAccount": {"create": False}},
    "annotated account": {"serviceAccount": {"annotations": {"a": "b"}}},
    "placed": {"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}],
               "affinity": {"nodeAffinity": {}}, "priorityClassName": "high",
               "runtimeClassName": "nvidia", "topologySpreadConstraints": [
                   {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
               "router": {"nodeSelector": {"c": "d"}, "tolerations": [{"operator": "Exists"}],
                          "affinity": {"nodeAffinity": {}}}},
    "anywhere": {"topologyKey": ""},
    "exclusive": {"exclusiveTopology": "example.com/rack"},
    "environment": {"env": [{"name": "NCCL_DEBUG", "value": "WARN"}],
                    "envFrom": [{"configMapRef": {"name": "more"}}]},
    "annotations": {"podAnnotations": {"a": "b"}, "podLabels": {"c": "d"},
                    "service": {"type": "LoadBalancer", "annotations": {"e": "f"}}},
    "volumes": {"extraVolumes": [{"name": "record", "emptyDir": {}}],
                "extraVolumeMounts": [{"name": "record", "mountPath": "/record"}],
                "flags": {"record": "/record/steps"}},
    "headless": {"service": {"headless": True}},
    "no budget, no policy": {"podDisruptionBudget": {"enabled": False},
                             "networkPolicy": {"enabled": False}},
    "policy": {"networkPolicy": {"clients": [{"podSelector": {}}], "monitoring": [],
                                 "extraEgress": [{"to": [{"podSelector": {}}]}]}},
    "watched": {"metrics": {
        "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True}}},
    "no pre-stop": {"drain": {"preStopS": 0, "timeoutS": 0.5}},
    "updated": {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "50%"}}},
    "pool": {"publicOps": True, "gateway": {
        "inferencePool": {"enabled": True, "endpointPicker": {"name": "epp"}},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}],
                      "hostnames": ["llm.example"]}}},
    "route": {"gateway": {"httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}]}}},
    "a pool of others": {"publicOps": True, "gateway": {"httpRoute": {
        "enabled": True, "parentRefs": [{"name": "gateway"}], "pool": "models"}}},
    "extra": {"extraObjects": [{"apiVersion": "v1", "kind": "ConfigMap",
                                "metadata": {"name": "{{ .Release.Name }}-extra"}}]},
}
SCALING = {
    "hpa": {"autoscaling": {"hpa": {"enabled": True, "behavior": {"scaleDown": {
        "stabilizationWindowSeconds": 300}}}}},
    "keda": {"autoscaling": {"keda": {"enabled": True, "serverAddress": "http://prometheus:9090"}}},
}
GIVEN = {"groupTls": {"routerSecret": "router", "shardSecret": "shard",
                      "certManager": {"enabled": False}}}
ONLY = {"replica": {**SCALING, "recreated": {"strategy": {"type": "Recreate"}}},
        "split": {"given certificates": GIVEN, "two groups": {"replicas": 2}},
        "leaderworkerset": {"given certificates": GIVEN, **SCALING}}
# Those that contradict another option.
APART = {"hostPath", "image volume", "keda", "recreated", "no budget, no policy", "names",
         "no own account", "one shard", "given certificates", "anywhere", "a pool of others",
         "tls of cert-manager"}


def combinations():
    for layout, base in LAYOUTS.items():
        options = {**OPTIONS, **ONLY[layout]}
        for name, option in options.items():
            yield f"{layout}, {name}", merged(base, option)
        together = [one for name, one in options.items() if name not in APART]
        yield f"{layout}, together", merged(base, *together)
