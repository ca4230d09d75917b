"""The plain manifests of daemonset/, rendered from the Helm chart."""
