"""What is refused when keys are managed."""


class AccessError(Exception):
    """A request about keys that cannot be followed; the message says what to change."""


class KeyNotFound(AccessError):
    """No key has this id."""
