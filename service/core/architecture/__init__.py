"""Model architectures as layer groups; everything that sizes a model is summed from them."""
