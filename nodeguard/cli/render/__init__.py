"""Text, JSON and Prometheus output of the commands."""
