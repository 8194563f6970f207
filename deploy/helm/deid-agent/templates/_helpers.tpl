{{- define "deid.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "deid.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "deid.labels" -}}
{{ include "deid.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* The termination grace period: agent.drain_s and 25 s. Kubernetes kills the pod after it. */}}
{{- define "deid.grace" -}}
{{- add (ceil (dig "agent" "drain_s" 20 .Values.settings)) 25 }}
{{- end }}

{{/* The transport of the outputs: kafka or mllp. */}}
{{- define "deid.output" -}}
{{- default .Values.settings.transport .Values.settings.output }}
{{- end }}

{{/* Not empty if the input or the output is Kafka. */}}
{{- define "deid.kafka" -}}
{{- if or (eq .Values.settings.transport "kafka") (eq (include "deid.output" .) "kafka") }}true{{ end }}
{{- end }}

{{/* The keys and values of one TOML table. Strings, numbers, booleans and lists have the same syntax in JSON and TOML. */}}
{{- define "deid.table" -}}
{{- range $key, $value := . }}
{{- if not (kindIs "map" $value) }}
{{ regexMatch "^[A-Za-z0-9_-]+$" $key | ternary $key ($key | toJson) }} = {{ $value | toJson }}
{{- end }}
{{- end }}
{{- end }}

{{- define "deid.toml" -}}
{{- $folder := "/run/secrets/deid" }}
{{- $all := deepCopy .Values.settings }}
{{- $_ := set $all "key_file" (printf "%s/deid.key" $folder) }}
{{- $routes := dict }}
{{- if include "deid.kafka" . }}
{{- $kafka := $all.kafka }}
{{- $routes = $kafka.routes }}
{{- $_ := unset $kafka "routes" }}
{{- if .Values.secrets.saslPassword.name }}
{{- $_ := set $kafka "sasl_password_file" (printf "%s/sasl-password" $folder) }}
{{- end }}
{{- if .Values.secrets.tls.name }}
{{- $_ := set $kafka "ssl_cafile" (printf "%s/ca.crt" $folder) }}
{{- if .Values.secrets.tls.clientCertificate }}
{{- $_ := set $kafka "ssl_certfile" (printf "%s/tls.crt" $folder) }}
{{- $_ := set $kafka "ssl_keyfile" (printf "%s/tls.key" $folder) }}
{{- end }}
{{- end }}
{{- else }}
{{- $_ := unset $all "kafka" }}
{{- end }}
{{- if eq .Values.settings.transport "mllp" }}
{{- $mllp := set (default dict $all.mllp) "dead_letters" "/var/lib/deid-agent/refused" }}
{{- $_ := set $mllp "host" .Values.mllp.host }}
{{- $_ := set $mllp "port" .Values.mllp.port }}
{{- if .Values.secrets.mllpTls.name }}
{{- $_ := set $mllp "tls_certfile" (printf "%s/mllp.crt" $folder) }}
{{- $_ := set $mllp "tls_keyfile" (printf "%s/mllp.key" $folder) }}
{{- if .Values.secrets.mllpTls.clientCertificates }}
{{- $_ := set $mllp "tls_client_cafile" (printf "%s/mllp-ca.crt" $folder) }}
{{- end }}
{{- end }}
{{- $_ := set $all "mllp" $mllp }}
{{- end }}
{{- if eq (include "deid.output" .) "mllp" }}
{{- if .Values.secrets.mllpOutTls.name }}
{{- $_ := set $all.mllp_out "tls" true }}
{{- $_ := set $all.mllp_out "tls_cafile" (printf "%s/mllp-out-ca.crt" $folder) }}
{{- if .Values.secrets.mllpOutTls.clientCertificate }}
{{- $_ := set $all.mllp_out "tls_certfile" (printf "%s/mllp-out.crt" $folder) }}
{{- $_ := set $all.mllp_out "tls_keyfile" (printf "%s/mllp-out.key" $folder) }}
{{- end }}
{{- end }}
{{- end }}
{{- $letters := set (default dict $all.dead_letters) "public_key" (printf "%s/dead-letters.key.pub" $folder) }}
{{- $_ := set $all "dead_letters" $letters }}
{{- $_ := set $all "audit" (set (default dict $all.audit) "path" "/var/lib/deid-agent/audit") }}
{{- $http := dict "enabled" true "host" .Values.http.host "port" .Values.http.port }}
{{- if .Values.secrets.consoleToken.name }}
{{- $_ := set $http "console" true }}
{{- $_ := set $http "console_token_file" (printf "%s/console.token" $folder) }}
{{- $_ := set $http "console_write" .Values.console.write }}
{{- $_ := set $http "console_playground" .Values.console.playground }}
{{- end }}
{{- $_ := set $all "http" $http }}
{{- include "deid.table" $all | trim }}
{{- range $section, $table := $all }}
{{- if kindIs "map" $table }}

[{{ $section }}]
{{ include "deid.table" $table | trim }}
{{- end }}
{{- end }}
{{- if $routes }}

[kafka.routes]
{{ include "deid.table" $routes | trim }}
{{- end }}
{{- end }}
