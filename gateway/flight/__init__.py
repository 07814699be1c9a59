"""Requests on their way: what was asked, what has arrived, and what may still go wrong."""
