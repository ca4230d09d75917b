"""A real Kubernetes control plane without containers: built once, started in seconds, removed after its test."""
