"""Executors: each carries the decisions of the fleet half out in one place, such as Kubernetes."""
