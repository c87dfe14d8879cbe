"""What a fit costs on a cluster, from the passes that `make bench-scale` measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from redcal_spark.config.schema import Read
from tests.bench.cost_model import CostModel, Line, Measured, Workload, fitted, tasks_of
from tests.bench.scale_found import Found, of, packed_bytes, table
from tests.bench.timing import seconds

MIB, GIB = 2**20, 2**30
BUDGET = 4 * GIB  # assumed of a cluster's driver: a quarter of what it may still use
CLUSTER = 1.0  # seconds that a cluster is assumed to take more to start a job
SIZES, CLUSTERS = (10**8, 10**9, 10**10), (2, 16, 100, 1_000)
READS: dict[Read, str] = {"direct": "read by tasks", "spark": "through the DataFrame"}


def passes_of(found: Iterable[Found]) -> list[Measured]:
    """Passes over stored rows whose size is known, of two models without weights."""
    names = ("events", "residuals", "gaps", "sums")
    return [
        Measured(made["bytes"], one.told["cores"], made["seconds"])
        for one in found
        if one.case.engine == "spark" and one.case.series in ("rows", "worst")
        for made in one.told["passes"]
        if made["name"] in names and made["bytes"]
    ]


def fits_of(found: Iterable[Found], *reads: Read) -> list[Found]:
    """Of the tables that differ in rows, by so many kinds of scan on Spark."""
    return [f for f in of(found, "rows") if f.case.engine == "spark" and f.case.read in reads]


def model_of(found: Sequence[Found], read: Read) -> CostModel | None:
    """With the scan of one kind: what follows a scan is the same after both."""
    fits, own = fits_of(found, *READS), fits_of(found, read)
    far = of(found, "worst")
    driver = [f.told for f in of(found, "driver")]
    tasks = [told["task_seconds"] + told["statistics"][0]["seconds"] for told in driver]
    passes = passes_of(found)
    if not (own and far and tasks and passes):
        return None
    scans = [Measured(f.case.count, f.told["cores"], f.told["phases"]["scan"]) for f in own]
    holdout = [Measured(f.active_rows, f.told["cores"], f.told["phases"]["holdout"]) for f in far]
    handed = [Measured(_chosen_bytes(f), 1, f.told["phases"]["fit"]) for f in fits]
    return CostModel(
        fitted(scans), fitted(passes), fitted(holdout), fitted(handed), tasks[0], CLUSTER
    )


def _chosen_bytes(one: Found) -> int:
    """Of the events that the rounds of a fit chose."""
    return sum(int(event) for event, _ in one.told["rounds"]) * packed_bytes(one.case.rows)


def workload_of(one: Found) -> Workload:
    """The rounds of a fit that was measured, as shares of its rows."""
    rows, case = one.case.count, one.case
    return Workload(
        active=one.active_rows / rows,
        row_bytes=packed_bytes(case.rows),
        table_bytes=round(one.told["table_bytes"] / rows),
        rounds=tuple((event / rows, after) for event, after in one.told["rounds"]),
        driver_budget=BUDGET,
    )


def cluster(found: Sequence[Found]) -> list[str]:
    """The parts of what was printed that a cluster is in."""
    models = {read: model for read in READS if (model := model_of(found, read)) is not None}
    if not models:
        return []
    largest = {read: max(fits_of(found, read), key=lambda f: f.case.count) for read in models}
    works = {read: workload_of(one) for read, one in largest.items()}
    rows = [
        [READS[read], f"{n:,}"]
        + [f"{model.fit_seconds(n, c, works[read]) / 60:,.1f}" for c in CLUSTERS]
        for read, model in models.items()
        for n in SIZES
    ]
    heads = ["minutes of a fit", "rows", *(f"{cores:,} cores" for cores in CLUSTERS)]
    checked = [_checked(read, model, largest[read]) for read, model in models.items()]
    work = next(iter(works.values()))
    parts = [_assumptions(models, work, found), table(heads, rows), "\n".join(checked)]
    return [*parts, *_statistics(found, work)]


def _assumptions(models: Mapping[Read, CostModel], work: Workload, found: Sequence[Found]) -> str:
    model = next(iter(models.values()))

    def line(told: Line, unit: str, scale: float) -> str:
        each = seconds(told.each * scale)
        return f"{seconds(told.latency)} + {each} a {unit} / cores (off by {told.error:.0%})"

    events = sum(share for share, _ in work.rounds)
    followed = sum(after for _, after in work.rounds)
    return "\n".join(
        [
            f"- an iteration (one pass): {line(model.passes, 'MB', 1e6)}, "
            f"from {len(passes_of(found))} passes",
            *(
                f"- the scan, {READS[read]}: {line(own.scan, 'million rows', 1e6)}"
                for read, own in models.items()
            ),
            f"- holdout pass: {line(model.holdout, 'million active rows', 1e6)}",
            f"- the driver: at most {seconds(model.task)} a task (it shares the cores here); "
            f"a cluster takes {model.job:g} s more to start a job than this machine "
            "(assumed, not measured)",
            f"- {work.active:.1%} of the rows are active, {work.row_bytes} bytes each; "
            f"{len(work.rounds)} rounds with events of {events:.1%} of the rows in all and "
            f"{followed} calibration patches",
            f"- events of at most {work.driver_budget / MIB:,.0f} MiB go to the driver, which "
            f"takes {seconds(model.handed.latency)} + {seconds(model.handed.each * 1e6)} a MB to "
            f"read and patch them (off by {model.handed.error:.0%}); a larger one takes two passes "
            "over all active rows, one over the event per patch, and a holdout pass in the end",
        ]
    )


def _checked(read: Read, model: CostModel, one: Found) -> str:
    here = replace(model, task=0.0, job=0.0)
    said = here.fit_seconds(one.case.count, one.told["cores"], workload_of(one))
    phases = one.told["phases"]
    was = sum(phases.get(name, 0.0) for name in ("scan", "fit", "holdout"))
    return (
        f"- For the {one.case.count:,} rows measured on {one.told['cores']} cores, {READS[read]}, "
        f"the model says {seconds(said)}; scan, patches and the holdout pass took {seconds(was)}."
    )


def _statistics(found: Sequence[Found], work: Workload) -> list[str]:
    lines = []
    points = 1 + len(work.rounds)
    rows, cores = SIZES[-1], CLUSTERS[-1]
    scans = tasks_of(rows * work.table_bytes, cores)
    parts = tasks_of(rows * work.active * work.row_bytes, cores)
    for one in of(found, "driver"):
        for told in one.told["statistics"]:
            size, spent = told["bytes"], told["seconds"]
            lines.append(
                (
                    f"{told['losses']}, K = {told['actions']}, d = {told['classes']}",
                    f"{size / 1e3:,.1f} kB", f"{2 * size * scans / GIB:,.2f} GiB",
                    seconds(2 * spent * scans), f"{points * size * parts / GIB:,.2f} GiB",
                    seconds(points * spent * parts),
                )
            )  # fmt: skip
    heads = [
        "losses", "totals of some rows", f"to the driver from a scan of {scans:,} tasks",
        "adding up", f"from the holdout pass, {parts:,} tasks x {points} points", "adding up",
    ]  # fmt: skip
    return [table(heads, lines)] if lines else []
