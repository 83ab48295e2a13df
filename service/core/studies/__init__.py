"""Single questions about training: memory, a whole run, the network, failures."""
