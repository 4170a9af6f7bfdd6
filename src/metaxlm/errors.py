"""The one exception that means "the user can fix this".

Everything a user can get wrong (a recipe key, a file, a folder, a size) raises `MetaXLMError` with
a message that says what was found, where, and what to do. The command line prints the message in
one line and exits with code 2; any other exception is a bug of ours and keeps its traceback.
"""

_MAX_CHARACTERS = 2_000


class MetaXLMError(Exception):
    """A mistake in the input, told in one line: what was found, where, and what to do."""

    def __init__(self, message: str = "") -> None:
        """Keep the message; leave out the middle of one that quotes a long part of a file."""
        if len(message) > _MAX_CHARACTERS:
            half = _MAX_CHARACTERS // 2
            message = f"{message[:half]} ... {message[-half:]}"
        super().__init__(message)


class UnmetError(MetaXLMError):
    """One of several processes cannot reach the others, so that each tells what it found."""


class Diverged(MetaXLMError):
    """A training went wrong by its own numbers; others of the same run may go well."""


class Interrupted(Exception):
    """The user or the system asked to stop; what was done is saved, and a new start continues."""
