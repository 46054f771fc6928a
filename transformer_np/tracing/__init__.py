"""What happened inside: every intermediate of a forward and a backward, by name and in order."""
