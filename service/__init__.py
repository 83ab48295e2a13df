"""GPU capacity planning and total cost of ownership as a REST service."""

__version__ = "0.1.0"
