"""Identity of agents: the node that the token or the certificate of a request belongs to."""
