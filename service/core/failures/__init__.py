"""How often a training run stops, what a stop costs, and what would make it end."""
