"""The status page: HTML of the fleet, its incidents, nodes and domains, rendered on the server, read-only."""
