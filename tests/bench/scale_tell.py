"""The tables and the chart of `make bench-scale`, from its results; ready for a result file."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.cost_model import CostModel, Line, Measured, Workload, fitted, tasks_of
from tests.bench.scale_plan import Case
from tests.bench.tables import MEMORY
from tests.bench.timing import seconds

MIB, GIB = 2**20, 2**30
PROMISED = {"worker": 512 * MIB}
BESIDE = 500 * MIB  # of the driver, beside its budget
BUDGET = 4 * GIB  # assumed of a cluster's driver: a quarter of what it may still use
AT_MOST = 1.2  # times the ratio at the size before
CLUSTER = 1.0  # seconds that a cluster is assumed to take more to start a job
SIZES, CLUSTERS = (10**8, 10**9, 10**10), (2, 16, 100, 1_000)


@dataclass(frozen=True)
class Found:
    """A case and what it gave."""

    case: Case
    told: dict[str, Any]

    @property
    def ratio(self) -> float:
        return float(self.told["seconds"] / self.told["bare"])

    @property
    def active_rows(self) -> int:
        return int(self.told["active_bytes"]) // packed_bytes(self.case.rows.classes)


def packed_bytes(classes: int) -> int:
    """Of a row as the engines keep it: two int32 vectors and a label."""
    return 8 * classes + 4


def markdown(found: Sequence[Found]) -> str:
    """Everything; what was not measured is left out."""
    parts = [
        *_rows(of(found, "rows")),
        *_memory([f for f in found if "peaks" in f.told]),
        *_applied(of(found, "apply")),
        *_worst(of(found, "worst")),
        *_series(found),
        *_cluster(found),
    ]
    return "\n\n".join(parts)


def of(found: Iterable[Found], series: str) -> list[Found]:
    return [f for f in found if f.case.series == series]


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


# --- rows -----------------------------------------------------------------------------------------


def _rows(found: list[Found]) -> list[str]:
    if not found:
        return []
    heads = [
        "`fit`", "rows", "measured", "bare read", "ratio", "against a tenth of the rows",
        "active", "patches", "rounds", "passes",
    ]  # fmt: skip
    lines, before = [], dict[str, float]()
    for one in found:
        engine, told = one.case.engine, one.told
        growth = one.ratio / before[engine] if engine in before else None
        before[engine] = one.ratio
        lines.append(
            (
                engine, f"{one.case.count:,}", seconds(told["seconds"]), seconds(told["bare"]),
                f"{one.ratio:.2f}x", _growth(growth),
                f"{one.active_rows / one.case.count:.1%}", told["patches"], len(told["rounds"]),
                len(told["passes"]),
            )
        )  # fmt: skip
    return [table(heads, lines), *_phases(found)]


def _growth(growth: float | None) -> str:
    if growth is None:
        return "-"
    met = "" if growth <= AT_MOST else f", at most {AT_MOST}x: **missed**"
    return f"{growth:.2f}x{met}"


def _phases(found: list[Found]) -> list[str]:
    lines = []
    for one in found:
        spent = ", ".join(f"{name} {seconds(s)}" for name, s in one.told["phases"].items())
        lines.append(f"- {one.case.engine}, {one.case.count:,} rows: {spent}")
    return ["\n".join(lines)]


def _memory(found: list[Found]) -> list[str]:
    """Of every process that was looked at, beside what it may take; the JVM's is Spark's affair."""
    lines = []
    for one in found:
        promised = dict(PROMISED)
        if one.case.kind == "worst":  # with a budget of 0
            promised["driver"] = BESIDE
        if one.case.kind == "fit":  # of apply's, most is delta-rs's, which writes the table
            promised["process"] = MEMORY + one.told["active_bytes"]
        peaks = one.told["peaks"]
        told = ", ".join(f"{name} {_mib(peak)}" for name, peak in peaks.items())
        limits = {name: promised[name] for name in peaks if name in promised}
        kept = all(peaks[name] <= most for name, most in limits.items())
        at_most = ", ".join(f"{name} {_mib(most)}" for name, most in limits.items())
        met = ("yes" if kept else "**NO**") if limits else "-"
        lines.append((one.case.name, told, at_most or "-", met))
    heads = ["", "peak memory", "promised at most", "kept?"]
    return [table(heads, lines)] if lines else []


def _mib(size: float) -> str:
    return f"{size / MIB:,.0f} MiB"


def _applied(found: list[Found]) -> list[str]:
    lines = [
        (
            one.case.engine, f"{one.case.count:,}", one.told["patches"],
            seconds(one.told["seconds"]), seconds(one.told["bare"]), f"{one.ratio:.2f}x",
        )
        for one in found
    ]  # fmt: skip
    heads = ["`apply`", "rows", "patches", "measured", "bare read and write", "ratio"]
    return [table(heads, lines)] if lines else []


def _worst(found: list[Found]) -> list[str]:
    lines = []
    for one in found:
        passes = one.told["passes"]
        for name in sorted({p["name"] for p in passes}, key=[p["name"] for p in passes].index):
            own = [p for p in passes if p["name"] == name]
            size = max(p["bytes"] or 0 for p in own)
            spent = [p["seconds"] for p in own]
            lines.append(
                (
                    f"{one.case.count:,}", one.told["cores"], name, len(own),
                    f"{size / 1e6:,.0f} MB" if size else "-",
                    seconds(median(spent)), seconds(max(spent)), seconds(sum(spent)),
                )
            )  # fmt: skip
    heads = ["rows, all active", "cores", "pass", "how many", "bytes", "median", "longest", "all"]
    scratch = [
        f"- {one.case.count:,} rows, cores: {one.told['cores']}, {one.told['patches']} patches: "
        f"{seconds(one.told['seconds'])} in all; {one.told['active_bytes'] / 1e9:.2f} GB of "
        f"packed rows, {one.told['counters']['scratch_bytes'] / 1e9:.2f} GB written to scratch"
        for one in found
    ]
    return [table(heads, lines), "\n".join(scratch)] if lines else []


# --- d, losses, disagreement, K -------------------------------------------------------------------


LABELS: dict[str, Callable[[Case], str]] = {
    "d": lambda case: f"d = {case.rows.classes:,}",
    "losses": lambda case: f"losses: {case.losses}",
    "disagreement": lambda case: f"{case.rows.disagreement:.0%} disagree",
    "K": lambda case: f"K = {case.rows.actions}",
}


def _series(found: Sequence[Found]) -> list[str]:
    """Work is counted in products of a score and a cost: rows x d x actions of all losses.

    The scan does that for both models of every row, a patch for one model of the rows it touches.
    """
    heads = [
        "", "rows", "active", "`fit`", "bare read", "ratio", "scan a product", "patches",
        "touched", "patching a product",
    ]  # fmt: skip
    parts = []
    for series, label in LABELS.items():
        lines = []
        for one in of(found, series):
            told, case = one.told, one.case
            each = case.rows.classes * case.rows.actions * case.losses
            scan = told["phases"]["scan"] / (2 * case.count * each)
            patching = told["phases"]["fit"] / (told["touched"] * each) if told["touched"] else None
            lines.append(
                (
                    label(case), f"{case.count:,}", f"{one.active_rows / case.count:.1%}",
                    seconds(told["seconds"]), seconds(told["bare"]), f"{one.ratio:.2f}x",
                    seconds(scan), told["patches"], f"{told['touched']:,}",
                    "-" if patching is None else seconds(patching),
                )
            )  # fmt: skip
        if lines:
            parts.append(table(heads, lines))
    return parts


# --- a cluster ------------------------------------------------------------------------------------


def passes_of(found: Iterable[Found]) -> list[Measured]:
    """Passes over stored rows whose size is known."""
    names = ("events", "residuals", "gaps", "sums")
    return [
        Measured(made["bytes"], one.told["cores"], made["seconds"])
        for one in found
        if one.case.engine == "spark"
        for made in one.told.get("passes", [])
        if made["name"] in names and made["bytes"]
    ]


def model_of(found: Sequence[Found]) -> CostModel | None:
    fits = [f for f in of(found, "rows") if f.case.engine == "spark"]
    far = of(found, "worst")
    driver = [f.told for f in of(found, "driver")]
    tasks = [told["task_seconds"] + told["statistics"][0]["seconds"] for told in driver]
    passes = passes_of(found)
    if not (fits and far and tasks and passes):
        return None
    scans = [Measured(f.case.count, f.told["cores"], f.told["phases"]["scan"]) for f in fits]
    holdout = [Measured(f.active_rows, f.told["cores"], f.told["phases"]["holdout"]) for f in far]
    handed = [Measured(_chosen_bytes(f), 1, f.told["phases"]["fit"]) for f in fits]
    return CostModel(
        fitted(scans), fitted(passes), fitted(holdout), fitted(handed), tasks[0], CLUSTER
    )


def _chosen_bytes(one: Found) -> int:
    """Of the events that the rounds of a fit chose."""
    return sum(int(event) for event, _ in one.told["rounds"]) * packed_bytes(one.case.rows.classes)


def workload_of(one: Found) -> Workload:
    """The rounds of a fit that was measured, as shares of its rows."""
    rows, case = one.case.count, one.case
    return Workload(
        active=one.active_rows / rows,
        row_bytes=packed_bytes(case.rows.classes),
        table_bytes=round(one.told["table_bytes"] / rows),
        rounds=tuple((event / rows, after) for event, after in one.told["rounds"]),
        driver_budget=BUDGET,
    )


def _cluster(found: Sequence[Found]) -> list[str]:
    model = model_of(found)
    fits = [f for f in of(found, "rows") if f.case.engine == "spark"]
    if model is None:
        return []
    largest = max(fits, key=lambda f: f.case.count)
    work = workload_of(largest)
    rows = [
        [f"{n:,}", *(f"{model.fit_seconds(n, c, work) / 60:,.1f}" for c in CLUSTERS)] for n in SIZES
    ]
    heads = ["minutes of a fit, by rows", *(f"{cores:,} cores" for cores in CLUSTERS)]
    parts = [_assumptions(model, work, found), table(heads, rows), _checked(model, largest, work)]
    return [*parts, *_statistics(found, work)]


def _assumptions(model: CostModel, work: Workload, found: Sequence[Found]) -> str:
    def line(told: Line, unit: str, scale: float) -> str:
        each = seconds(told.each * scale)
        return f"{seconds(told.latency)} + {each} a {unit} / cores (off by {told.error:.0%})"

    events = sum(share for share, _ in work.rounds)
    followed = sum(after for _, after in work.rounds)
    return "\n".join(
        [
            f"- an iteration (one pass): {line(model.passes, 'MB', 1e6)}, "
            f"from {len(passes_of(found))} passes",
            f"- the scan: {line(model.scan, 'million rows', 1e6)}",
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


def _checked(model: CostModel, one: Found, work: Workload) -> str:
    here = replace(model, task=0.0, job=0.0)
    said = here.fit_seconds(one.case.count, one.told["cores"], work)
    phases = one.told["phases"]
    was = sum(phases.get(name, 0.0) for name in ("scan", "fit", "holdout"))
    return (
        f"For the {one.case.count:,} rows measured on {one.told['cores']} cores the model says "
        f"{seconds(said)}; scan, patches and the holdout pass took {seconds(was)}."
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


# --- the chart ------------------------------------------------------------------------------------


def write_chart(found: Sequence[Found], path: Path) -> bool:
    """Ratios by rows, and seconds of a pass by its bytes. False: there is nothing to draw."""
    import matplotlib
    from matplotlib.figure import Figure

    fits, passes = of(found, "rows"), passes_of(found)
    if not fits:
        return False
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for engine, style in (("local", "o-"), ("spark", "s--")):
        own = [f for f in fits if f.case.engine == engine]
        left.plot([f.case.count for f in own], [f.ratio for f in own], style, label=engine)
    left.set(xscale="log", xlabel="rows", ylabel="fit / bare read", ylim=(0, None))
    left.legend()
    if passes:
        loads = [p.amount / p.cores for p in passes]
        right.plot([x / 1e6 for x in loads], [p.seconds for p in passes], ".")
        line, ends = fitted(passes), [0.0, max(loads)]
        right.plot([x / 1e6 for x in ends], [line.seconds(x, 1) for x in ends], "-")
    right.set(xlabel="MB of active rows per core", ylabel="seconds a pass", ylim=(0, None))
    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "redcal", "svg.fonttype": "none"}):
        figure.savefig(text, format="svg", metadata={"Date": None})
    path.write_text(text.getvalue(), encoding="utf-8")
    return True
