"""Sockets at which people on this machine ask its services for something."""
