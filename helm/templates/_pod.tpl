{{/* One pod template for all programs, so that no setting works for one and is lost for another. Context: (root, c). */}}
{{- define "headrace.pod" -}}
{{- $v := .c.values -}}
{{- $root := .root -}}
metadata:
  labels:
    {{- include "headrace.labels" (dict "root" $root "role" .c.role "model" .c.model) | nindent 4 }}
    {{- with $v.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    kubectl.kubernetes.io/default-container: {{ .c.program }}
    headrace/config-checksum: {{ .c.config | toYaml | sha256sum }}
    {{- if eq $root.Values.monitoring.scrape "annotations" }}
    prometheus.io/scrape: "true"
    prometheus.io/port: {{ .c.config.metrics_port | quote }}
    {{- end }}
    {{- with $v.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- if include "headrace.usesApi" . }}
  serviceAccountName: {{ include "headrace.fullname" $root }}-gateway
  automountServiceAccountToken: true
  {{- else }}
  automountServiceAccountToken: false
  {{- end }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .c.grace | int }}
  {{- include "headrace.scheduling" . | nindent 2 }}
  securityContext:
    {{- toYaml $v.podSecurityContext | nindent 4 }}
  {{- if or $v.initContainers $v.fetch }}
  initContainers:
    {{- with $v.initContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if $v.fetch }}
    {{- include "headrace.fetch" . | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    - name: {{ .c.program }}
      image: {{ include "headrace.image" (dict "root" $root "image" $v.image) }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      command: [python, -m, {{ .c.module }}]
      args: [--config, /etc/headrace/config/{{ .c.program }}.yaml]
      securityContext:
        {{- toYaml $v.securityContext | nindent 8 }}
      {{- with $v.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        {{- include "headrace.ports" .c | nindent 8 }}
      {{- include "headrace.probes" . | nindent 6 }}
      lifecycle:
        preStop:
          exec:
            command: [sleep, {{ $v.preStopSeconds | quote }}]
      env:
        {{- include "headrace.env" . | nindent 8 }}
      volumeMounts:
        {{- include "headrace.mounts" . | nindent 8 }}
  volumes:
    {{- include "headrace.volumes" . | nindent 4 }}
{{- end -}}

{{- define "headrace.scheduling" -}}
{{- $v := .c.values -}}
{{- with $v.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $v.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- if and $v.topologySpread $v.topologySpread.enabled }}
topologySpreadConstraints:
  {{- range $v.topologySpread.topologyKeys }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: {{ $v.topologySpread.whenUnsatisfiable }}
    labelSelector:
      matchLabels:
        {{- include "headrace.selector" (dict "root" $.root "role" $.c.role "model" $.c.model) | nindent 8 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "headrace.ports" -}}
{{- if eq .role "gateway" -}}
- name: http
  containerPort: {{ include "headrace.httpPort" . }}
{{ end -}}
- name: grpc
  containerPort: {{ include "headrace.grpcPort" . }}
- name: metrics
  containerPort: {{ .config.metrics_port | int }}
{{- end -}}

{{- define "headrace.env" -}}
- name: POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: HOME
  value: /tmp
{{- if ne .c.role "gateway" }}
- name: HEADRACE_CACHE_DIR
  value: /var/cache/headrace
- name: HF_HOME
  value: /var/cache/headrace/huggingface
{{- if eq .c.role "worker" }}
- name: TRITON_CACHE_DIR
  value: /var/cache/headrace/triton
- name: TORCHINDUCTOR_CACHE_DIR
  value: /var/cache/headrace/inductor
- name: FLASHINFER_WORKSPACE_BASE
  value: /var/cache/headrace/flashinfer
{{- end }}
{{- with .root.Values.secrets.huggingFace }}
{{- if .name }}
- name: HF_TOKEN
  valueFrom:
    secretKeyRef:
      name: {{ .name }}
      key: {{ .key }}
{{- end }}
{{- end }}
{{- end }}
{{- with .c.values.env }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A container that fetches the model into the cache, converts it where needed, and links /var/cache/headrace/model to it. */}}
{{- define "headrace.fetch" -}}
{{- $v := .c.values -}}
- name: fetch
  image: {{ include "headrace.image" (dict "root" .root "image" (mergeOverwrite (deepCopy .root.Values.defaults.image) (deepCopy .root.Values.fetchImage))) }}
  imagePullPolicy: {{ $v.image.pullPolicy }}
  command: [sh, -c]
  args:
    - |
      set -eu
      folder=$(python -m headrace model path "$MODEL")
      ln -sfn "$folder" /var/cache/headrace/model
  securityContext:
    {{- toYaml $v.securityContext | nindent 4 }}
  resources:
    requests: {cpu: 500m, memory: 1Gi}
  env:
    - name: MODEL
      value: {{ $v.fetch | quote }}
    {{- include "headrace.env" . | nindent 4 }}
  volumeMounts:
    - name: tmp
      mountPath: /tmp
    - name: {{ include "headrace.cacheVolume" . }}
      mountPath: /var/cache/headrace
{{- end -}}
