"""What each cloud tells its machines of maintenance: where it is asked for, and what the answers mean."""
