{{/* Volumes and where they are mounted. */}}

{{- define "weft.modelVolume" -}}
- name: model
  {{- if .Values.model.existingClaim }}
  persistentVolumeClaim: {claimName: {{ .Values.model.existingClaim }}, readOnly: true}
  {{- else if .Values.model.hostPath }}
  hostPath: {path: {{ .Values.model.hostPath | quote }}, type: Directory}
  {{- else }}
  image: {{- toYaml .Values.model.image | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* The root file system is read only; these are what processes write to. */}}
{{- define "weft.scratchVolumes" -}}
- name: run
  emptyDir: {medium: Memory, sizeLimit: 16Mi}
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
- name: shm
  emptyDir: {medium: Memory, sizeLimit: {{ .Values.shm.sizeLimit }}}
{{- end -}}

{{- define "weft.commonMounts" -}}
- {name: model, mountPath: /model, readOnly: true}
- {name: run, mountPath: /run/weft}
- {name: tmp, mountPath: /tmp}
- {name: shm, mountPath: /dev/shm}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "weft.doorVolumes" -}}
{{- if .Values.auth.existingSecret }}
- name: auth
  secret: {secretName: {{ .Values.auth.existingSecret }}, defaultMode: 0440}
{{- end }}
{{- with include "weft.tlsSecret" . }}
- name: tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- if .Values.tls.clientCaSecret }}
- name: client-ca
  secret: {secretName: {{ .Values.tls.clientCaSecret }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- define "weft.doorMounts" -}}
{{- if .Values.auth.existingSecret }}
- {name: auth, mountPath: /etc/weft/auth, readOnly: true}
{{- end }}
{{- if include "weft.tlsSecret" . }}
- {name: tls, mountPath: /etc/weft/tls, readOnly: true}
{{- end }}
{{- if .Values.tls.clientCaSecret }}
- {name: client-ca, mountPath: /etc/weft/client-ca, readOnly: true}
{{- end }}
{{- end -}}

{{/* (dict "name" VOLUME "secret" SECRET) */}}
{{- define "weft.groupTlsVolume" -}}
- name: {{ .name }}
  secret: {secretName: {{ .secret }}, defaultMode: 0440}
{{- end -}}
