{{/* Command lines. */}}

{{/* A value of values.yaml as a flag takes it: numbers of YAML are floats, and large ones would be
     printed with an exponent. */}}
{{- define "weft.scalar" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}
{{- int64 . -}}
{{- else -}}
{{- . -}}
{{- end -}}
{{- end -}}

{{/* {name: value or list} as lines `- --name=value`. */}}
{{- define "weft.flagLines" -}}
{{- range $name, $value := . }}
{{- range (kindIs "slice" $value | ternary $value (list $value)) }}
- {{ printf "--%s=%s" $name (include "weft.scalar" .) | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "weft.modelPath" -}}
{{- list "/model" .Values.model.path | join "/" | clean -}}
{{- end -}}

{{/* What router and `weft serve` have in common. */}}
{{- define "weft.doorFlags" -}}
{{- $values := .Values -}}
{{- $flags := dict
  "host" $values.listenHost
  "http-port" $values.ports.http
  "grpc-port" $values.ports.grpc
  "admin-host" $values.listenHost
  "admin-port" $values.ports.admin
  "public-ops" $values.publicOps
  "drain-timeout-s" $values.drain.timeoutS -}}
{{- with $values.model.aliases }}{{ $_ := set $flags "model-alias" . }}{{ end -}}
{{- if $values.auth.existingSecret -}}
{{- $_ := set $flags "api-keys" (printf "/etc/weft/auth/%s" $values.auth.key) -}}
{{- end -}}
{{- if include "weft.tlsSecret" . -}}
{{- $_ := set $flags "tls-cert" "/etc/weft/tls/tls.crt" -}}
{{- $_ := set $flags "tls-key" "/etc/weft/tls/tls.key" -}}
{{- end -}}
{{- if ne $values.tls.clientCerts "none" -}}
{{- $_ := set $flags "tls-client-certs" $values.tls.clientCerts -}}
{{- $_ := set $flags "tls-client-ca" "/etc/weft/client-ca/ca.crt" -}}
{{- end -}}
{{- toYaml (merge $flags $values.flags) -}}
{{- end -}}

{{- define "weft.commonFlags" -}}
{{- $flags := dict "model" (include "weft.modelPath" .) "log-format" .Values.logFormat -}}
{{- with .Values.model.servedName }}{{ $_ := set $flags "served-model-name" . }}{{ end -}}
{{- toYaml $flags -}}
{{- end -}}

{{- define "weft.serveArgs" -}}
- serve
{{- $flags := dict "shards" .Values.shards "device" .Values.device
  "metrics-host" .Values.listenHost "shard-metrics-port" .Values.ports.shardMetrics -}}
{{- $flags = merge $flags .Values.shardFlags (include "weft.commonFlags" . | fromYaml)
  (include "weft.doorFlags" . | fromYaml) -}}
{{- include "weft.flagLines" $flags }}
{{- end -}}

{{/* (dict "root" $ "groups" (list (list ADDRESS ...) ...)) */}}
{{- define "weft.routerArgs" -}}
{{- $flags := dict "shard-tls-cert" "/etc/weft/group-tls/tls.crt"
  "shard-tls-key" "/etc/weft/group-tls/tls.key" "shard-tls-ca" "/etc/weft/group-tls/ca.crt" -}}
{{- $shards := list -}}
{{- range .groups }}{{ $shards = concat $shards . }}{{ end -}}
{{- $_ := set $flags "shard" $shards -}}
{{- if gt (len .groups) 1 }}{{ $_ := set $flags "groups" (len .groups) }}{{ end -}}
{{- $flags = merge $flags (include "weft.commonFlags" .root | fromYaml)
  (include "weft.doorFlags" .root | fromYaml) -}}
{{- include "weft.flagLines" $flags | trim }}
{{- end -}}

{{/* The rank is WEFT_RANK, from the pod's ordinal; ranks meet at their pods' addresses. */}}
{{- define "weft.shardArgs" -}}
{{- $flags := dict "world" .Values.shards "device" .Values.device
  "listen" (printf "%s:%v" .Values.listenHost (int .Values.ports.shard))
  "tls-cert" "/etc/weft/group-tls/tls.crt" "tls-key" "/etc/weft/group-tls/tls.key"
  "tls-ca" "/etc/weft/group-tls/ca.crt"
  "metrics-host" .Values.listenHost "metrics-port" .Values.ports.shardMetrics -}}
{{- if gt (int .Values.shards) 1 }}{{ $_ := set $flags "comm-host" "$(POD_IP)" }}{{ end -}}
{{- $flags = merge $flags .Values.shardFlags (include "weft.commonFlags" . | fromYaml) -}}
{{- include "weft.flagLines" $flags | trim }}
{{- end -}}
