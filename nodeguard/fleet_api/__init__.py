"""Responses of the API and the pages of the CLI: views of nodes, domains, incidents and status. Pure."""
