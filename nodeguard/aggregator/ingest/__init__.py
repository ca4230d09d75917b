"""What agents send: taken over HTTPS from who may speak, within limits, and handed on."""
