"""The diagnosis: degraded failure domains, suppressed checks and repeat offenders, from votes of nodes."""
