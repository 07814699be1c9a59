{{/* What each pod is made from, worked out once: every template below reads only this. */}}

{{/* (root, longest) → seconds the longest promised answer takes */}}
{{- define "headrace.longest" -}}
{{- $l := .longest -}}
{{- addf (mulf $l.outputTokens $l.secondsPerToken) $l.firstTokenSeconds | ceil | int -}}
{{- end -}}

{{/* root → {model: values}; without any, the embedded one */}}
{{- define "headrace.models" -}}
{{- .Values.models | default (dict "smollm2" (dict "fetch" "smollm2-135m-instruct")) | toYaml -}}
{{- end -}}

{{/* (root, model, own) → the model's values over its profile's, all workers' and all pods' */}}
{{- define "headrace.workerValues" -}}
{{- $v := .root.Values -}}
{{- $profile := .own.profile | default $v.worker.profile -}}
{{- if not (hasKey $v.profiles $profile) -}}
{{- fail (printf "models.%s.profile: there is no profile %q" .model $profile) -}}
{{- end -}}
{{- mergeOverwrite (deepCopy $v.defaults) (deepCopy $v.worker) (deepCopy (get $v.profiles $profile)) (deepCopy .own) | toYaml -}}
{{- end -}}

{{/* (root, own) → where a model's tokenizer is */}}
{{- define "headrace.tokenizerOf" -}}
{{- $own := mergeOverwrite (deepCopy .root.Values.worker) (deepCopy (.own | default dict)) -}}
{{- $own.config.tokenizer_path | default $own.config.model_path | default $own.fetch -}}
{{- end -}}

{{/* root → what tokenizer and detokenizer take over from the first model by name */}}
{{- define "headrace.firstModel" -}}
{{- $models := include "headrace.models" . | fromYaml -}}
{{- $name := keys $models | sortAlpha | first -}}
{{- $source := include "headrace.tokenizerOf" (dict "root" . "own" (get $models $name)) -}}
{{- range $other, $own := $models -}}
{{- if ne $source (include "headrace.tokenizerOf" (dict "root" $ "own" $own)) -}}
{{- fail (printf "models.%s and models.%s come from different folders, so their tokenizers may differ, and a release has one: set tokenizer.config.model_path and detokenizer.config.model_path where they are the same, else make another release" $name $other) -}}
{{- end -}}
{{- end -}}
{{- $own := mergeOverwrite (deepCopy .Values.worker) (deepCopy (get $models $name | default dict)) -}}
{{- $config := dict "served_model_name" ($own.config.served_model_name | default $name) -}}
{{- with $own.config.tokenizer_path | default $own.config.model_path -}}
{{- $_ := set $config "model_path" . -}}
{{- end -}}
{{- dict "fetch" ($own.fetch | default "") "config" $config | toYaml -}}
{{- end -}}

{{/* root → the longest of all models' longest answers */}}
{{- define "headrace.longestOfAll" -}}
{{- $seconds := include "headrace.longest" (dict "longest" .Values.longestRequest) | int -}}
{{- range include "headrace.models" . | fromYaml -}}
{{- $own := mergeOverwrite (deepCopy $.Values.longestRequest) (deepCopy (.longestRequest | default dict)) -}}
{{- $seconds = max $seconds (include "headrace.longest" (dict "longest" $own) | int) -}}
{{- end -}}
{{- $seconds -}}
{{- end -}}

{{/* root → {items: [component, …]}, gateway first */}}
{{- define "headrace.components" -}}
{{- $items := list -}}
{{- range $role := list "gateway" "tokenizer" "detokenizer" -}}
{{- $values := mergeOverwrite (deepCopy $.Values.defaults) (deepCopy (get $.Values $role)) -}}
{{- if and (ne $role "gateway") (not $values.fetch) (not (hasKey $values.config "model_path")) -}}
{{- $values = mergeOverwrite $values (include "headrace.firstModel" $ | fromYaml) -}}
{{- end -}}
{{- $items = append $items (include "headrace.component" (dict "root" $ "role" $role "id" $role "model" "" "values" $values) | fromYaml) -}}
{{- end -}}
{{- range $model, $own := include "headrace.models" . | fromYaml -}}
{{- $values := include "headrace.workerValues" (dict "root" $ "model" $model "own" ($own | default dict)) | fromYaml -}}
{{- $items = append $items (include "headrace.component" (dict "root" $ "role" "worker" "id" (printf "worker-%s" $model) "model" $model "values" $values) | fromYaml) -}}
{{- end -}}
{{- dict "items" $items | toYaml -}}
{{- end -}}

{{/* (root, role, id, model, values) → the component */}}
{{- define "headrace.component" -}}
{{- $facts := get (dict
  "gateway" (dict "module" "gateway" "program" "gateway" "service" "headrace.gateway.v1.Gateway" "port" 30000)
  "tokenizer" (dict "module" "services.tokenizer" "program" "tokenizer" "service" "headrace.tokenizer.v1.Tokenizer" "port" 30010)
  "detokenizer" (dict "module" "services.detokenizer" "program" "detokenizer" "service" "headrace.detokenizer.v1.Detokenizer" "port" 30020)
  "worker" (dict "module" "services.scheduler" "program" "scheduler" "service" "headrace.scheduler.v1.Scheduler" "port" 30100)) .role -}}
{{- $drain := include "headrace.longestOfAll" .root | int -}}
{{- if eq .role "worker" -}}
{{- $own := mergeOverwrite (deepCopy .root.Values.longestRequest) (deepCopy (.values.longestRequest | default dict)) -}}
{{- $drain = include "headrace.longest" (dict "longest" $own) | int -}}
{{- else if hasKey .values "drainSeconds" -}}
{{- $drain = .values.drainSeconds | int -}}
{{- end -}}
{{- $config := include "headrace.config" (dict "root" .root "role" .role "model" .model "values" .values "facts" $facts "drain" $drain) | fromYaml -}}
{{- $name := include "headrace.name" (dict "root" .root "id" .id) -}}
{{- $grace := addf .values.preStopSeconds (get $config "drain_timeout") 15 | ceil | int -}}
{{- if not (kindIs "invalid" .values.terminationGracePeriodSeconds) -}}
{{- if lt (.values.terminationGracePeriodSeconds | int) $grace -}}
{{- fail (printf "%s: terminationGracePeriodSeconds %v is less than preStop + drain_timeout + 15 = %v; requests would be cut" .id .values.terminationGracePeriodSeconds $grace) -}}
{{- end -}}
{{- $grace = .values.terminationGracePeriodSeconds | int -}}
{{- end -}}
{{- dict "role" .role "id" .id "model" .model "name" $name "values" .values "module" $facts.module "program" $facts.program "service" $facts.service "config" $config "grace" $grace "kind" (ternary .values.kind "Deployment" (eq .role "worker")) | toYaml -}}
{{- end -}}

{{/* component → its ports */}}
{{- define "headrace.httpPort" -}}
{{- .config.port | int -}}
{{- end -}}

{{- define "headrace.grpcPort" -}}
{{- ternary .config.grpc_port .config.port (eq .role "gateway") | int -}}
{{- end -}}

{{/* (root, c) → non-empty where the pod talks to the Kubernetes API */}}
{{- define "headrace.usesApi" -}}
{{- if and (eq .c.role "gateway") (eq .root.Values.gateway.discovery "kubernetes") -}}yes{{- end -}}
{{- end -}}
