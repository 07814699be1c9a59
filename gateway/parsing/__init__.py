"""From an answer's text to reasoning, content and tool calls, piece by piece."""
