"""Parameters as scikit-learn's tools expect them: had by name, set by name, cloned, shown."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import Any, Self

from redcal_spark.errors import UsageError

SHOWN = 60  # letters of a value


class Params:
    """An object that knows the arguments it was made with, as they were given."""

    _given: dict[str, Any]

    def _keep(self, arguments: Mapping[str, Any]) -> None:
        """To be called first, with `locals()`: later on, names may mean something else."""
        names = signature(type(self)).parameters
        self._given = {name: arguments[name] for name in names}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name, as they were given; `sklearn.base.clone` needs no more.

        ```python
        reconciler.get_params()["eta"]
        ```
        """
        return dict(self._given)

    def set_params(self, **given: Any) -> Self:
        """Change parameters by name; what was fitted is forgotten.

        ```python
        pair = reconciler.set_params(eta=0.05).fit(p1, p2, y)
        ```
        """
        unknown = given.keys() - self._given.keys()
        if unknown:
            raise UsageError(
                f"set_params: no parameter {', '.join(map(repr, sorted(unknown)))}; there are: "
                f"{', '.join(self._given)}"
            )
        new = type(self)(**(self._given | given))
        vars(self).clear()
        vars(self).update(vars(new))
        return self

    def __repr__(self) -> str:
        """One line: what was given and is not the default."""
        defaults = {name: one.default for name, one in signature(type(self)).parameters.items()}
        parts = []
        for name, value in self._given.items():
            if value is not defaults[name] and not _equal(value, defaults[name]):
                parts.append(f"{name}={_short(value)}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks of a step of a pipeline."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=True),
            transformer_tags=TransformerTags(preserves_dtype=[]),
            input_tags=InputTags(),
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "pair_")


def _equal(one: Any, two: Any) -> bool:
    return isinstance(one, str | int | float | bool) and type(one) is type(two) and bool(one == two)


def _short(value: Any) -> str:
    if isinstance(value, Mapping):  # of losses: their names say more than their numbers
        value = list(value)
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
