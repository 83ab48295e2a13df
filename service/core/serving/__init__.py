"""Single estimates of serving: memory, speed, rooflines, and the cheapest size for a load."""
