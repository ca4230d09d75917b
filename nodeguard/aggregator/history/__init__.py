"""What was told of the fleet, kept in a file of each replica's own. Losing it loses nothing that is safe."""
