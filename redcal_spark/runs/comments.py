"""Comments of the tables beside the rows, for those who find them in a catalog.

The words are those of docs/reference/outputs.md.
"""

from __future__ import annotations

from redcal_spark.backends.comments import Comments

SEGMENT = {
    "segment": "the column of a segment; null: of all rows",
    "segment_kind": "what its value is: value, null, or other for all that are not listed",
    "segment_value": "the value",
}

PATCHES = Comments(
    "The patch log of redcal: one row per patch",
    {
        "run_id": "the run",
        "step": "0, 1, 2 ... through the whole log",
        "round": "the round of ReDCal or Reconcile; null: calibrated everywhere",
        "kind": "reconcile (first patch of a round), calibrate, or score (procedure Reconcile)",
        "model": "the model that is patched, from 1",
        "other": "the model that it disagreed with; null: calibrated",
        "loss": "the loss of the disagreement, or of the calibration",
        "a1": "action of the first of the two models in the disagreement, by index",
        "a2": "action of the second one",
        "action": "calibrate: rows whose best action is this one",
        "coordinate": "score: the class",
        "direction": "score: > where the first of the two is above, < where it is below",
        "rows": "fitting rows that it moved",
        "phi": "what is added to each class, in units of 2^-26",
    },
)

HISTORY = Comments(
    "What redcal measured: one row per round, split, loss and model",
    {
        "run_id": "the run",
        "split": "fitting or holdout rows",
        "step": "patches so far",
        "round": "rounds so far",
        "model": "the model, from 1",
        "loss": "null where a run has no losses",
        "rows": "rows of the split",
        "brier": "mean Brier score, summed over classes; of one column P(1) twice the mean",
        "brier_sum": "its exact sum, in units of 2^-52",
        "decision_loss": "mean cost of the decisions, in your units",
        "loss_gap": "mean cost above the decisions of somebody who knows the outcome",
        "largest_event": "share of rows in the largest disagreement event",
        "largest_event_rows": "its rows",
        "disagreement": "share of rows on which the models' actions differ",
        "disagreement_rows": "these rows",
        "calibration_gap": "how far the model is off for an action, at most",
    }
    | SEGMENT,
)

METRICS = Comments(
    "What runs of redcal took and achieved: one row per number",
    {
        "run_id": "the run",
        "command": "run, fit, apply",
        "status": "how it ended",
        "measured_at": "when",
        "kind": "see above",
        "name": "what is measured",
        "number": "the place of a pass",
        "split": "of quality: fitting or holdout rows",
        "stage": "of quality: before or after",
        "model": "the model, from 1, where it is of one",
        "loss": "where it is of one loss",
        "value": "the number",
        "counted": "the same as an integer, or its rows",
        "bytes": "of packed rows",
    }
    | SEGMENT,
)

RUNS = Comments(
    "The ledger of redcal: one row per run",
    {
        "run_id": "sorts by time",
        "fingerprint": "digest of configuration, losses and input versions",
        "config_digest": "digest of the configuration",
        "command": "run, fit, apply or a stream",
        "status": "running, failed, converged, capped, stalled, cut",
        "started_at": "when it began",
        "finished_at": "when it ended; null while it runs",
        "holder": "machine and process that work on it, or did last",
        "heartbeat": "its last sign of life",
        "claim": "its token: a process with another one may not change the row",
        "previous_claim": "the token before: a row with another claim is not replaced",
        "rows": "rows read; of an apply with rows: all, rows written",
        "fit_rows": "fitting rows",
        "holdout_rows": "holdout rows",
        "unlabelled_rows": "rows without a label",
        "bad_rows": "rows that were skipped",
        "patches": "patches of its log",
        "rounds": "rounds",
        "progress": "JSON: what a resumed run must know beside its patches",
        "beta": "the tolerance that auto stood for",
        "config": "JSON, as written: variables are not resolved",
        "inputs": "JSON: Delta versions, or files",
        "model": "JSON: the model without its log",
        "outputs": "JSON: the version of each table; null until all are written",
        "metrics": "JSON: before and after, both splits",
        "certificate": "JSON: every statement, its bound and what was measured",
        "audits": "JSON: per split, the audit before and after",
        "counters": "JSON: jobs, rows scanned, rows written, bytes of scratch, passes",
        "timings": "JSON: seconds per phase",
        "error": "why it failed",
        "package_version": "the version of redcal_spark that wrote it",
        "exports": "JSON: files made of this run, with a digest of each",
        "pruned_at": "when its patches, history and metrics were removed",
        "measured": "JSON: what metrics says of times and counters, which nobody can measure again",
        "digests": "JSON: a digest of every other column of this row, as it was written",
    },
)
