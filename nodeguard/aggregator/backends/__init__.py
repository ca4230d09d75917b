"""What an aggregator acts in: a cluster of Kubernetes, or none."""
