"""Checks of a running server's promises."""
