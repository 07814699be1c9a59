{{/* Names and labels. Selector labels never change between versions: selectors are immutable. */}}

{{- define "headrace.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 30 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 30 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 30 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* (root, id) → the component's own name, short enough for a StatefulSet's revision label. */}}
{{- define "headrace.name" -}}
{{- printf "%s-%s" (include "headrace.fullname" .root) .id | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* (root, role, model) */}}
{{- define "headrace.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .role }}
{{- with .model }}
headrace/model: {{ . }}
{{- end }}
{{- end -}}

{{- define "headrace.labels" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .role }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .model }}
headrace/model: {{ . }}
{{- end }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: headrace
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* (root, image) → a pinned reference. */}}
{{- define "headrace.image" -}}
{{- $tag := .image.tag | default .root.Chart.AppVersion -}}
{{- if hasSuffix "latest" $tag -}}
{{- fail (printf "image tag %q of %s moves; pin a version" $tag .image.repository) -}}
{{- end -}}
{{- with .image.registry }}{{ . }}/{{ end }}{{ .image.repository }}:{{ $tag }}{{ with .image.digest }}@{{ . }}{{ end }}
{{- end -}}
