"""Constrained decoding: grammars compiled once, followed by one matcher per choice."""
