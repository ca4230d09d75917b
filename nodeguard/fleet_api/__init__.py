"""Responses of the API, and the views of nodes, domains, incidents and status that show them. Pure."""
