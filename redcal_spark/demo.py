"""The demo: two triage models that are equally good and send patients different ways."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

CONDITIONS = ("nothing_serious", "infection", "heart_failure", "pneumonia", "sepsis")
ROWS = 200_000
MOST_ROWS = 10_000_000  # more than a minute, and a gigabyte
SEED = 20_240

CONFIG = """\
# yaml-language-server: $schema=schema.json
# Two triage models have scored 200,000 patients; `redcal demo` writes them.
input:
  table: out/demo/patients
  id: patient_id
  label: condition
  classes: [nothing_serious, infection, heart_failure, pneumonia, sepsis]
  model_1: model_vitals
  model_2: model_notes
  split: {column: cohort, fit: fit, holdout: holdout}

losses:
  triage:
    actions: [send_home, observe, admit]
    costs:                 # nothing_serious, infection, heart_failure, pneumonia, sepsis
      - [0.0, 2.0, 8.0, 6.0, 20.0]
      - [1.0, 0.5, 3.0, 2.0, 8.0]
      - [3.0, 2.0, 0.5, 0.5, 0.5]

reconcile: {algorithm: redcal, alpha: 0.005, eta: 0.005}

output: {table: out/demo/triage}
"""

SCHEMA = pa.schema(
    [
        ("patient_id", pa.int64()),
        ("cohort", pa.string()),
        ("age", pa.int32()),
        ("condition", pa.string()),
        ("model_vitals", pa.list_(pa.float64())),
        ("model_notes", pa.list_(pa.float64())),
    ]
)


def patients(rows: int = ROWS, seed: int = SEED) -> Iterator[pa.RecordBatch]:
    """Patients with a condition, and what two models make of them.

    Each model sees the truth through a blur of its own: one reads vital signs and mistakes sepsis
    for infection, the other reads notes and mistakes heart failure for pneumonia.
    """
    rng = np.random.default_rng(seed)
    prior = np.log([0.46, 0.22, 0.12, 0.13, 0.07])
    for start in range(0, rows, 50_000):
        n = min(50_000, rows - start)
        age = np.clip(rng.normal(58, 19, n), 1, 102).astype(np.int32)
        older = np.outer((age - 58) / 40, [-1, 0, 0.8, 0.4, 0.5])
        signal = prior + older + rng.normal(0, 2.2, (n, 5))
        truth = _softmax(signal)
        condition = (truth.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(0, 4)
        vitals = _seen(rng, signal, confused=(1, 4), noise=0.5)
        notes = _seen(rng, signal, confused=(2, 3), noise=0.5)
        cohort = np.where(rng.random(n) < 0.5, "fit", "holdout")
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(np.arange(start, start + n)),
                pa.array(cohort),
                pa.array(age),
                pa.array(np.array(CONDITIONS)[condition]),
                _lists(vitals),
                _lists(notes),
            ],
            schema=SCHEMA,
        )


def _seen(
    rng: np.random.Generator, signal: np.ndarray, confused: tuple[int, int], noise: float
) -> np.ndarray:
    """Scores of a model that blurs two conditions and is a little too sure of itself."""
    blurred = signal + rng.normal(0, noise, signal.shape)
    one, two = confused
    middle = (blurred[:, one] + blurred[:, two]) / 2
    blurred[:, one] = 0.35 * blurred[:, one] + 0.65 * middle
    blurred[:, two] = 0.35 * blurred[:, two] + 0.65 * middle
    return _softmax(1.15 * blurred)


def _softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True))


def _lists(values: np.ndarray) -> pa.Array:
    n, d = values.shape
    offsets = pa.array(np.arange(n + 1, dtype=np.int32) * d)
    return pa.ListArray.from_arrays(offsets, pa.array(values.reshape(-1)))
