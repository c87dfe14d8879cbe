"""ReDCal in Spark as one would write it first: array columns, pandas_udf, groupBy, withColumn."""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

Floats = npt.NDArray[np.float64]
pandas_udf: Any = getattr(f, "pandas_udf")  # noqa: B009 (its stubs do not export it)


class Obvious:
    """Every step a groupBy over all rows; a checkpoint every five, or plans grow without end."""

    def __init__(self, frame: DataFrame, costs: Floats, alpha: float, eta: float, beta: float):
        self.costs = (costs - costs.min()) / (costs.max() - costs.min())
        self.alpha, self.eta, self.beta = alpha, eta, beta
        self.d = self.costs.shape[1]
        self.frame = frame.select(
            "label",
            f.col("scores_a").alias("f1"),
            f.col("scores_b").alias("f2"),
            f.lit(False).alias("e"),
        )
        self.rows = self.frame.count()
        self.seconds: list[float] = []

    def run(self, steps: int) -> None:
        """That many patches, or fewer if it converges."""
        start = perf_counter()
        for _ in self._steps():
            if len(self.seconds) % 5 == 4:
                self.frame = self.frame.checkpoint()
            self.seconds.append(perf_counter() - start)
            start = perf_counter()
            if len(self.seconds) == steps:
                return

    def _steps(self) -> Iterator[None]:
        while True:
            coded = self.frame.withColumn("code", self._events()("f1", "f2"))
            counts = {r["code"]: r["count"] for r in coded.groupBy("code").count().collect()}
            counts.pop(-1, None)
            code = max(counts, key=lambda c: (counts[c], -c), default=None)
            if code is None or counts[code] < self.eta * self.rows:
                return
            chosen = coded.where(f.col("code") == code)
            means = self._means(chosen, ("f1", "f2"))
            a1, a2 = divmod(code, len(self.costs))
            difference = self.costs[a1] - self.costs[a2]
            off = [abs(float((means["y"] - means[c]) @ difference)) for c in ("f1", "f2")]
            model = "f1" if off[0] >= off[1] else "f2"
            event = coded.withColumn("e", f.col("code") == code).drop("code")
            self.frame = self._patched(event, model, f.col("e"), means["y"] - means[model])
            yield
            yield from self._calibrate(model)

    def _calibrate(self, model: str) -> Iterator[None]:
        while True:
            acted = self.frame.withColumn("action", self._actions()(model))
            sums = [
                f.sum(f.when(f.col("label") == j, 1.0).otherwise(0.0) - f.col(model)[j]).alias(
                    f"r{j}"
                )
                for j in range(self.d)
            ]
            found = acted.where("e").groupBy("action").agg(f.count("*").alias("n"), *sums).collect()
            best = max(found, key=lambda r: sum(r[f"r{j}"] ** 2 for j in range(self.d)))
            residual = np.array([best[f"r{j}"] for j in range(self.d)])
            if np.sqrt(residual @ residual) <= self.beta * self.rows:
                return
            where = f.col("e") & (f.col("action") == best["action"])
            self.frame = self._patched(acted, model, where, residual / best["n"]).drop("action")
            yield

    def _patched(self, frame: DataFrame, model: str, where: Any, phi: Floats) -> DataFrame:
        def patch(scores: pd.Series, chosen: pd.Series) -> pd.Series:
            rows = np.stack(list(scores))
            rows = np.where(chosen.to_numpy()[:, None], np.clip(rows + phi, 0, 1), rows)
            return pd.Series(list(rows))

        return frame.withColumn(model, pandas_udf(patch, "array<double>")(f.col(model), where))

    def _means(self, frame: DataFrame, models: tuple[str, ...]) -> dict[str, Floats]:
        terms = [f.avg((f.col("label") == j).cast("double")).alias(f"y{j}") for j in range(self.d)]
        for model in models:
            terms += [f.avg(f.col(model)[j]).alias(f"{model}{j}") for j in range(self.d)]
        row = frame.agg(*terms).collect()[0]
        return {
            name: np.array([row[f"{name}{j}"] for j in range(self.d)]) for name in ("y", *models)
        }

    def _actions(self) -> Any:
        costs = self.costs

        def respond(scores: pd.Series) -> pd.Series:
            return pd.Series((np.stack(list(scores)) @ costs.T).argmin(axis=1))

        return pandas_udf(respond, "int")

    def _events(self) -> Any:
        costs, alpha = self.costs, self.alpha

        def event(one: pd.Series, two: pd.Series) -> pd.Series:
            s1, s2 = np.stack(list(one)) @ costs.T, np.stack(list(two)) @ costs.T
            a1, a2 = s1.argmin(axis=1), s2.argmin(axis=1)
            at = np.arange(len(a1))
            sure = (s1[at, a2] - s1[at, a1] > alpha) | (s2[at, a1] - s2[at, a2] > alpha)
            return pd.Series(np.where(sure & (a1 != a2), a1 * len(costs) + a2, -1))

        return pandas_udf(event, "int")
