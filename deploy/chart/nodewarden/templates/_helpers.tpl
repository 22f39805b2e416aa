{{/* Labels of every object. They are never part of a selector: those are nodewarden.selector. */}}
{{- define "nodewarden.labels" -}}
app.kubernetes.io/name: nodewarden
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{- end }}

{{/* Names of accounts, Secrets and the namespace are fixed in the product: admission policies and rights name them. */}}
{{- define "nodewarden.checked" -}}
{{- if ne .Release.Namespace "nodewarden" -}}
{{- fail (printf "expected --namespace nodewarden, got %s: accounts, rights and admission policies name that namespace" .Release.Namespace) -}}
{{- end -}}
{{- $roles := list -}}
{{- range .Values.workers }}{{ $roles = append $roles .role }}{{ end -}}
{{- if and (has "all" $roles) (gt (len (uniq $roles)) 1) -}}
{{- fail "workers: expected one with the role all, or some of cluster, power and workflows" -}}
{{- end -}}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.proxy.image) -}}
{{- fail "metrics.serviceMonitor: expected metrics.proxy.image as well, since workers serve metrics on their pod's loopback only" -}}
{{- end -}}
{{- if and .Values.versioning.previous (not .Values.versioning.deployment) -}}
{{- fail "versioning.previous: expected versioning.deployment as well" -}}
{{- end -}}
{{- with .Values.ui -}}
{{- if and .enabled (eq (empty .tls.secretName) (not .behindProxy)) -}}
{{- fail "ui: expected tls.secretName or behindProxy, and not both: people send their tokens to it" -}}
{{- end -}}
{{- if and .enabled (gt (int .replicas) 1) (not .sessionKeys) -}}
{{- fail "ui.replicas: expected sessionKeys as well, with which each of them knows the others' browsers" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Call with repository, tag and digest. */}}
{{- define "nodewarden.image" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}

{{/* The ServiceAccount of a role, which is also the name of its ClusterRole. Call with the role. */}}
{{- define "nodewarden.account" -}}
{{- ternary "nodewarden" (printf "nodewarden-%s" .) (eq . "all") -}}
{{- end }}

{{/* A worker's Deployment: its account's name, with the site of a power worker. Call with the worker. */}}
{{- define "nodewarden.workerName" -}}
{{- include "nodewarden.account" .role }}{{ with .site }}-{{ . }}{{ end -}}
{{- end }}

{{/* The build that is current, "" for unversioned workers; and a build as part of a name. */}}
{{- define "nodewarden.build" -}}
{{- if .Values.versioning.deployment }}{{ .Values.versioning.buildId | default .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end }}
{{- define "nodewarden.buildName" -}}
{{- lower . | replace "_" "-" | replace "+" "-" | replace "." "-" -}}
{{- end }}

{{/* What a selector says: never more than this, since a Deployment's selector cannot change. Call with the worker. */}}
{{- define "nodewarden.selector" -}}
app.kubernetes.io/name: nodewarden
app.kubernetes.io/component: {{ include "nodewarden.workerName" . }}
{{- end }}

{{/* nodewarden.yaml: the values' settings, and where this chart has mounted Secrets. */}}
{{- define "nodewarden.settings" -}}
{{- include "nodewarden.checked" . -}}
{{- $temporal := dict -}}
{{- if .Values.secrets.temporalApiKey }}{{ $_ := set $temporal "api_key_file" "/etc/nodewarden/temporal-api-key/api-key" }}{{ end -}}
{{- if .Values.secrets.temporalTls -}}
{{- $_ := set $temporal "tls_client_cert_file" "/etc/nodewarden/temporal-tls/tls.crt" -}}
{{- $_ := set $temporal "tls_client_key_file" "/etc/nodewarden/temporal-tls/tls.key" -}}
{{- end -}}
{{- if .Values.secrets.temporalCa }}{{ $_ := set $temporal "tls_server_ca_file" "/etc/nodewarden/temporal-ca/ca.crt" }}{{ end -}}
{{- if .Values.keys.encryptPayloads }}{{ $_ := set $temporal "payload_keys_secret" "nodewarden/nodewarden-payload-keys" }}{{ end -}}
{{- $added := dict "temporal" $temporal -}}
{{- with .Values.secrets.notifications -}}
{{- $told := $.Values.settings.notifications | default list -}}
{{- range . -}}
{{- $told = append $told (merge (dict "url_file" (printf "/etc/nodewarden/notifications/%s/urls" .secret)) (omit . "secret")) -}}
{{- end -}}
{{- $_ := set $added "notifications" $told -}}
{{- end -}}
{{- mergeOverwrite (deepCopy .Values.settings) $added | toYaml -}}
{{- end }}

{{/* The same for the page, which sends no notifications and may read no Secret: keys are a file there. */}}
{{- define "nodewarden.pageSettings" -}}
{{- $settings := include "nodewarden.settings" . | fromYaml -}}
{{- if .Values.keys.encryptPayloads -}}
{{- $temporal := omit $settings.temporal "payload_keys_secret" -}}
{{- $_ := set $settings "temporal" (set $temporal "payload_keys_file" "/etc/nodewarden/payload-keys") -}}
{{- end -}}
{{- omit $settings "notifications" "metrics" | toYaml -}}
{{- end }}

{{/* Secrets that settings.temporal names, as sources of the volume below /etc/nodewarden. */}}
{{- define "nodewarden.temporalSecrets" -}}
{{- with .Values.secrets.temporalApiKey }}
- secret: {name: {{ . }}, items: [{key: api-key, path: temporal-api-key/api-key}]}
{{- end }}
{{- with .Values.secrets.temporalTls }}
- secret: {name: {{ . }}, items: [{key: tls.crt, path: temporal-tls/tls.crt}, {key: tls.key, path: temporal-tls/tls.key}]}
{{- end }}
{{- with .Values.secrets.temporalCa }}
- secret: {name: {{ . }}, items: [{key: ca.crt, path: temporal-ca/ca.crt}]}
{{- end }}
{{- end }}

{{/* What every pod of ours connects to. */}}
{{- define "nodewarden.egress" -}}
{{- with .Values.network -}}
# Names. Caches on nodes have addresses of no pod.
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: UDP, port: 5353}
    - {protocol: TCP, port: 53}
    - {protocol: TCP, port: 5353}
# API servers, before and behind their Service.
- {{- with .api }}
  to:
    {{- range . }}
    - ipBlock: {cidr: {{ . | quote }}}
    {{- end }}
  {{- end }}
  ports:
    - {protocol: TCP, port: 443}
    - {protocol: TCP, port: 6443}
# Temporal's frontend.
- to:
    {{- if contains "/" .temporal }}
    - ipBlock: {cidr: {{ .temporal | quote }}}
    {{- else }}
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ .temporal }}}}
    {{- end }}
  ports:
    - {protocol: TCP, port: 7233}
{{- end }}
{{- end }}

{{/* The securityContext of every container. The pod's own says the rest of the profile "restricted". */}}
{{- define "nodewarden.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
