"""What goes wrong with a database before any statement runs."""


class DatabaseError(Exception):
    """The database cannot be started, reached or migrated; the message says what to do about it."""
