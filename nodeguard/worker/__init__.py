"""Worker processes, the only ones that may block on hardware or a disk, and the lanes that supervise them."""
