"""Schemas of the fleet API's responses: the JSON of the API, and what the CLI renders."""
