"""Servers a user would run instead of ours, started the same way on the same machine."""
