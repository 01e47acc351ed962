{{/* Parts of pods. */}}

{{/* (dict "root" $ "place" {nodeSelector, tolerations, affinity}) */}}
{{- define "weft.podBasics" -}}
{{- $values := .root.Values -}}
serviceAccountName: {{ include "weft.serviceAccountName" .root }}
automountServiceAccountToken: false
# A Service called weft would put WEFT_PORT and its like into the environment, where flags are read.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ include "weft.gracePeriodS" .root }}
{{- with $values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- toYaml $values.podSecurityContext | nindent 2 }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .place.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .place.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .place.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Only pods with GPUs have a runtime class and are spread. (dict "root" $ "component" ...) */}}
{{- define "weft.gpuPodBasics" -}}
{{- $values := .root.Values -}}
{{- with $values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- if $values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range $values.topologySpreadConstraints }}
  -
{{- $selector := dict "labelSelector" (dict "matchLabels" (include "weft.podSelector" $ | fromYaml)) }}
{{- toYaml (merge (dict) . $selector) | nindent 4 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "weft.container" -}}
image: {{ include "weft.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
{{- end -}}

{{- define "weft.env" -}}
# Sockets of a server's own processes.
- {name: XDG_RUNTIME_DIR, value: /run/weft}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "weft.envFrom" -}}
{{- with .Values.envFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "weft.serverPorts" -}}
- {name: http, containerPort: {{ .Values.ports.http }}}
- {name: grpc, containerPort: {{ .Values.ports.grpc }}}
- {name: admin, containerPort: {{ .Values.ports.admin }}}
{{- end -}}

{{/* Of `weft serve` and of a router. Until /startupz has answered once nothing else is asked. */}}
{{- define "weft.serverProbes" -}}
{{ include "weft.probes" (dict "root" . "port" "admin" "hungGraceS" 10) }}
{{- if .Values.drain.preStopS }}
lifecycle:
  preStop:
    sleep: {seconds: {{ .Values.drain.preStopS }}}
{{- end }}
{{- end -}}

{{/* (dict "root" $ "port" NAME "hungGraceS" N): what hangs would not drain either. */}}
{{- define "weft.probes" -}}
{{- $probes := .root.Values.probes -}}
startupProbe:
  httpGet: {path: /startupz, port: {{ .port }}}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: {{ divf $probes.startupTimeoutS 2 | ceil }}
  terminationGracePeriodSeconds: {{ .hungGraceS }}
readinessProbe:
  httpGet: {path: /readyz, port: {{ .port }}}
  periodSeconds: {{ $probes.readinessPeriodS }}
  timeoutSeconds: 2
  failureThreshold: 2
livenessProbe:
  httpGet: {path: /livez, port: {{ .port }}}
  periodSeconds: {{ $probes.livenessPeriodS }}
  timeoutSeconds: 5
  failureThreshold: {{ $probes.livenessFailures }}
  terminationGracePeriodSeconds: {{ .hungGraceS }}
{{- end -}}

{{/* (dict "root" $ "gpus" N): the container's resources with its GPUs. */}}
{{- define "weft.gpuResources" -}}
{{- $resources := deepCopy .root.Values.resources -}}
{{- if eq .root.Values.device "cuda" -}}
{{- $limits := merge (dict .root.Values.gpuResourceName (toString .gpus)) (default dict $resources.limits) -}}
{{- $_ := set $resources "limits" $limits -}}
{{- end -}}
{{- toYaml $resources -}}
{{- end -}}
