# Databricks notebook source
# MAGIC %md
# MAGIC # A scheduled job over Delta, with time travel between runs
# MAGIC
# MAGIC What happens at night, by hand: a first run, a second one that finds nothing to do, one
# MAGIC after the table upstream has changed. Then we look back, at what an earlier run read and
# MAGIC wrote.

# COMMAND ----------

import os
import tempfile

import matplotlib.pyplot as plt
import pandas as pd
import pyarrow as pa
from pyspark.sql import functions as f

from redcal_spark.cli import main
from redcal_spark.demo import SCHEMA, patients
from redcal_spark.session import get_session

if "display" not in globals():  # not on Databricks
    from redcal_spark.notebook import display

spark = get_session()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Where things are
# MAGIC
# MAGIC On Databricks, name a schema in which you may make tables and a volume; elsewhere everything
# MAGIC goes into the folder `lake` here.

# COMMAND ----------

if "dbutils" in globals():
    source, target = "main.risk_dev.notebook_patients", "main.risk_dev.notebook_triage"
    scratch = "/Volumes/main/risk_dev/redcal/scratch"
    folder = tempfile.mkdtemp()
else:
    source, target, scratch = "lake/patients", "lake/triage", os.path.abspath("lake/scratch")
    folder = "."


def table(name, version=None):
    """A Delta table, by path or by name, perhaps as it was."""
    reader = spark.read.format("delta")
    reader = reader if version is None else reader.option("versionAsOf", version)
    return reader.load(os.path.abspath(name)) if "/" in name else reader.table(name)


def write(frame, name, mode):
    writer = frame.write.format("delta").mode(mode)
    if "/" in name:
        writer.save(os.path.abspath(name))
    else:
        writer.saveAsTable(name)


everyone = pa.Table.from_batches(patients(24_000), SCHEMA)
write(spark.createDataFrame(everyone.slice(0, 20_000)), source, "overwrite")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The configuration
# MAGIC
# MAGIC One YAML file, checked as a whole before anything runs. It is what you would keep in `conf/`
# MAGIC and name in the job.

# COMMAND ----------

config = os.path.join(folder, "triage.yaml")
with open(config, "w", encoding="utf-8") as file:
    file.write(f"""\
input:
  table: {source}
  id: patient_id
  label: condition
  classes: [nothing_serious, infection, heart_failure, pneumonia, sepsis]
  model_1: model_vitals
  model_2: model_notes
  split: {{column: cohort, fit: fit, holdout: holdout}}
losses:
  triage:
    actions: [send_home, observe, admit]
    costs:
      - [0.0, 2.0, 8.0, 6.0, 20.0]
      - [1.0, 0.5, 3.0, 2.0, 8.0]
      - [3.0, 2.0, 0.5, 0.5, 0.5]
reconcile: {{algorithm: redcal, alpha: 0.005, eta: 0.02}}
output: {{table: {target}}}
engine: {{name: spark, scratch: {scratch}}}
""")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The first night
# MAGIC
# MAGIC `main([...])` is the command `redcal run -c triage.yaml`; the job calls nothing else. It
# MAGIC returns the exit code: 0 converged, 3 finished but not converged, 1 and 2 failed; a run that
# MAGIC has nothing to do returns that of the run that did it.

# COMMAND ----------

first = main(["run", "-c", config])
print("exit code", first)

# COMMAND ----------

# MAGIC %md
# MAGIC ## The second night: nothing new
# MAGIC
# MAGIC A run is known by its configuration and by the versions of the tables it reads. Both are the
# MAGIC same, so it does nothing and says so; a retry costs nothing either.

# COMMAND ----------

second = main(["run", "-c", config])

# COMMAND ----------

# MAGIC %md
# MAGIC ## The third night: the table upstream has changed
# MAGIC
# MAGIC Four thousand new patients have come in.

# COMMAND ----------

write(spark.createDataFrame(everyone.slice(20_000)), source, "append")
third = main(["run", "-c", config])

# COMMAND ----------

# MAGIC %md
# MAGIC ## The ledger
# MAGIC
# MAGIC One row a run: what it read, how it ended, which versions it wrote. The second night left no
# MAGIC row.

# COMMAND ----------

ledger = table(f"{target}_runs").orderBy("started_at")
wrote = f"$['{target}']"
runs = ledger.select(
    "run_id",
    "status",
    f.get_json_object("inputs", "$.version").alias("read_version"),
    f.get_json_object("outputs", wrote).alias("wrote_version"),
    "rows",
    "patches",
    "rounds",
)
display(runs)
runs = runs.toArrow().to_pandas()

# COMMAND ----------

# MAGIC %md
# MAGIC ## How the disagreement fell, run by run
# MAGIC
# MAGIC From the history table: the share of *holdout* patients for whom the models still differ,
# MAGIC after each round. Both runs should end low; if a later run starts much higher than the one
# MAGIC before, a model has drifted.

# COMMAND ----------

history = table(f"{target}_history").where("split = 'holdout' and model = 1")
points = history.select("run_id", "round", "disagreement").orderBy("round").toArrow().to_pandas()
figure, axis = plt.subplots(figsize=(8, 3.2))
figure.suptitle("Scheduled job: disagreement by round")
for number, run_id in enumerate(runs.run_id, 1):
    line = points[points.run_id == run_id]
    axis.plot(line["round"], 100 * line.disagreement, marker="o", label=f"run {number}")
axis.set(xlabel="rounds done", ylabel="% of holdout patients", ylim=(0, None))
axis.legend()
display(figure)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Time travel
# MAGIC
# MAGIC The target is a Delta table, and each run is a version of it. Who is treated differently
# MAGIC since the last run, though nothing about them changed? Only the log did: it was learnt from
# MAGIC more patients.

# COMMAND ----------

then, now = (table(target, int(version)) for version in runs.wrote_version)
both = then.select("patient_id", f.col("triage_1_after").alias("run_1")).join(
    now.select("patient_id", "condition", f.col("triage_1_after").alias("run_2")), "patient_id"
)
changed = both.where("run_1 <> run_2").groupBy("run_1", "run_2").count()
display(changed.orderBy(f.desc("count")))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Yesterday's run again
# MAGIC
# MAGIC The input pinned to the version that the first run read: the same patches, to the bit. (The
# MAGIC rows go to another table, so that tonight's stay what readers see.)

# COMMAND ----------

pinned = ["--set", f"input.version={runs.read_version[0]}", "--set", f"output.table={target}_again"]
again = main(["run", "-c", config, "-q", *pinned])
fields = ["step", "kind", "model", "a1", "a2", "action", "rows", "phi"]
logs = [
    table(name).where(f.col("run_id") == run_id).orderBy("step").select(fields).collect()
    for name, run_id in (
        (f"{target}_patches", runs.run_id[0]),
        (f"{target}_again_patches", table(f"{target}_again_runs").collect()[0].run_id),
    )
]
same = logs[0] == logs[1]
print(f"{len(logs[0])} patches then, {len(logs[1])} again: {'the same' if same else 'DIFFERENT'}")

# COMMAND ----------

# MAGIC %md
# MAGIC ## One patient under both runs
# MAGIC
# MAGIC `explain` reads the row as it stood when the run was made, and replays that run's log on it.

# COMMAND ----------

patient = both.where("run_1 <> run_2").orderBy("patient_id").first()
if patient is None:
    print("no patient is treated differently")
else:
    for run_id in runs.run_id:
        main(["explain", "-c", config, "--id", str(patient.patient_id), "--run", run_id])

# COMMAND ----------

codes = {"first": first, "second": second, "third": third, "again": again}
display(pd.Series(codes, name="exit code").to_frame())
