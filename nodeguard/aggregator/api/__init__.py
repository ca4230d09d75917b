"""The HTTP API of the aggregator at a local socket."""
