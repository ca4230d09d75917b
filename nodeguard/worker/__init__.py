"""The only processes that may block, on hardware or a disk, and the parent that keeps their deadlines."""
