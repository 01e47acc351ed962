{{/* Names and labels. */}}

{{- define "weft.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* At most 40 letters: names of pods and Services add to it. */}}
{{- define "weft.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "weft.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "weft.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "weft.selector" -}}
app.kubernetes.io/name: {{ include "weft.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "weft.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "weft.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* (dict "root" $ "component" "server"): the pods of one kind. `server` takes clients' requests:
     a replica, a router, or the leader of a group. */}}
{{- define "weft.podSelector" -}}
{{ include "weft.selector" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "weft.podLabels" -}}
{{ include "weft.podSelector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- with .root.Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "weft.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "weft.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "weft.image" -}}
{{- $tag := default (printf "%s-%s" .Chart.AppVersion .Values.device) .Values.image.tag -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository $tag -}}
{{- end -}}
{{- end -}}

{{/* Where the headless name of shards' pods ends: POD.SHARDS.NAMESPACE.svc. A LeaderWorkerSet makes
     a headless Service of its own name. */}}
{{- define "weft.shardsDomain" -}}
{{- $suffix := eq .Values.mode "leaderworkerset" | ternary "" "-shards" -}}
{{- printf "%s%s.%s.svc" (include "weft.fullname" .) $suffix .Release.Namespace -}}
{{- end -}}

{{/* The Secret of the public ports; empty without TLS. */}}
{{- define "weft.tlsSecret" -}}
{{- if .Values.tls.certManager.enabled -}}
{{- printf "%s-tls" (include "weft.fullname" .) -}}
{{- else -}}
{{- .Values.tls.existingSecret -}}
{{- end -}}
{{- end -}}

{{- define "weft.routerSecret" -}}
{{- default (printf "%s-router-tls" (include "weft.fullname" .)) .Values.groupTls.routerSecret -}}
{{- end -}}

{{- define "weft.shardSecret" -}}
{{- default (printf "%s-shard-tls" (include "weft.fullname" .)) .Values.groupTls.shardSecret -}}
{{- end -}}

{{/* Seconds in which a router has ended: it gets 10 s beyond its drain, which begins after its own
     delay. */}}
{{- define "weft.routerEndS" -}}
{{- $delay := get .Values.flags "shutdown-delay-s" | default 0 | float64 | ceil -}}
{{- add .Values.drain.preStopS $delay (ceil .Values.drain.timeoutS) 10 -}}
{{- end -}}

{{/* Seconds that a pod gets to end: after the router shards have 5 s. */}}
{{- define "weft.gracePeriodS" -}}
{{- add (include "weft.routerEndS" .) 5 .Values.drain.spareS -}}
{{- end -}}

{{/* The Service that clients ask. A LeaderWorkerSet takes its own name for its headless Service. */}}
{{- define "weft.clientService" -}}
{{- include "weft.fullname" . -}}{{- if eq .Values.mode "leaderworkerset" -}}-server{{- end -}}
{{- end -}}
