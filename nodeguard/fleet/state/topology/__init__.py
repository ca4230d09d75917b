"""Views: in which ways nodes share something, and which nodes share what. Pure."""
