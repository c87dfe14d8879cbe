"""Settings by the names that whoever reads a message knows them by.

The same code serves Python, where people give arguments, and jobs, which have a configuration. A
message names a setting by `setting`, and the call decides which name that is: within a public
method of the package it is the argument, anywhere else the key of the configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

MAX_CLASSES = 16_384  # up to which products of scores and costs are exact
MAX_MODELS = 16
TUNE_ROWS = 1_000_000  # active fitting rows that `eta: auto` looks at, at most

P = ParamSpec("P")
T = TypeVar("T")

# Arguments in Python, and the keys of a configuration that mean the same.
KEYS = {
    "losses": "losses",
    "model_1": "input.model_1",
    "model_2": "input.model_2",
    "models": "input.models",
    "label": "input.label",
    "id": "input.id",
    "classes": "input.classes",
    "on_bad_rows": "input.on_bad_rows",
    "missing_model": "input.missing_model",
    "algorithm": "reconcile.algorithm",
    "alpha": "reconcile.alpha",
    "eta": "reconcile.eta",
    "beta": "reconcile.beta",
    "adaptive_beta": "reconcile.adaptive_beta",
    "grid_bits": "reconcile.grid_bits",
    "max_rounds": "reconcile.max_rounds",
    "max_steps": "reconcile.max_steps",
    "delta": "reconcile.delta",
    "tune_rows": "reconcile.tune_rows",
    "guard": "reconcile.guard",
    "suffix": "output.suffix",
    "normalise": "output.normalise",
    "tie": "output.tie",
    "engine": "engine.name",
    "threads": "engine.threads",
    "scratch": "engine.scratch",
    "driver_budget": "engine.driver_budget",
}
DriverBudget = int | Literal["auto"]  # bytes of active rows that Spark's driver takes over
DRIVER_BUDGET = 256 * 2**20  # where the driver's memory is not known

_names: ContextVar[Literal["python", "config"] | None] = ContextVar("names", default=None)
_NO_VALUE: Any = object()


def setting(name: str, value: Any = _NO_VALUE) -> str:
    """A setting as the reader writes it: `suffix='_v2'`, or `output.suffix: _v2`."""
    python = _names.get() == "python"
    called = name if python else KEYS[name]
    if value is _NO_VALUE:
        return called
    return f"{called}={value!r}" if python else f"{called}: {value}"


def called_from_python(method: Callable[P, T]) -> Callable[P, T]:
    """A public method: its messages name arguments, unless a job calls it."""

    @wraps(method)
    def named(*args: P.args, **kwargs: P.kwargs) -> T:
        if _names.get() is not None:
            return method(*args, **kwargs)
        token = _names.set("python")
        try:
            return method(*args, **kwargs)
        finally:
            _names.reset(token)

    return named


@contextmanager
def of_a_job() -> Iterator[None]:
    """Within this, messages name keys of the configuration, whatever is called."""
    token = _names.set("config")
    try:
        yield
    finally:
        _names.reset(token)


def only_redcal_tunes(algorithm: str) -> str:
    """Why an algorithm knows no `eta: auto`, and what to do."""
    return (
        f"for redcal and dc_then_redcal, whose losses it compares; {algorithm} needs a number"
        if algorithm == "reconcile"
        else f"for redcal and dc_then_redcal; {algorithm} has no use for eta: leave it out"
    )
