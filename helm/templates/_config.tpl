{{/* (root, role, model, values, facts, drain) → the program's settings: what Kubernetes implies, then the user's own map. */}}
{{- define "headrace.config" -}}
{{- $v := .root.Values -}}
{{- $c := dict "host" "0.0.0.0" "port" .facts.port "metrics_port" (add .facts.port 1000 | int) "drain_timeout" .drain "log_format" "json" -}}
{{- if $v.secrets.linkToken.name -}}
{{- $_ := set $c "token_file" (printf "/etc/headrace/link/%s" $v.secrets.linkToken.key) -}}
{{- end -}}
{{- if $v.secrets.tls.name -}}
{{- $_ := set $c "tls_cert" "/etc/headrace/tls/tls.crt" -}}
{{- $_ := set $c "tls_key" "/etc/headrace/tls/tls.key" -}}
{{- $_ := set $c "tls_ca" "/etc/headrace/tls/ca.crt" -}}
{{- end -}}
{{- if .values.fetch -}}
{{- $_ := set $c "model_path" "/var/cache/headrace/model" -}}
{{- end -}}
{{- if eq .role "worker" -}}
{{- $_ := set $c "served_model_name" .model -}}
{{- end -}}
{{- if eq .role "gateway" -}}
{{- $c = mergeOverwrite $c (include "headrace.gatewayConfig" .root | fromYaml) -}}
{{- end -}}
{{- mergeOverwrite $c (deepCopy (.values.config | default dict)) | toYaml -}}
{{- end -}}

{{/* (root, id, port) → where a component's pods are found: every address of its headless Service */}}
{{- define "headrace.target" -}}
{{- printf "dns:///%s.%s.svc:%d" (include "headrace.name" (dict "root" .root "id" .id)) .root.Release.Namespace (int .port) -}}
{{- end -}}

{{/* root → the gateway's settings that follow from the release */}}
{{- define "headrace.gatewayConfig" -}}
{{- $c := dict "grpc_port" 30001 -}}
{{- $_ := set $c "tokenizer" (include "headrace.target" (dict "root" . "id" "tokenizer" "port" (.Values.tokenizer.config.port | default 30010))) -}}
{{- $_ := set $c "detokenizer" (include "headrace.target" (dict "root" . "id" "detokenizer" "port" (.Values.detokenizer.config.port | default 30020))) -}}
{{- $c | toYaml -}}
{{- end -}}
