"""The hours of a plan: demand through the day, and GPUs that go back and forth."""
