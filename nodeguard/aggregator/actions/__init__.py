"""The durable actions of an aggregator: their store, and the loop that carries them on."""
