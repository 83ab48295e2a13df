"""Single questions about a fleet: what a trace asks for, and pools apart beside pools shared."""
