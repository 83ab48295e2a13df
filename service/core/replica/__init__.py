"""One serving replica in numbers: constants, shape on its GPUs, speed, search of its layout."""
