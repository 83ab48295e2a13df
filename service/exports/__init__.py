"""Tables that leave the service as CSV: columns are declared, rows come from the caller."""
