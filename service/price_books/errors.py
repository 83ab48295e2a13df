"""What the store of price books refuses; each message is a sentence that a caller can act on."""


class PriceBookError(Exception):
    """A request that cannot be answered; knows nothing of HTTP."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class PriceBookNotFound(PriceBookError):
    """The team has no such price book."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is no price book {key!r}")


class PriceBookExists(PriceBookError):
    """The team has a price book of that name already."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is a price book {key!r} already; replace it, or take another key")


class PriceBookChanged(PriceBookError):
    """The book is not in the state that the request names."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"price book {key!r} has changed since it was read; read it again and decide anew"
        )
