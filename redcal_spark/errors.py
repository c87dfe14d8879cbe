"""What can go wrong, for the person who can mend it."""

from __future__ import annotations

import sys
import warnings


class RedcalError(Exception):
    """Base of every error this package raises on purpose; its text is meant for the user.

    `exit_code` is what the command line returns for it.
    """

    exit_code = 1


class UsageError(RedcalError):
    """A wrong argument, option or configuration."""

    exit_code = 2


class InputError(RedcalError):
    """Data that cannot be used: bad values, missing columns, wrong shapes."""

    exit_code = 2


class SeparatorError(InputError):
    """A CSV file without the separator. likely: what seems to be it."""

    def __init__(self, text: str, likely: str | None):
        super().__init__(text)
        self.likely = likely


class ModelFileError(RedcalError):
    """A saved model that cannot be read: damaged, or of an unknown `schema_version`."""

    exit_code = 2


class RunError(RedcalError):
    """A run that failed though configuration and input were right."""


class StoreDownError(RunError):
    """An object store that does not answer, or says that it cannot: later the same may work."""


class ConflictError(RunError):
    """Another writer was quicker: nothing was written, and the same write may be tried again."""


class ScratchError(RunError):
    """Blocks in scratch that are not what was written. They can be made anew from the input."""


class RedcalWarning(UserWarning):
    """Base class of all warnings of this package."""


class GridWarning(RedcalWarning):
    """Something the user distinguished is equal on the integer grid."""


class ScoreWarning(RedcalWarning):
    """Scores that are legal but perhaps not meant, such as rows that do not sum to 1."""


class FitWarning(RedcalWarning):
    """A fit that is legal but perhaps not meant: few rows, one class, costs that are all alike."""


class JoinWarning(RedcalWarning):
    """Rows that a join left out, as asked."""


def warn(text: str, category: type[UserWarning]) -> None:
    """Warn at the line outside of this package that led here: that is the user's."""
    level, frame = 1, sys._getframe()
    package = __name__.partition(".")[0]
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(package):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
