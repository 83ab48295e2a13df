"""Rows of serving results: resolved, predicted as they were run, scored, and fitted."""
