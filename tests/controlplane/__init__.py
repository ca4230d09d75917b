"""A real Kubernetes control plane without containers: built here, started in seconds, gone with its test."""
