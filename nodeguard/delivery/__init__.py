"""Delivery of messages to webhooks: the queue, one attempt, and the loop. It does not interpret messages."""
