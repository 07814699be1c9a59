"""Subcommands that fit into one file each."""
