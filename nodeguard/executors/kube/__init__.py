"""Decisions in the terms of Kubernetes: taints, annotation, condition, cordon and DeviceTaintRules. Pure."""
