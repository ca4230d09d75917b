"""Profile of a running nodeguard: CPU time by part."""
