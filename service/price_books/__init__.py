"""Prices that a team has negotiated, in books of its own."""
