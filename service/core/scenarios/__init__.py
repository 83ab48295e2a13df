"""The question: what must run, how the fleet is shared, how it is bought, over which months."""
