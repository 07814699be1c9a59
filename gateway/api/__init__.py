"""The doors: what clients may send, and how answers are spelled."""
