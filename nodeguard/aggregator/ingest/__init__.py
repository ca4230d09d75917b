"""Ingest: the HTTPS server for the messages of agents, with limits."""
