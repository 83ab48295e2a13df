"""The questions about money alone: owning a fleet, and when serving overtakes training."""
