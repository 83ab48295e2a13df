"""Pools hour by hour: apart or shared, sized or of a given size, and what their hours do."""
