"""The state of the fleet: nodes, latest reports, liveness, marks and topology, with their indexes."""
