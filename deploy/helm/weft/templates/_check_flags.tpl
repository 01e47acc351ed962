{{/* What is wrong with `flags` and `shardFlags`. Names and ranges are those of files/flags.yaml. */}}

{{/* Flags that the chart sets from other values, with these. */}}
{{- define "weft.checkFlags" -}}
{{- $own := dict "model" "model.path" "served-model-name" "model.servedName" "model-alias" "model.aliases"
  "shards" "shards" "device" "device" "host" "listenHost" "http-port" "ports.http" "grpc-port" "ports.grpc"
  "admin-host" "listenHost" "admin-port" "ports.admin" "public-ops" "publicOps"
  "drain-timeout-s" "drain.timeoutS" "api-keys" "auth.existingSecret" "tls-cert" "tls.existingSecret"
  "tls-key" "tls.existingSecret" "tls-client-certs" "tls.clientCerts" "tls-client-ca" "tls.clientCaSecret"
  "log-format" "logFormat" "metrics-host" "listenHost" "shard-metrics-port" "ports.shardMetrics"
  "metrics-port" "ports.shardMetrics" "listen" "ports.shard" "world" "shards" "rank" "the pod's ordinal"
  "rank-from-hostname" "the pod's ordinal" "comm-host" "the pod's address" "socket" "mode" "shard" "shards" "groups" "replicas" "shard-tls-cert" "groupTls" "shard-tls-key" "groupTls"
  "shard-tls-ca" "groupTls" "tls-ca" "groupTls" "config" "flags" -}}
{{- range $place := list "flags" "shardFlags" -}}
{{- range $name, $_ := get $.Values $place -}}
{{- if hasKey $own $name -}}
{{- fail (printf "%s.%s: the chart sets --%s itself, from %s" $place $name $name (get $own $name)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $_ := .Values.flags -}}
{{- if hasKey $.Values.shardFlags $name -}}
{{- if eq $.Values.mode "replica" -}}
{{- fail (printf "flags.%s is also in shardFlags, and in mode: replica both go to one program: leave one out" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (dict "flag" "flags.NAME" "value" VALUE "takes" LINE), LINE being the flag's in files/flags.yaml. */}}
{{- define "weft.checkFlagValue" -}}
{{- $takes := splitList " " .takes -}}
{{- $kind := first $takes -}}
{{- $text := include "weft.scalar" .value -}}
{{- if and (eq $kind "boolean") (not (has $text (list "true" "false" "1" "0"))) -}}
{{- fail (printf "%s: %q is neither true nor false" .flag $text) -}}
{{- end -}}
{{- if has $kind (list "whole" "number") -}}
{{- $words := eq $kind "whole" | ternary "whole number" "number" -}}
{{- $form := eq $kind "whole" | ternary "^[+-]?[0-9]+$" "^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$" -}}
{{- $fits := regexMatch $form $text -}}
{{- range $at, $limit := rest $takes -}}
{{- if and $fits (ne $limit "..") -}}
{{- $least := lt (float64 $text) (float64 $limit) -}}
{{- $most := gt (float64 $text) (float64 $limit) -}}
{{- $fits = not (eq $at 0 | ternary $least $most) -}}
{{- end -}}
{{- end -}}
{{- if not $fits -}}
{{- $range := rest $takes | join " " | replace " .. " " to " | replace " .." " or more" -}}
{{- fail (printf "%s: %q is not a %s in its range, %s" .flag $text $words $range) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* In mode replica both go to one program. */}}
{{- define "weft.checkFlagsOfPrograms" -}}
{{- $lists := .Files.Get "files/flags.yaml" | required "the chart has no files/flags.yaml" | fromYaml -}}
{{- $programs := dict "flags" "weft-router" "shardFlags" "weft-shard" -}}
{{- if eq .Values.mode "replica" -}}
{{- $programs = dict "flags" "weft serve" "shardFlags" "weft serve" -}}
{{- end -}}
{{- range $place, $program := $programs -}}
{{- $known := get $lists $program -}}
{{- $other := eq $place "flags" | ternary "shardFlags" "flags" -}}
{{- range $name, $value := get $.Values $place -}}
{{- $flag := printf "%s.%s" $place $name -}}
{{- if not (hasKey $known $name) -}}
{{- if hasKey (get $lists (get $programs $other)) $name -}}
{{- fail (printf "%s: %s has no flag --%s; %s has it: %s.%s" $flag $program $name (get $programs $other) $other $name) -}}
{{- end -}}
{{- fail (printf "%s: %s of weft %s has no flag --%s; `%s --help` lists those that it has" $flag $program $.Chart.AppVersion $name $program) -}}
{{- end -}}
{{- $takes := get $known $name -}}
{{- if kindIs "slice" $value -}}
{{- if ne $takes "texts" -}}
{{- fail (printf "%s: --%s takes one value, no list" $flag $name) -}}
{{- end -}}
{{- else -}}
{{- include "weft.checkFlagValue" (dict "flag" $flag "value" $value "takes" $takes) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
