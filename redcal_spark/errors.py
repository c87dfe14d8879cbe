"""What can go wrong, told to the person who can mend it."""

from __future__ import annotations


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


class ModelFileError(RedcalError):
    """A saved model that cannot be read: damaged, or of an unknown `schema_version`."""

    exit_code = 2


class RunError(RedcalError):
    """A run that failed though configuration and input were right."""


class ConflictError(RunError):
    """Another writer was quicker: nothing was written, and the same write may be tried again."""


class ScratchError(RunError):
    """Blocks in scratch that are not what was written. They can be made anew from the input."""


class GridWarning(UserWarning):
    """Something the user distinguished is equal on the integer grid."""


class ScoreWarning(UserWarning):
    """Scores that are legal but perhaps not meant, such as rows that do not sum to 1."""


class JoinWarning(UserWarning):
    """Rows that a join left out, as asked."""
