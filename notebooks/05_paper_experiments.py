# Databricks notebook source
# MAGIC %md
# MAGIC # The paper's experiments, repeated
# MAGIC
# MAGIC Du, Ngo and Wu compare four procedures on ImageNet and on HAM10000: **Reconcile**,
# MAGIC **Decision Calibration**, **ReDCal**, and ReDCal after Decision Calibration. Every draw
# MAGIC takes classes, rows for fitting and a loss with N(0, 1) costs by chance. Here are the same
# MAGIC experiments on predictions of public models, with the paper's figures: the Brier score and
# MAGIC the loss gap after every patch, means over the draws, shaded by one standard error.
# MAGIC
# MAGIC `REDCAL_DATA` says where `imagenet_top5.parquet` and `dermamnist.parquet` are (default:
# MAGIC `../shared/data` beside the repository). As it stands this notebook takes a minute or two: a
# MAGIC few draws, and no 1,000 classes. With `REDCAL_FULL=1` it draws what
# MAGIC `python -m tests.bench paper` has computed into `out/paper`, and computes what is missing.

# COMMAND ----------

import os
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

here = Path(__file__).parent if "__file__" in globals() else Path.cwd()
sys.path.insert(0, str(here.parent))  # the experiments are the benchmark's

from redcal_spark.runs.compare import PROCEDURES
from tests.bench import paper, paper_summary

STYLES = {
    "reconcile": {"color": "#4477aa", "linestyle": "--"},
    "decision_calibration": {"color": "#228833", "linestyle": ":"},
    "redcal": {"color": "#ee7733", "linestyle": "-"},
    "dc_then_redcal": {"color": "#cc3311", "linestyle": "-."},
}
full = os.environ.get("REDCAL_FULL") == "1"
folder = Path("out/paper" if full else "out/paper_notebook")
nothing_to_do = paper.missing()
print(nothing_to_do or f"predictions in {paper.folder()}")

if "display" not in globals():  # not on Databricks
    from redcal_spark.notebook import display

# COMMAND ----------

# MAGIC %md
# MAGIC ## The draws
# MAGIC
# MAGIC | set | classes | actions | alpha | eta | beta, as in the paper |
# MAGIC |---|---|---|---|---|---|
# MAGIC | HAM10000 | 7 | 2 | .1 | .01 | .000001 |
# MAGIC | ImageNet | d | 10 | .1 / d | .01 | .001 / d |
# MAGIC
# MAGIC `paper` is with that beta, and gives Reconcile the same alpha, in units of probability (the
# MAGIC paper does not say which it had). `auto` is with `beta: auto`, about the sampling noise of
# MAGIC the fitting rows, and Reconcile's alpha at .05. `finer` is `auto` with a fifth of eta: with
# MAGIC ten actions there are ninety events, and often none of them has one row in a hundred.
# MAGIC `tuned` is `auto` with the eta that `eta: auto` chooses on the fitting rows.

# COMMAND ----------

FEW = {
    "ham10000": {"paper": 2, "auto": 10, "tuned": 10},
    "imagenet_10": {"paper": 4, "auto": 10, "tuned": 10},
    "imagenet_100": {"auto": 4, "finer": 4},
}
found = {}
for name, experiment in {} if nothing_to_do else paper.EXPERIMENTS.items():
    for setting, draws in (experiment.draws if full else FEW.get(name, {})).items():
        one = experiment.under(setting)
        found[one.key] = paper.run_all(one, folder, draws, workers=1)
summaries = {key: paper_summary.summary(draws) for key, draws in found.items()}


def ended(key):
    """What each procedure changed by its end, mean over the draws."""
    draws, rows = found[key], {}
    for algorithm, title in PROCEDURES.items():
        row = {"patches": sum(d[algorithm]["patches"] for d in draws) / len(draws)}
        for measure, split in (
            ("brier", "fit"),
            ("brier", "holdout"),
            ("gap", "fit"),
            ("gap", "holdout"),
        ):
            change = paper_summary.ends(draws, algorithm, split, measure)
            change = change - paper_summary.starts(draws, split, measure)
            row[f"{measure}, {split}"] = str(paper_summary.Mean.of(change))
        rows[title] = row
    return pd.DataFrame(rows).T


for key in found:
    print(f"\n{key}, {len(found[key])} draws: changes, mean ± standard error")
    display(ended(key))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Brier score
# MAGIC
# MAGIC The paper: ReDCal lowers it, by less than Reconcile; ReDCal after Decision Calibration
# MAGIC lowers it most. Mean of both models, ReDCal's after each of its rounds; a procedure that has
# MAGIC ended stays where it is.

# COMMAND ----------

SPLITS = {"fit": "fitted rows", "holdout": "holdout rows"}


def curve(panel, summary, algorithm, split, measure):
    line = summary["procedures"][algorithm][split][measure]
    mean, error = pd.Series(line["mean"]), pd.Series(line["error"]).fillna(0)
    colour = STYLES[algorithm]["color"]
    panel.plot(summary["steps"], mean, label=PROCEDURES[algorithm], **STYLES[algorithm])
    panel.fill_between(summary["steps"], mean - error, mean + error, color=colour, alpha=0.15)
    panel.set_xscale("symlog", linthresh=10)
    panel.xaxis.set_major_formatter("{x:,.0f}")
    panel.grid(alpha=0.25)


def brier(name, keys):
    """A row a setting, fitted rows on the left, holdout on the right."""
    size = (10, 3 * len(keys) + 0.6)
    figure, panels = plt.subplots(len(keys), 2, figsize=size, squeeze=False, layout="constrained")
    for line, key in zip(panels, keys, strict=True):
        for panel, (split, title) in zip(line, SPLITS.items(), strict=True):
            for algorithm in PROCEDURES:
                curve(panel, summaries[key], algorithm, split, "brier")
            panel.set_title(f"{key}, {title}", fontsize="medium")
    figure.suptitle(f"Brier score: {name}")
    legend(figure, panels)
    return figure


def legend(figure, panels):
    for panel in panels[-1]:
        panel.set_xlabel("patches")
    shown = {}
    for panel in panels.flat:
        handles, labels = panel.get_legend_handles_labels()
        shown |= dict(zip(labels, handles, strict=True))
    place = {"loc": "outside lower center", "ncols": 2, "frameon": False}
    figure.legend(shown.values(), shown.keys(), **place)


for name in ("imagenet_100", "ham10000"):
    keys = [key for key in found if key.rpartition("-")[0] == name]
    if keys:
        display(brier(name, keys))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Loss gap
# MAGIC
# MAGIC What the decisions cost above those that know the label. On the left Reconcile and ReDCal,
# MAGIC on the right Decision Calibration alone and with ReDCal after it. The paper: ReDCal lowers
# MAGIC the holdout loss by more than Reconcile, and still lowers it after Decision Calibration.

# COMMAND ----------

PAIRS = (("reconcile", "redcal"), ("decision_calibration", "dc_then_redcal"))


def gaps(key):
    figure, panels = plt.subplots(2, 2, figsize=(10, 6.6), sharey="row", layout="constrained")
    for line, (split, title) in zip(panels, SPLITS.items(), strict=True):
        for panel, pair in zip(line, PAIRS, strict=True):
            for algorithm in pair:
                curve(panel, summaries[key], algorithm, split, "gap")
            panel.set_title(title, fontsize="medium")
    figure.suptitle(f"Loss gap: {key}, {len(found[key])} draws")
    legend(figure, panels)
    return figure


for key in found:
    if not key.startswith("imagenet_10-"):
        display(gaps(key))

# COMMAND ----------

# MAGIC %md
# MAGIC ## More classes
# MAGIC
# MAGIC The holdout loss gap at 10, 100 and 1,000 classes. The paper: ReDCal outperforms Reconcile
# MAGIC at each, and is slower at 1,000.

# COMMAND ----------


def by_classes(setting):
    keys = [f"imagenet_{d}-{setting}" for d in (10, 100, 1_000)]
    keys = [key for key in keys if key in found]
    if not keys:
        return None
    size = (max(6.4, 4 * len(keys)), 3.8)
    figure, panels = plt.subplots(1, len(keys), figsize=size, squeeze=False, layout="constrained")
    for panel, key in zip(panels[0], keys, strict=True):
        for algorithm in PROCEDURES:
            curve(panel, summaries[key], algorithm, "holdout", "gap")
        panel.set_title(key, fontsize="medium")
    figure.suptitle(f"Loss gap on holdout rows by classes: {setting}")
    legend(figure, panels)
    return figure


for setting in ("paper", "auto", "finer", "tuned"):
    figure = by_classes(setting)
    if figure is not None:
        display(figure)

# COMMAND ----------

# MAGIC %md
# MAGIC ## What held
# MAGIC
# MAGIC Each claim as a mean difference on the holdout rows, draw by draw. "held" and "the opposite"
# MAGIC are by more than two standard errors, "not seen" is within them; of fewer than five draws
# MAGIC nothing is said. docs/results/paper.md has the numbers of all draws.

# COMMAND ----------

verdicts = pd.DataFrame(
    {key: [told for _, _, told in paper_summary.claims(draws)] for key, draws in found.items()},
    index=[claim.text for claim in paper_summary.CLAIMS],
)
if nothing_to_do:
    print("nothing was drawn:", nothing_to_do)
else:
    display(verdicts)
