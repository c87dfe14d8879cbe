"""`redcal tune`: the candidates of `eta: auto` on a configuration's rows, and what to write."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from redcal_spark.core.parameters import Parameters
from redcal_spark.core.problem import Problem
from redcal_spark.core.tuned import Candidate, Tuned
from redcal_spark.errors import UsageError
from redcal_spark.model.tune import tune
from redcal_spark.runs.job import Job


@dataclass(frozen=True)
class Tuning:
    """All candidates, and the problem that they are of. given: the parameters as configured."""

    tuned: Tuned
    problem: Problem
    given: Parameters

    @property
    def chosen(self) -> Candidate:
        return self.tuned.chosen

    @property
    def eta(self) -> float:
        return self.chosen.eta

    @property
    def beta(self) -> float:
        return self.beta_of(self.chosen)

    def beta_of(self, candidate: Candidate) -> float:
        """A candidate's beta for all fitting rows."""
        rows = self.tuned.effective
        numbers = self.problem.parameters.candidate(candidate.eta, candidate.stretch, rows)
        beta = numbers.beta
        return float(numbers.auto_beta(rows)) if beta == "auto" else beta

    def mean_loss(self, loss: Fraction) -> Fraction:
        """Of a row, a loss and a model, each loss rescaled to [0, 1]."""
        models = self.problem.columns.n_models
        return loss / (self.tuned.rows * len(self.problem.losses) * models)

    @property
    def values(self) -> dict[str, str]:
        """What to write into the section `reconcile` for this choice."""
        eta = f"{self.eta:g}"
        if self.chosen.stretch is None:
            return {"eta": eta}
        return {"eta": eta, "beta": "auto" if self.chosen.stretch == 1 else f"{self.beta:g}"}

    def to_json(self) -> dict[str, Any]:
        """Plain data: exact losses are text."""
        means = [float(self.mean_loss(each.loss)) for each in self.tuned.candidates]
        betas = [self.beta_of(candidate) for candidate in self.tuned.candidates]
        return {
            "eta": self.eta,
            "beta": self.beta,
            "rule": self.chosen.rule,
            "mean_losses": means,
            "mean_loss_before": float(self.mean_loss(self.tuned.before.loss)),
            "betas": betas,
            "tuned": self.tuned.to_json(),
        }


def tune_job(job: Job) -> Tuning:
    """Try all candidates on a configuration's fitting rows; no table is written."""
    given = job.problem.parameters
    if not given.reconciles_decisions:
        raise UsageError(
            f"redcal tune chooses eta for redcal and dc_then_redcal; reconcile.algorithm is "
            f"{given.algorithm}: say --set reconcile.algorithm=redcal"
        )
    problem = replace(job.problem, parameters=replace(given, eta="auto"))
    job.check_input(problem=problem)
    scan = job.scan(problem)
    try:
        with job.listener.during("tune"):
            return Tuning(tune(problem, scan, job.listener.candidate), problem, given)
    finally:
        scan.close()
