"""Notifications of incidents by webhook: settings, formats, the spool, and the sender."""
