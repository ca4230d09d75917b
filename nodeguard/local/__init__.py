"""Resources of this machine that services share: Unix sockets, locks, file limits, files written whole."""
