"""Terms on which GPUs are paid for, and the bills that they make."""
