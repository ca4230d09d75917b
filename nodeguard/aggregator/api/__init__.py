"""What people on the aggregator's machine, or in its container, may ask of it: HTTP over a unix socket."""
