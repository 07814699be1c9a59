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
{{- $_ := set $c "tls_server_name" (required "secrets.tls.serverName: give the name that the certificate carries" $v.secrets.tls.serverName) -}}
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

{{/* (root, id, port) → every address of a component's headless Service, for a client that spreads its work over them */}}
{{- define "headrace.target" -}}
{{- printf "dns:///%s.%s.svc:%d" (include "headrace.name" (dict "root" .root "id" .id)) .root.Release.Namespace (int .port) -}}
{{- end -}}

{{/* (root, id, port, count) → {items: [address of each pod of a StatefulSet]} */}}
{{- define "headrace.podTargets" -}}
{{- $name := include "headrace.name" (dict "root" .root "id" .id) -}}
{{- $items := list -}}
{{- range $i := until (int .count) -}}
{{- $items = append $items (printf "%s-%d.%s.%s.svc:%d" $name $i $name $.root.Release.Namespace (int $.port)) -}}
{{- end -}}
{{- dict "items" $items | toYaml -}}
{{- end -}}

{{/* values → most replicas there can be */}}
{{- define "headrace.mostReplicas" -}}
{{- ternary .replicas .autoscaling.maxReplicas (eq .autoscaling.kind "none") | int -}}
{{- end -}}

{{/* root → the gateway's settings that follow from the release */}}
{{- define "headrace.gatewayConfig" -}}
{{- $s := .Values.secrets -}}
{{- $c := dict "grpc_port" 30001 -}}
{{- $_ := set $c "tokenizer" (list (include "headrace.target" (dict "root" . "id" "tokenizer" "port" (.Values.tokenizer.config.port | default 30010)))) -}}
{{- $_ := set $c "detokenizer" (list (include "headrace.target" (dict "root" . "id" "detokenizer" "port" (.Values.detokenizer.config.port | default 30020)))) -}}
{{- $names := list -}}
{{- $pods := list -}}
{{- range $model, $own := include "headrace.models" . | fromYaml -}}
{{- $values := include "headrace.workerValues" (dict "root" $ "model" $model "own" ($own | default dict)) | fromYaml -}}
{{- $target := dict "root" $ "id" (printf "worker-%s" $model) "port" ($values.config.port | default 30100) "count" (include "headrace.mostReplicas" $values) -}}
{{- $names = append $names (include "headrace.target" $target | trimPrefix "dns:///") -}}
{{- $pods = concat $pods (include "headrace.podTargets" $target | fromYaml).items -}}
{{- if and (eq $.Values.gateway.discovery "static") (ne $values.kind "StatefulSet") -}}
{{- fail (printf "models.%s.kind: pods of a %s have no names; set gateway.discovery to dns or kubernetes" $model $values.kind) -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.gateway.discovery "static" -}}
{{- $_ := set $c "workers" $pods -}}
{{- else if eq .Values.gateway.discovery "dns" -}}
{{- $_ := set $c "worker_dns" $names -}}
{{- else -}}
{{- $_ := set $c "service_discovery" true -}}
{{- $_ := set $c "service_discovery_namespace" .Release.Namespace -}}
{{- $_ := set $c "selector" (list (printf "app.kubernetes.io/instance=%s" .Release.Name) "app.kubernetes.io/component=worker") -}}
{{- end -}}
{{- if $s.apiKeys.name -}}
{{- $_ := set $c "api_key_file" (printf "/etc/headrace/api-keys/%s" $s.apiKeys.key) -}}
{{- end -}}
{{- if $s.adminKeys.name -}}
{{- $_ := set $c "admin_api_key_file" (printf "/etc/headrace/admin-keys/%s" $s.adminKeys.key) -}}
{{- end -}}
{{- $c | toYaml -}}
{{- end -}}
