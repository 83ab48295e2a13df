"""Errors that the core raises; each names what is wrong and where, none knows of HTTP."""


class CoreError(Exception):
    """A request that the core cannot take; `pointer` is the JSON pointer of the field at fault."""

    def __init__(self, message: str, *, pointer: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer


class UnknownKey(CoreError):
    """A key that the catalog release does not hold."""

    def __init__(
        self, kind: str, key: str, *, release: str, pointer: str = "", hint: str = ""
    ) -> None:
        message = f"catalog release {release} has no {kind} {key!r}"
        super().__init__(f"{message}; {hint}" if hint else message, pointer=pointer)
        self.kind = kind
        self.key = key


class InvalidScenario(CoreError):
    """Fields that are each fine and contradict one another."""


class NotWritable(CoreError):
    """A stored plan that cannot be written in the form that is asked for."""


class NoConstants(CoreError):
    """A GPU class without any constants for what is asked: no number is better than a guess."""
