"""How many GPUs a run takes, or how many tokens they train on: what is solved for."""
