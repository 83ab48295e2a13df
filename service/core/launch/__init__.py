"""Lines that start what a plan holds, what their logs should show, and when to worry."""
