# Databricks notebook source
# MAGIC %md
# MAGIC # Quickstart: two models, two tables
# MAGIC
# MAGIC A hospital has two triage models. One reads vital signs, the other reads the doctors' notes;
# MAGIC they are about equally accurate. Each patient is sent home, observed or admitted, whatever
# MAGIC costs least by the model's scores. For almost a third of the patients the two models say
# MAGIC different things. Which one to follow?
# MAGIC
# MAGIC `redcal_spark` patches both, on patients whose condition turned out, until they agree.
# MAGIC
# MAGIC On Databricks: add the wheel to the notebook's environment first. As a script: `python
# MAGIC 01_quickstart.py`.

# COMMAND ----------

import matplotlib.pyplot as plt
import pandas as pd
import pyarrow as pa

from redcal_spark import Reconciler
from redcal_spark.demo import CONDITIONS, SCHEMA, patients
from redcal_spark.session import get_session

if "display" not in globals():  # not on Databricks
    from redcal_spark.notebook import display

spark = get_session()

# COMMAND ----------

# MAGIC %md
# MAGIC ## The two tables
# MAGIC
# MAGIC Each model writes a table of its own: an id, and an array of five probabilities, one per
# MAGIC condition. The first also has what turned out. We join them on the id.

# COMMAND ----------

made = spark.createDataFrame(pa.Table.from_batches(patients(40_000), SCHEMA))
vitals = made.select("patient_id", "cohort", "age", "condition", "model_vitals")
notes = made.select("patient_id", "model_notes")

scores = vitals.join(notes, "patient_id")
display(scores.limit(5))

# COMMAND ----------

# MAGIC %md
# MAGIC ## What decisions cost
# MAGIC
# MAGIC A row per action, a number per condition: sending a patient with sepsis home costs 20,
# MAGIC admitting a healthy one 3. This is the only thing about decisions that the algorithm needs
# MAGIC to know.

# COMMAND ----------

actions = ["send_home", "observe", "admit"]
costs = [[0.0, 2.0, 8.0, 6.0, 20.0], [1.0, 0.5, 3.0, 2.0, 8.0], [3.0, 2.0, 0.5, 0.5, 0.5]]
display(pd.DataFrame(costs, actions, CONDITIONS))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Fit
# MAGIC
# MAGIC `alpha`: a disagreement counts when it matters by more than this share of the loss. `eta`:
# MAGIC groups of patients smaller than this share are left alone. Half of the patients are for
# MAGIC fitting; the others we hold out.
# MAGIC
# MAGIC Look at the status: `converged` means that no disagreement of size `eta` is left.

# COMMAND ----------

pair = Reconciler(
    losses={"triage": {"actions": actions, "costs": costs}},
    alpha=0.005,
    eta=0.01,
    model_1="model_vitals",
    model_2="model_notes",
    label="condition",
    classes=CONDITIONS,
).fit(scores.where("cohort = 'fit'"))

print(f"{pair.status}: {len(pair.log)} patches, fitted on {pair.rows:,} patients")

# COMMAND ----------

# MAGIC %md
# MAGIC ## Apply, to patients that the fit never saw
# MAGIC
# MAGIC No labels are needed. The input's columns stay as they are; new scores and, per loss, the
# MAGIC action of each model before and after are added. `touched` tells whether any patch did
# MAGIC something to the row.

# COMMAND ----------

holdout = pair.apply(scores.where("cohort = 'holdout'"))
shown = ["patient_id", "condition", "triage_1_before", "triage_2_before"]
shown += ["triage_1_after", "triage_2_after", "touched"]
display(holdout.where("triage_1_before <> triage_2_before").select(shown).limit(8))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Who says what
# MAGIC
# MAGIC Off the diagonal the models disagree. Compare the two tables: nearly everything has moved
# MAGIC onto it.

# COMMAND ----------


def crossed(frame: pd.DataFrame, when: str) -> pd.DataFrame:
    table = pd.crosstab(frame[f"triage_1_{when}"], frame[f"triage_2_{when}"])
    table = table.reindex(index=actions, columns=actions, fill_value=0)
    return table.rename_axis(index=f"vitals, {when}", columns=f"notes, {when}")


told = [c for c in holdout.columns if c.startswith("triage_")]
rows = holdout.select("condition", *told).toArrow().to_pandas()
for when in ("before", "after"):
    display(crossed(rows, when))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Was it worth it?
# MAGIC
# MAGIC Two bars per model: what its decisions cost before and after, on the holdout patients.
# MAGIC Agreement alone is easy (follow a coin); what matters is that neither model pays for it. The
# MAGIC third pair is the share of patients for whom the models differ.

# COMMAND ----------

price = pd.DataFrame(costs, actions, CONDITIONS).stack()


def cost(column: str) -> float:
    return float(price.loc[list(zip(rows[column], rows["condition"], strict=True))].mean())


summary = pd.DataFrame(
    {
        when: {
            "cost of vitals": cost(f"triage_1_{when}"),
            "cost of notes": cost(f"triage_2_{when}"),
            "disagree, %": 100 * (rows[f"triage_1_{when}"] != rows[f"triage_2_{when}"]).mean(),
        }
        for when in ("before", "after")
    }
)
display(summary.round(3))

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), width_ratios=[2, 1])
figure.suptitle("Quickstart: before and after")
colours = ["#9aa5b1", "#2a6f97"]
summary.iloc[:2].plot.bar(ax=left, rot=0, color=colours, ylabel="cost per patient")
summary.iloc[2:].plot.bar(ax=right, rot=0, color=colours, legend=False)
display(figure)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Keep it
# MAGIC
# MAGIC The model is its patch log: plain data, one small JSON file. 02 reads it and explains a
# MAGIC patient; 03 makes it a scheduled job; 04 helps to choose `alpha`, `eta` and `beta`.

# COMMAND ----------

print(f"{len(str(pair.to_json())):,} characters of JSON; pair.save(...) writes them to a file")
