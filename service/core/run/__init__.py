"""One training run: what it is made of, how it is laid out, what it holds, how fast it is."""
