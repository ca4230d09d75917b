"""The diagnosis: degraded failure domains and suppressed checks, from votes of nodes."""
