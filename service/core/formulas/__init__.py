"""Pure functions, one topic a file: plain numbers or numpy arrays in, the same shape out."""
