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

{{/* (root, id, port) → every address of a component's headless Service, for a client that spreads its calls over them */}}
{{- define "headrace.target" -}}
{{- printf "dns:///%s.%s.svc:%d" (include "headrace.name" (dict "root" .root "id" .id)) .root.Release.Namespace (int .port) -}}
{{- end -}}

{{/* (root, id, port, count) → {items: [address of each pod of a StatefulSet]}, for a client that keeps one stream to each */}}
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
{{- $detokenizer := mergeOverwrite (deepCopy .Values.defaults) (deepCopy .Values.detokenizer) -}}
{{- $count := include "headrace.mostReplicas" $detokenizer -}}
{{- $_ := set $c "detokenizer" (include "headrace.podTargets" (dict "root" . "id" "detokenizer" "port" ($detokenizer.config.port | default 30020) "count" $count) | fromYaml).items -}}
{{- $workers := list -}}
{{- range $model, $own := include "headrace.models" . | fromYaml -}}
{{- $values := include "headrace.workerValues" (dict "root" $ "model" $model "own" ($own | default dict)) | fromYaml -}}
{{- $target := dict "root" $ "id" (printf "worker-%s" $model) "port" ($values.config.port | default 30100) "count" (include "headrace.mostReplicas" $values) -}}
{{- $workers = concat $workers (include "headrace.podTargets" $target | fromYaml).items -}}
{{- end -}}
{{- $_ := set $c "workers" $workers -}}
{{- if $s.apiKeys.name -}}
{{- $_ := set $c "api_key_file" (printf "/etc/headrace/api-keys/%s" $s.apiKeys.key) -}}
{{- end -}}
{{- if $s.adminKeys.name -}}
{{- $_ := set $c "admin_api_key_file" (printf "/etc/headrace/admin-keys/%s" $s.adminKeys.key) -}}
{{- end -}}
{{- $c | toYaml -}}
{{- end -}}
