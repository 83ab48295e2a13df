"""Stored plans: made once, never changed, read, listed, run again and compared."""
