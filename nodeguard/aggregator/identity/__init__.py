"""Who an agent is: the node that its token, or its certificate, speaks for."""
