{{/* Containers of split and leaderworkerset. */}}

{{/* (dict "root" $ "groups" (list (list ADDRESS ...) ...)) */}}
{{- define "weft.routerContainer" -}}
{{- $root := .root -}}
{{ include "weft.container" $root }}
command: [weft-router]
args: {{- include "weft.routerArgs" . | nindent 2 }}
env:
  # For addresses of a LeaderWorkerSet's workers, which are called after their leader.
  - {name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
  {{- include "weft.env" $root | nindent 2 }}
{{- include "weft.envFrom" $root }}
ports: {{- include "weft.serverPorts" $root | nindent 2 }}
{{ include "weft.serverProbes" $root }}
resources: {{- toYaml $root.Values.router.resources | nindent 2 }}
volumeMounts:
  {{- include "weft.commonMounts" $root | nindent 2 }}
  - {name: router-tls, mountPath: /etc/weft/group-tls, readOnly: true}
  {{- with include "weft.doorMounts" $root | trim }}{{ nindent 2 . }}{{ end }}
{{- end -}}

{{/* (dict "root" $ "rankLabel" LABEL): LABEL of the pod has its ordinal, which is the rank. */}}
{{- define "weft.shardContainer" -}}
{{- $root := .root -}}
{{ include "weft.container" $root }}
command: [weft-shard]
args: {{- include "weft.shardArgs" $root | nindent 2 }}
env:
  - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  - {name: WEFT_RANK, valueFrom: {fieldRef: {fieldPath: "metadata.labels['{{ .rankLabel }}']"}}}
  {{- include "weft.env" $root | nindent 2 }}
{{- include "weft.envFrom" $root }}
ports:
  - {name: shard, containerPort: {{ $root.Values.ports.shard }}}
  - {name: shard-metrics, containerPort: {{ $root.Values.ports.shardMetrics }}}
{{ include "weft.probes" (dict "root" $root "port" "shard-metrics" "hungGraceS" 2) }}
lifecycle:
  preStop:
    # Router and shards may be told to end at once; requests that still run need their shards.
    sleep: {seconds: {{ include "weft.routerEndS" $root }}}
resources: {{- include "weft.gpuResources" (dict "root" $root "gpus" 1) | nindent 2 }}
volumeMounts:
  {{- include "weft.commonMounts" $root | nindent 2 }}
  - {name: shard-tls, mountPath: /etc/weft/group-tls, readOnly: true}
{{- end -}}

{{/* Shards of a group on what topologyKey names. */}}
{{- define "weft.shardAffinity" -}}
{{- $own := dict -}}
{{- with .root.Values.topologyKey -}}
{{- $term := dict "topologyKey" . "labelSelector" (dict "matchLabels" (dict
  "app.kubernetes.io/instance" $.root.Release.Name "app.kubernetes.io/component" "shard"
  "weft-group" (toString $.group))) -}}
{{- $own = dict "podAffinity" (dict "requiredDuringSchedulingIgnoredDuringExecution" (list $term)) -}}
{{- end -}}
{{- toYaml (merge (deepCopy .root.Values.affinity) $own) -}}
{{- end -}}
