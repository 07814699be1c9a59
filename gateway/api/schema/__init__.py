"""From JSON to valid requests. Every error names the field."""
