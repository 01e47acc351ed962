{{/* What values.schema.json cannot say: values that do not fit each other. Each refusal names the
     values and the way out. */}}

{{- define "weft.checkPrograms" -}}
{{- $programs := .Files.Get "files/programs.yaml" | fromYaml -}}
{{- $needed := eq .Values.mode "replica" | ternary (list) (list "shardHealth" "shardRedial" "ranksAcrossPods") -}}
{{- if and (eq .Values.mode "split") (gt (int .Values.replicas) 1) }}{{ $needed = append $needed "routerGroups" }}{{ end -}}
{{- range $needed -}}
{{- $one := get $programs . -}}
{{- if not $one.there -}}
{{- fail (printf
  "mode %s with shards: %v and replicas: %v needs a version of weft in which %s (`%s --help` shows %s); weft %s is not that far: use mode: replica"
  $.Values.mode $.Values.shards $.Values.replicas $one.means $one.program $one.shown $.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "weft.checkModel" -}}
{{- $given := list -}}
{{- if .Values.model.existingClaim }}{{ $given = append $given "existingClaim" }}{{ end -}}
{{- if .Values.model.hostPath }}{{ $given = append $given "hostPath" }}{{ end -}}
{{- if .Values.model.image.reference }}{{ $given = append $given "image.reference" }}{{ end -}}
{{- if ne (len $given) 1 -}}
{{- fail (printf
  "model: exactly one of existingClaim, hostPath and image.reference says where the files are; given: %s (an empty string takes one back)"
  (empty $given | ternary "none" (join ", " $given))) -}}
{{- end -}}
{{- if and (or (hasPrefix "/" .Values.model.path) (has ".." (splitList "/" .Values.model.path))) -}}
{{- fail (printf "model.path: %q must be relative to the volume's root and stay inside it" .Values.model.path) -}}
{{- end -}}
{{- end -}}

{{/* A quantity of Kubernetes as a number. */}}
{{- define "weft.quantity" -}}
{{- $text := include "weft.scalar" . -}}
{{- $suffix := regexFind "([KMGTPE]i|[numkMGTPE])$" $text -}}
{{- $factors := dict "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18
  "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- mulf (trimSuffix $suffix $text | float64) (get $factors $suffix | default 1) -}}
{{- end -}}

{{/* An API server refuses it too, but when it has taken other objects of the release. */}}
{{- define "weft.checkResources" -}}
{{- range $place, $resources := dict "resources" .Values.resources "router.resources" .Values.router.resources -}}
{{- range $name, $request := default dict $resources.requests -}}
{{- $limit := get (default dict $resources.limits) $name | default $request -}}
{{- if gt (include "weft.quantity" $request | float64) (include "weft.quantity" $limit | float64) -}}
{{- fail (printf "%s.requests.%s: %v is above limits.%s: %v" $place $name $request $name $limit) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "weft.checkTls" -}}
{{- $tls := .Values.tls -}}
{{- if and $tls.certManager.enabled (or $tls.existingSecret (not $tls.certManager.issuerRef)) -}}
{{- fail "tls.certManager: it needs issuerRef, and makes the Secret: leave tls.existingSecret empty" -}}
{{- end -}}
{{- if and (ne $tls.clientCerts "none") (not (and (include "weft.tlsSecret" .) $tls.clientCaSecret)) -}}
{{- fail (printf
  "tls.clientCerts: %s needs tls.existingSecret or tls.certManager (the server's certificate) and tls.clientCaSecret (the authorities of clients)"
  $tls.clientCerts) -}}
{{- end -}}
{{- if and $tls.clientCaSecret (eq $tls.clientCerts "none") -}}
{{- fail "tls.clientCaSecret: nothing reads it with tls.clientCerts: none; set optional or required" -}}
{{- end -}}
{{- if ne .Values.mode "replica" -}}
{{- $group := .Values.groupTls -}}
{{- if $group.certManager.enabled -}}
{{- if or $group.routerSecret $group.shardSecret -}}
{{- fail "groupTls: certManager.enabled makes the Secrets; leave routerSecret and shardSecret empty, or turn it off" -}}
{{- end -}}
{{- else if not (and $group.routerSecret $group.shardSecret) -}}
{{- fail (printf
  "mode %s: router and shards meet over mutual TLS; give groupTls.routerSecret and groupTls.shardSecret, or set groupTls.certManager.enabled"
  .Values.mode) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "weft.checkReplicas" -}}
{{- if and (eq .Values.mode "split") (eq (int .Values.replicas) 0) -}}
{{- fail "replicas: 0 leaves a router of mode: split without shards; it ends at its start" -}}
{{- end -}}
{{- if eq .Values.mode "split" -}}
{{- if gt (int .Values.replicas) 16 -}}
{{- fail (printf "replicas: %d is above 16, the groups of shards that the router of mode: split may have" (int .Values.replicas)) -}}
{{- end -}}
{{- if gt (mul .Values.replicas .Values.shards) 64 -}}
{{- fail (printf "replicas: with shards: %d they are %d shards; the router of mode: split may have 64" (int .Values.shards) (mul .Values.replicas .Values.shards)) -}}
{{- end -}}
{{- end -}}
{{- if hasKey .Values.flags "replicas" -}}
{{- fail "flags.replicas: a pod has one group of shards; `replicas` is how many pods there are" -}}
{{- end -}}
{{- end -}}

{{- define "weft.checkPorts" -}}
{{- $taken := dict -}}
{{- $ports := list (list "http" .Values.ports.http) (list "grpc" .Values.ports.grpc) (list "admin" .Values.ports.admin) -}}
{{- if ne .Values.mode "replica" -}}
{{- $ports = append $ports (list "shard" .Values.ports.shard) -}}
{{- $ports = append $ports (list "shardMetrics" .Values.ports.shardMetrics) -}}
{{- else -}}
{{- range $rank := until (int .Values.shards) -}}
{{- $ports = append $ports (list (printf "shardMetrics + %d" $rank) (add $.Values.ports.shardMetrics $rank)) -}}
{{- end -}}
{{- end -}}
{{- range $ports -}}
{{- $port := last . | int | toString -}}
{{- if gt (int $port) 65535 -}}
{{- fail (printf "ports.%s is %s; ports end at 65535" (first .) $port) -}}
{{- end -}}
{{- if hasKey $taken $port -}}
{{- fail (printf "ports.%s and ports.%s are both %s; they need to differ" (get $taken $port) (first .) $port) -}}
{{- end -}}
{{- $_ := set $taken $port (first .) -}}
{{- end -}}
{{- end -}}

{{- define "weft.checkScaling" -}}
{{- $scaling := .Values.autoscaling -}}
{{- if and $scaling.hpa.enabled $scaling.keda.enabled -}}
{{- fail "autoscaling: hpa.enabled and keda.enabled would scale the same pods; choose one" -}}
{{- end -}}
{{- if or $scaling.hpa.enabled $scaling.keda.enabled -}}
{{- if eq .Values.mode "split" -}}
{{- fail "autoscaling: in mode: split the router's flags name each group, so that replicas is changed by helm upgrade; use mode: replica or leaderworkerset" -}}
{{- end -}}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) -}}
{{- fail (printf "autoscaling.minReplicas: %v is above maxReplicas: %v" $scaling.minReplicas $scaling.maxReplicas) -}}
{{- end -}}
{{- end -}}
{{- if and $scaling.keda.enabled (not $scaling.keda.serverAddress) -}}
{{- fail "autoscaling.keda.serverAddress: name Prometheus, as http://prometheus-operated.monitoring:9090" -}}
{{- end -}}
{{- end -}}

{{- define "weft.checkGateway" -}}
{{- $pool := .Values.gateway.inferencePool -}}
{{- if $pool.enabled -}}
{{- if not $pool.endpointPicker.name -}}
{{- fail "gateway.inferencePool.endpointPicker.name: name the Service of the pool's endpoint picker" -}}
{{- end -}}
{{- if .Values.gateway.httpRoute.pool -}}
{{- fail "gateway.httpRoute.pool names a pool of others, and gateway.inferencePool makes one: choose" -}}
{{- end -}}
{{- end -}}
{{- if and (or $pool.enabled .Values.gateway.httpRoute.pool) (not .Values.publicOps) -}}
{{- fail "gateway: an endpoint picker reads /metrics at the public HTTP port; set publicOps: true" -}}
{{- end -}}
{{- if and .Values.gateway.httpRoute.enabled (not .Values.gateway.httpRoute.parentRefs) -}}
{{- fail "gateway.httpRoute.parentRefs: name the Gateway, as [{name: inference-gateway}]" -}}
{{- end -}}
{{- end -}}

{{- define "weft.checkStrategy" -}}
{{- if and (ne .Values.mode "replica") (ne .Values.strategy.type "RollingUpdate") -}}
{{- fail (printf "strategy.type: %s is for mode: replica; in mode: %s it is RollingUpdate" .Values.strategy.type .Values.mode) -}}
{{- end -}}
{{- $update := .Values.strategy.rollingUpdate -}}
{{- if and (eq (toString $update.maxSurge | trimSuffix "%") "0") (eq (toString $update.maxUnavailable | trimSuffix "%") "0") -}}
{{- fail "strategy.rollingUpdate: maxSurge and maxUnavailable are both 0, so that no update could begin" -}}
{{- end -}}
{{- end -}}

{{- define "weft.checks" -}}
{{- include "weft.checkStrategy" . -}}
{{- include "weft.checkReplicas" . -}}
{{- include "weft.checkFlags" . -}}
{{- include "weft.checkFlagsOfPrograms" . -}}
{{- include "weft.checkModel" . -}}
{{- include "weft.checkResources" . -}}
{{- include "weft.checkTls" . -}}
{{- include "weft.checkPorts" . -}}
{{- include "weft.checkScaling" . -}}
{{- include "weft.checkGateway" . -}}
{{- include "weft.checkPrograms" . -}}
{{- end -}}
