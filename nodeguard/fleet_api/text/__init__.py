"""The views of the fleet as styled lines of text, for the terminal and the status page."""
