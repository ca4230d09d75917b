"""The serving certificate of the aggregator: from files, or issued by its self-signed authority."""
