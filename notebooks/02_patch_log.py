# Databricks notebook source
# MAGIC %md
# MAGIC # Reading a patch log, and explaining a row
# MAGIC
# MAGIC An auditor asks two questions. *What exactly did you do to the models?* The patch log
# MAGIC answers: it is the whole model. *Why is this patient observed now, when yesterday's score
# MAGIC said admit?* `explain` answers that.
# MAGIC
# MAGIC This notebook computes in memory, without Spark; the log would be the same to the bit.

# COMMAND ----------

import matplotlib.pyplot as plt
import pandas as pd
import pyarrow as pa

from redcal_spark import Reconciler
from redcal_spark.demo import CONDITIONS, SCHEMA, patients

if "display" not in globals():  # not on Databricks
    from redcal_spark.notebook import display

ONE = 2**26  # scores and patches are integers in units of 1 / ONE
actions = ["send_home", "observe", "admit"]
costs = [[0.0, 2.0, 8.0, 6.0, 20.0], [1.0, 0.5, 3.0, 2.0, 8.0], [3.0, 2.0, 0.5, 0.5, 0.5]]

table = pa.Table.from_batches(patients(40_000), SCHEMA).to_pandas()
pair = Reconciler(
    losses={"triage": {"actions": actions, "costs": costs}},
    alpha=0.005,
    eta=0.01,
    model_1="model_vitals",
    model_2="model_notes",
    label="condition",
    id="patient_id",
    classes=CONDITIONS,
).fit(table)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The log
# MAGIC
# MAGIC One line per patch, in the order in which they are replayed. A round opens with `reconcile`:
# MAGIC of all pairs of actions (`a1` by model 1, `a2` by model 2) the one with the most rows is
# MAGIC chosen, and the model that is further from the truth there is moved by `phi`. `calibrate`
# MAGIC lines mend what that model still gets wrong on the same patients, action by action. `rows`
# MAGIC is how many fitting rows it was learnt from.

# COMMAND ----------

log = pd.DataFrame(pair.log.to_json())
shown = log[["step", "round", "kind", "model", "a1", "a2", "action", "rows"]].copy()
for name in ("a1", "a2", "action"):
    shown[name] = [actions[int(a)] if pd.notna(a) else "" for a in log[name]]
phi = pd.DataFrame([[x / ONE for x in line] for line in log["phi"]], columns=CONDITIONS)
display(pd.concat([shown, phi.round(3)], axis=1).head(12))

# COMMAND ----------

# MAGIC %md
# MAGIC Read the first line: model and pair of actions, and how the probabilities of the five
# MAGIC conditions move. They add up to about zero: what one condition gains the others lose.
# MAGIC
# MAGIC ## Round by round
# MAGIC
# MAGIC The first rounds do most of the work. Look for a long tail: many rounds just above `eta`
# MAGIC mean that a larger `eta` would have done (notebook 04).

# COMMAND ----------

rounds = log.groupby("round").agg(rows=("rows", "first"), patches=("step", "size"))
rounds["model"] = log.groupby("round")["model"].first()
first = log[log.kind == "reconcile"].set_index("round")
rounds["event"] = [
    f"{actions[int(a)]} / {actions[int(b)]}" for a, b in zip(first.a1, first.a2, strict=True)
]
display(rounds)

figure, axis = plt.subplots(figsize=(8, 3.2))
figure.suptitle("Patch log: rows of each round's event")
colours = rounds["model"].map({1: "#2a6f97", 2: "#e07a5f"})
axis.bar(rounds.index, 100 * rounds.rows / pair.rows, color=colours)
axis.axhline(100 * pair.parameters.eta, color="black", linewidth=0.8, linestyle="--")
axis.annotate("eta", (rounds.index.max(), 100 * pair.parameters.eta), va="bottom")
axis.set(xlabel="round (blue: model 1 patched, red: model 2)", ylabel="% of the fitting rows")
display(figure)

# COMMAND ----------

# MAGIC %md
# MAGIC ## One patient
# MAGIC
# MAGIC Of the patients on whom the models disagreed and no longer do, take one for whom both models
# MAGIC were patched. `explain` replays the log on this row alone and tells every patch that touched
# MAGIC it: which patients it was learnt from, what they showed, and what it changed here.

# COMMAND ----------

done = pair.apply(table.head(1000))
moved = done[(done.triage_1_before != done.triage_2_before) & done.triage_agree]
stories = [pair.explain(row) for _, row in moved.iterrows()]
both = [story for story in stories if {step.patch.model for step in story.steps} == {1, 2}]
told = min(both, key=lambda story: len(story.steps))
print(f"patient {told.id}")
for sentence in told.sentences(["the vitals model", "the notes model"]):
    print(" ", sentence)

# COMMAND ----------

# MAGIC %md
# MAGIC The same as numbers: the scores of the model that a step patched, before and after it.

# COMMAND ----------

journey = [
    {"step": step.patch.step, "model": step.patch.model, "when": when}
    | dict(zip(CONDITIONS, state.scores[step.patch.model - 1], strict=True))
    for step in told.steps
    for when, state in (("before", step.before), ("after", step.after))
]
display(pd.DataFrame(journey).round(3))

# COMMAND ----------

# MAGIC %md
# MAGIC ## A patient whom nothing touched
# MAGIC
# MAGIC That also has a reason, and an auditor may ask for it.

# COMMAND ----------

untouched = done[~done.touched].iloc[0]
for sentence in pair.explain(untouched).sentences(["the vitals model", "the notes model"]):
    print(" ", sentence)

# COMMAND ----------

# MAGIC %md
# MAGIC For a run of the job it is one command: `redcal explain -c conf/my.yaml --id 4711`. It reads
# MAGIC the row as it stood when the run was made.
