"""Backends: read nodes and operators' decisions, and apply plans; in Kubernetes or standalone."""
