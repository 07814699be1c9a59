{{/* What a pod mounts: its settings, its secrets, a scratch folder, and where it loads models the model cache. Context: (root, c). */}}

{{- define "headrace.mounts" -}}
{{- $s := .root.Values.secrets -}}
- name: config
  mountPath: /etc/headrace/config
  readOnly: true
- name: tmp
  mountPath: /tmp
{{- if ne .c.role "gateway" }}
- name: {{ include "headrace.cacheVolume" . }}
  mountPath: /var/cache/headrace
{{- end }}
{{- if and (eq .c.role "worker") .c.values.sharedMemory.enabled }}
- name: shm
  mountPath: /dev/shm
{{- end }}
{{- if $s.linkToken.name }}
- name: link
  mountPath: /etc/headrace/link
  readOnly: true
{{- end }}
{{- if $s.tls.name }}
- name: tls
  mountPath: /etc/headrace/tls
  readOnly: true
{{- end }}
{{- if eq .c.role "gateway" }}
{{- range $volume, $secret := dict "api-keys" $s.apiKeys "admin-keys" $s.adminKeys }}
{{- if $secret.name }}
- name: {{ $volume }}
  mountPath: /etc/headrace/{{ $volume }}
  readOnly: true
{{- end }}
{{- end }}
{{- end }}
{{- with .c.values.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "headrace.cacheVolume" -}}
{{- if eq .c.values.modelCache.kind "claimPerPod" }}cache-claim{{ else }}cache{{ end -}}
{{- end -}}

{{- define "headrace.volumes" -}}
{{- $s := .root.Values.secrets -}}
- name: config
  configMap:
    name: {{ .c.name }}
- name: tmp
  emptyDir:
    sizeLimit: 1Gi
{{- if ne .c.role "gateway" }}
{{- $cache := .c.values.modelCache }}
{{- if eq $cache.kind "emptyDir" }}
- name: cache
  emptyDir:
    sizeLimit: {{ $cache.size }}
{{- else if eq $cache.kind "existingClaim" }}
- name: cache
  persistentVolumeClaim:
    claimName: {{ required (printf "%s: modelCache.claimName is needed for an existing claim" .c.id) $cache.claimName }}
{{- end }}
{{- end }}
{{- if and (eq .c.role "worker") .c.values.sharedMemory.enabled }}
- name: shm
  emptyDir:
    medium: Memory
    sizeLimit: {{ .c.values.sharedMemory.size }}
{{- end }}
{{- if $s.linkToken.name }}
- name: link
  secret:
    secretName: {{ $s.linkToken.name }}
{{- end }}
{{- if $s.tls.name }}
- name: tls
  secret:
    secretName: {{ $s.tls.name }}
{{- end }}
{{- if eq .c.role "gateway" }}
{{- range $volume, $secret := dict "api-keys" $s.apiKeys "admin-keys" $s.adminKeys }}
{{- if $secret.name }}
- name: {{ $volume }}
  secret:
    secretName: {{ $secret.name }}
{{- end }}
{{- end }}
{{- end }}
{{- with .c.values.volumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
