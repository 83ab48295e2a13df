"""How near the estimates come to published and measured results: rows in, a report out."""
