{{/* Startup waits for the load within its budget; readiness asks for the named service; liveness asks for the process only. */}}
{{- define "headrace.probes" -}}
{{- $p := deepCopy .c.values.probes -}}
{{- if and .c.config.tls_cert (ne .c.role "gateway") -}}
{{- /* A probe that starts a program needs more time than one that opens a connection, most of all in a busy pod. */ -}}
{{- range $one := list $p.startup $p.readiness $p.liveness -}}
{{- $_ := set $one "timeoutSeconds" (max 10 ($one.timeoutSeconds | int)) -}}
{{- $_ := set $one "periodSeconds" (max 10 ($one.periodSeconds | int)) -}}
{{- end -}}
{{- end -}}
startupProbe:
  {{- include "headrace.probe" (dict "root" .root "c" .c "what" "startup") | nindent 2 }}
  periodSeconds: {{ $p.startup.periodSeconds }}
  timeoutSeconds: {{ $p.startup.timeoutSeconds }}
  failureThreshold: {{ divf $p.startup.budgetSeconds $p.startup.periodSeconds | ceil | int }}
readinessProbe:
  {{- include "headrace.probe" (dict "root" .root "c" .c "what" "readiness") | nindent 2 }}
  periodSeconds: {{ $p.readiness.periodSeconds }}
  timeoutSeconds: {{ $p.readiness.timeoutSeconds }}
  failureThreshold: {{ $p.readiness.failureThreshold }}
livenessProbe:
  {{- include "headrace.probe" (dict "root" .root "c" .c "what" "liveness") | nindent 2 }}
  periodSeconds: {{ $p.liveness.periodSeconds }}
  timeoutSeconds: {{ $p.liveness.timeoutSeconds }}
  failureThreshold: {{ $p.liveness.failureThreshold }}
{{- end -}}

{{/* (root, c, what) → how a probe asks. The kubelet's gRPC probe speaks no TLS, so TLS links are asked by a program in the container. */}}
{{- define "headrace.probe" -}}
{{- $service := ternary "" .c.service (eq .what "liveness") -}}
{{- if eq .c.role "gateway" -}}
httpGet:
  path: {{ ternary "/ready" "/health" (eq .what "readiness") }}
  port: http
  {{- if .c.config.tls_cert }}
  scheme: HTTPS
  {{- end }}
{{- else if .c.config.tls_cert -}}
exec:
  command: [python, -m, services.common.probe, --config, /etc/headrace/config/{{ .c.program }}.yaml{{ with $service }}, --service, {{ . }}{{ end }}]
{{- else -}}
grpc:
  port: {{ include "headrace.grpcPort" .c }}
  service: {{ $service | quote }}
{{- end -}}
{{- end -}}
