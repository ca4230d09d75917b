"""The aggregator's own certificate authority, and the certificate that it shows to agents."""
