# Databricks notebook source
# MAGIC %md
# MAGIC # Choosing alpha, eta and beta
# MAGIC
# MAGIC Three numbers decide how far the reconciliation goes. Each has a price. This notebook fits
# MAGIC the same two models with many values of each and shows, on patients that the fit never saw,
# MAGIC what you get and what you pay.
# MAGIC
# MAGIC | | small | large |
# MAGIC |---|---|---|
# MAGIC | `alpha` | differences worth pennies count | only dear disagreements are mended |
# MAGIC | `eta` | small groups count: more patches, from fewer rows | only large groups are mended |
# MAGIC | `beta` | many small patches, of noise in the end | models stay wrong where they decide |
# MAGIC
# MAGIC It computes in memory; put your own scores in place of the demo's.

# COMMAND ----------

import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyarrow as pa

from redcal_spark import Reconciler
from redcal_spark.demo import CONDITIONS, SCHEMA, patients

if "display" not in globals():  # not on Databricks
    from redcal_spark.notebook import display

costs = np.array([[0.0, 2.0, 8.0, 6.0, 20.0], [1.0, 0.5, 3.0, 2.0, 8.0], [3.0, 2.0, 0.5, 0.5, 0.5]])
table = pa.Table.from_batches(patients(24_000), SCHEMA).to_pandas()
label = table["condition"].map(CONDITIONS.index).to_numpy()
scores = [np.stack(table[name].to_list()) for name in ("model_vitals", "model_notes")]
fit, holdout = (np.flatnonzero(table["cohort"] == name) for name in ("fit", "holdout"))
fit = fit[:4_000]  # few, so that noise shows

# COMMAND ----------

# MAGIC %md
# MAGIC ## One fit, measured
# MAGIC
# MAGIC The cost of the decisions and the share of patients on whom the models differ, on fitted and
# MAGIC on holdout rows. Where the two part, the patches have learnt noise.

# COMMAND ----------


def measured(rows, one, two):
    chosen = [(s @ costs.T).argmin(axis=1) for s in (one, two)]
    paid = np.mean([costs[a, label[rows]].mean() for a in chosen])
    return paid, 100 * float(np.mean(chosen[0] != chosen[1]))


def tried(alpha=0.005, eta=0.01, beta="auto"):
    start = time.perf_counter()
    pair = Reconciler(losses={"triage": costs.tolist()}, alpha=alpha, eta=eta, beta=beta).fit(
        scores[0][fit], scores[1][fit], label[fit]
    )
    seconds = time.perf_counter() - start
    found = {"alpha": alpha, "eta": eta, "beta": float(pair.resolved.beta), "status": pair.status}
    found |= {"patches": len(pair.log), "rounds": pair.log.rounds, "seconds": seconds}
    found["fewest rows"] = min(patch.rows for patch in pair.log)
    for name, rows in (("fitted", fit), ("holdout", holdout)):
        new = pair.apply(scores[0][rows], scores[1][rows])
        found[f"cost, {name}"], found[f"disagree, {name}"] = measured(rows, *new)
    return found


before = dict(
    zip(("cost", "disagree"), measured(holdout, *(s[holdout] for s in scores)), strict=True)
)
print(f"before: cost {before['cost']:.3f}, {before['disagree']:.1f} % disagree")
display(pd.DataFrame([tried()]).round(4).T)


def picture(found, name, title, mark=None):
    """Four panels over one parameter: what you get above, what you pay below."""
    figure, panels = plt.subplots(2, 2, figsize=(9, 5.4), sharex=True)
    figure.suptitle(title)
    for axis, what in zip(panels[0], ("disagree", "cost"), strict=True):
        for rows, style in (("fitted", "--"), ("holdout", "-")):
            axis.plot(found[name], found[f"{what}, {rows}"], style, marker="o", label=rows)
        axis.axhline(before[what], color="grey", linewidth=0.8)
        axis.annotate("before", (found[name].min(), before[what]), va="top", color="grey")
    panels[0, 0].set(ylabel="% that disagree", ylim=(0, None))
    panels[0, 1].set(ylabel="cost per patient")
    panels[0, 1].legend()
    below = {"patches": "patches", "fewest rows": "rows of the smallest patch"}
    for axis, (what, told) in zip(panels[1], below.items(), strict=True):
        axis.plot(found[name], found[what], color="#e07a5f", marker="o")
        axis.set(xlabel=name, ylabel=told, ylim=(0, None), xscale="log")
    for axis in panels.flat if mark is not None else ():
        axis.axvline(mark, color="black", linewidth=0.8, linestyle=":")
    figure.tight_layout()
    display(figure)


# COMMAND ----------

# MAGIC %md
# MAGIC ## eta: how small a group still matters
# MAGIC
# MAGIC Start here: it has the most effect. Go down while the *holdout* lines still fall. The gap
# MAGIC between fitted and holdout cost is the noise that was learnt; it widens to the left. Watch
# MAGIC also how few patients the smallest patch was learnt from.

# COMMAND ----------

etas = pd.DataFrame([tried(eta=eta) for eta in (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)])
display(etas.round(4))
picture(etas, "eta", "What eta costs")

# COMMAND ----------

# MAGIC %md
# MAGIC ## alpha: how much a disagreement must matter
# MAGIC
# MAGIC In units of the loss rescaled to [0, 1]: here the costs span 20, so 0.005 is a tenth of a
# MAGIC unit. A large alpha leaves the disagreements that hardly cost anything; the cost moves
# MAGIC little until alpha reaches differences that somebody pays for. If people must *see*
# MAGIC agreement, take it small; if only cost counts, larger is fine.

# COMMAND ----------

alphas = pd.DataFrame([tried(alpha=alpha) for alpha in (0.1, 0.05, 0.02, 0.01, 0.005, 0.001)])
display(alphas.round(4))
picture(alphas, "alpha", "What alpha costs")

# COMMAND ----------

# MAGIC %md
# MAGIC ## beta: how well calibrated within a group
# MAGIC
# MAGIC Leave it at `auto`: about the sampling noise at this number of rows (the dotted line). To
# MAGIC the left of it the number of patches multiplies and the holdout cost does not move: those
# MAGIC patches fit noise. To the right the models are left less calibrated, which these two can
# MAGIC afford and others cannot.

# COMMAND ----------

auto = tried()["beta"]
betas = pd.DataFrame([tried(beta=float(f"{auto * x:.2g}")) for x in (8, 4, 2, 1, 0.5, 0.25, 0.125)])
display(betas.round(5))
picture(betas, "beta", "What beta costs", mark=auto)

# COMMAND ----------

# MAGIC %md
# MAGIC ## In short
# MAGIC
# MAGIC 1. `beta: auto`.
# MAGIC 2. `alpha`: the smallest difference in cost that anybody would care about, divided by the
# MAGIC    span of the costs.
# MAGIC 3. `eta`: as small as the holdout rows allow. Keep a split in the configuration, so that
# MAGIC    every run shows both.

# COMMAND ----------

best = etas.loc[etas["cost, holdout"].idxmin()]
print(f"cheapest on holdout patients: eta = {best['eta']:g}, {best['patches']} patches")
