{{/*
The labels of the pods of a component, and of what selects them. Call it with (list $ "nodeguard-agent"): the name, or
"nodeguard" for what the cluster has once. Selectors have the name only: they cannot change.
*/}}
{{- define "nodeguard.podLabels" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ index . 1 }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 | trimPrefix "nodeguard" | trimPrefix "-" | default "cluster" }}
app.kubernetes.io/part-of: nodeguard
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The labels of every other object; see above. Those of the chart would restart the pods without a reason. */}}
{{- define "nodeguard.labels" -}}
{{- $root := index . 0 -}}
{{ include "nodeguard.podLabels" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The image of a component. Call it with (list $ .Values.agent.image). */}}
{{- define "nodeguard.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.image.registry }}{{ . | trimSuffix "/" }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $root.Values.image.tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* The priority class of a component. Call it with (list $ .Values.agent.priorityClassName). */}}
{{- define "nodeguard.priorityClassName" -}}
{{- if (index . 0).Values.priorityClass.create }}nodeguard{{ else }}{{ index . 1 }}{{ end -}}
{{- end }}

{{/* Whether a rule of drains announces evictions to pods; empty for none. */}}
{{- define "nodeguard.drainNotices" -}}
{{- if ne (dig "drain" "mode" "disabled" .Values.policy) "disabled" }}
{{- range dig "drain" "rules" list .Values.policy }}{{ if eq .when "deadline" }}true{{ end }}{{ end }}
{{- end }}
{{- end }}

{{/* The directory where the aggregator finds the certificate of cert-manager. */}}
{{- define "nodeguard.certificateDirectory" -}}
/run/secrets/certificate
{{- end }}

{{- /*
The entries of a list that a policy reads, as one text in their order. Call it with (list LIST CONDITION TEXT); an entry is
`all[?index]` in the condition, and `all[index]` in the text. With (list LIST CONDITION) it is their number.

The API server counts the cost of a loop linearly, but its time grows with the square of the turns: it keeps a value of each
turn until the loop ends. So three loops of 46 turns count the entries in place of one: a Node has no room for 97,336.
*/}}
{{- define "nodeguard.entries" -}}
{{- $end := ternary ".join(\"\")" ".sum()" (eq (len .) 3) -}}
[{{ index . 0 }}].map(all, variables.digits.filter(a, a * 2116 < all.size()).map(a,
  variables.digits.filter(b, a * 2116 + b * 46 < all.size()).map(b, [a * 2116 + b * 46].map(base,
    variables.digits.filter(c, {{ index . 1 | replace "index" "base + c" }})
    {{- if eq (len .) 3 }}
      .map(c, {{ index . 2 | replace "index" "base + c" }}).join(""))[0]
    {{- else }}.size())[0]
    {{- end }}
  ){{ $end }}){{ $end }})[0]
{{- end }}
