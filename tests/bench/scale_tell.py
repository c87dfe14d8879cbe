"""The tables and the chart of `make bench-scale`, from its results; ready for a result file."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from tests.bench.cost_model import fitted
from tests.bench.scale_cluster import cluster, passes_of
from tests.bench.scale_found import Found, by_problem, of, table, that_differ
from tests.bench.scale_plan import Case
from tests.bench.tables import MEMORY
from tests.bench.timing import seconds

MIB = 2**20
PROMISED = {"worker": 512 * MIB}
BESIDE = 500 * MIB  # of the driver, beside its budget
AT_MOST = 1.2  # times the ratio at the size before


def markdown(found: Sequence[Found]) -> str:
    """Everything; what was not measured is left out."""
    parts = [
        *_rows(of(found, "rows")),
        *_logs(found),
        *_memory([f for f in found if "peaks" in f.told]),
        *_applied(of(found, "apply")),
        *_worst(of(found, "worst")),
        *_columns(found),
        *_series(found),
        *cluster(found),
    ]
    return "\n\n".join(parts)


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
        how, told = one.case.how, one.told
        growth = one.ratio / before[how] if how in before else None
        before[how] = one.ratio
        lines.append(
            (
                how, f"{one.case.count:,}", seconds(told["seconds"]), seconds(told["bare"]),
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
        lines.append(f"- {one.case.how}, {one.case.count:,} rows: {spent}")
    return ["\n".join(lines)]


def _logs(found: Sequence[Found]) -> list[str]:
    groups, differ = by_problem(found), that_differ(found)
    if not groups:
        return []
    fits = f"Patch logs: {sum(map(len, groups))} fits of {len(groups)} tables"
    if differ:
        return [f"{fits}, of which **some differ**: {'; '.join(one.case.name for one in differ)}"]
    return [f"{fits}, each fitted in several ways; for each table all logs are the same."]


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


# --- models, weights ------------------------------------------------------------------------------


def _columns(found: Sequence[Found]) -> list[str]:
    """Against the first of the same engine; of more models, the time for each two of them."""
    parts = []
    for series, over in (("models", " over M / 2"), ("weights", "")):
        first: dict[str, Found] = {}
        lines = []
        for one in of(found, series):
            told, case = one.told, one.case
            base = first.setdefault(case.how, one).told
            share = case.rows.models / 2
            fit = told["seconds"] / share / base["seconds"]
            scan = told["phases"]["scan"] / share / base["phases"]["scan"]
            lines.append(
                (
                    case.rows.models if series == "models" else case.weights, case.how,
                    f"{case.count:,}", f"{one.active_rows / case.count:.1%}",
                    seconds(told["seconds"]), seconds(told["bare"]), f"{one.ratio:.2f}x",
                    seconds(told["phases"]["scan"]), told["patches"],
                    f"{scan:.2f}x", f"{fit:.2f}x",
                )
            )  # fmt: skip
        against = "two" if series == "models" else "none"
        heads = [
            series, "engine", "rows", "active", "`fit`", "bare read", "ratio", "scan", "patches",
            f"scan{over}, against {against}", f"`fit`{over}, against {against}",
        ]  # fmt: skip
        if lines:
            parts.append(table(heads, lines))
    return parts


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
    for how, style in (("local", "o-"), ("spark direct", "s--"), ("spark DataFrame", "^:")):
        own = [f for f in fits if f.case.how == how]
        left.plot([f.case.count for f in own], [f.ratio for f in own], style, label=how)
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
