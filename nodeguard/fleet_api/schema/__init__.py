"""Schemas of the responses of the fleet API: the JSON of the API and the input of the CLI output."""
