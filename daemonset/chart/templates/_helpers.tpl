{{/* The labels of every object of a component. Call it with the component's name. */}}
{{- define "nodeguard.labels" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: nodeguard
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

{{/* The directory where the aggregator finds the certificate of cert-manager. */}}
{{- define "nodeguard.certificateDirectory" -}}
/run/secrets/certificate
{{- end }}
