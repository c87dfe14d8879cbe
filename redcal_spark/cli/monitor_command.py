"""`redcal monitor`: does the last fit still hold on rows that got their labels since?"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Sequence

from rich.table import Table

from redcal_spark.certificate.intervals import Interval
from redcal_spark.certificate.monitor import Monitored, PatchOnNewRows
from redcal_spark.cli.open_job import job_of
from redcal_spark.cli.results import aside, console_of, model_names, refresh_report
from redcal_spark.cli.tables import Shown, columns_of, event_words
from redcal_spark.core.number_text import cost_texts, plural, share_text, weight_text
from redcal_spark.runs.monitor import Watch, monitor, record

LISTED = 20  # patches that are shown: those that hurt or drifted first


def watch(options: argparse.Namespace) -> int:
    job = job_of(options)
    seen = monitor(job, options.run, options.table)
    version = None if options.dry_run else record(job, seen)
    if version is not None:
        refresh_report(job, seen.row)
    if options.json:
        written = None if version is None else {job.tables.metrics: version}
        print(json.dumps(seen.to_json() | {"outputs": written or {}}))
    elif not options.quiet:
        console = console_of(options)
        for part in parts(seen, model_names(job)):
            console.print(part, soft_wrap=isinstance(part, str))
        if version is not None:
            print(f"\n  metrics  {job.tables.metrics}, version {version}")
    failed = [name for name in options.fail_on if name in seen.alerts]
    for name in failed:
        text = f"redcal monitor: --fail-on {name}: {seen.alerts[name]}"
        aside(options, text, logging.ERROR)
    return 1 if failed else 0


def parts(seen: Watch, models: Sequence[str]) -> list[Shown]:
    """What is shown: losses, masses, patches; and what is wrong for certain."""
    monitored = seen.monitored
    if monitored is None:
        return [f"nothing to monitor: {seen.alerts['no_rows']}"]
    weights, count = monitored.weights, monitored.rows
    rows = plural(count if weights is None else weights["rows"], "new labelled row")
    weighted = (
        ""
        if weights is None
        else f", weighted: they count as {weight_text(count, monitored.pair.columns.unit)}"
    )
    which = f"{rows} of {seen.table}{weighted}, by the model of run {seen.row.run_id}"
    shown: list[Shown] = [which, ""]
    shown += [_losses(monitored, models)]
    if monitored.masses:
        shown += ["", _masses(monitored)]
    if monitored.patches:
        shown += ["", *_patches(monitored)]
    sure = f"{float(1 - monitored.delta) * 100:g} %"
    shown += ["", f"all intervals hold together with {sure} confidence"]
    for name, why in seen.alerts.items():
        shown.append(f"ALERT {name}: {why}")
    if not seen.alerts:
        shown.append("no alert: nothing is wrong for certain")
    return shown


def _losses(monitored: Monitored, models: Sequence[str]) -> Table:
    table = columns_of(["cost of new rows"], ["before", "after", "change", "interval"])
    table.add_column("")
    for each in monitored.losses:
        change = each.after - each.before
        texts = cost_texts(map(float, (each.before, each.after, change)))
        name = f"{each.loss}: {models[each.model - 1]}"
        table.add_row(name, *texts, _ends(each.interval), each.verdict)
    return table


def _masses(monitored: Monitored) -> Table:
    eta, names = monitored.pair.resolved.eta, monitored.pair.columns.model_names
    assert eta is not None
    heads = ["rows", "share", "interval", "eta", "2 eta"]
    table = columns_of(["largest event left"], heads)
    table.add_column("")
    for each in monitored.masses:
        actions = monitored.pair.losses[monitored.pair.losses.place(each.loss)].actions
        event = f"{actions[each.a1]} / {actions[each.a2]}" if each.rows else "none"
        if names is not None and each.rows:
            event += f" ({' / '.join(names[model - 1] for model in each.models)})"
        name = f"{each.loss}: {event}"
        bounds = share_text(eta), share_text(2 * eta)
        share = share_text(each.share)
        rows = weight_text(each.rows, monitored.pair.columns.unit)
        table.add_row(name, rows, share, _ends(each.interval, True), *bounds, each.verdict)
    return table


def _patches(monitored: Monitored) -> list[Shown]:
    def odd(each: PatchOnNewRows) -> tuple[bool, bool, int]:
        return each.verdict != "rose", not each.drifted, each.patch.step

    heads = ["share\nfitted", "share\nnew", "interval", "change\nof cost", "interval"]
    losses, names = monitored.pair.losses, monitored.pair.columns.model_names
    table = columns_of(["patch", "model"], heads)
    table.add_column("")
    order = sorted(monitored.patches, key=odd)[:LISTED]
    for each in sorted(order, key=lambda each: each.patch.step):
        where = f"{each.patch.step}: {event_words(each.patch, losses, names)}"
        own = str(each.patch.model) if names is None else names[each.patch.model - 1]
        shares = share_text(each.fitted_share), share_text(each.share)
        change = "" if each.change is None else f"{float(each.change):+.3g}"
        said: list[str] = [each.verdict] if each.verdict != "undecided" else []
        said += ["drifted"] if each.drifted else []
        cells = (*shares, _ends(each.share_interval, True), change, _ends(each.interval))
        table.add_row(where, own, *cells, ", ".join(said))
    left = len(monitored.patches) - LISTED
    return (
        [table] if left <= 0 else [table, f"... and {plural(left, 'more patch', 'more patches')}"]
    )


def _ends(interval: Interval | None, percent: bool = False) -> str:
    if interval is None:
        return ""
    low, high = float(interval.low), float(interval.high)
    return f"{low * 100:.2f}-{high * 100:.2f} %" if percent else f"{low:+.3g} to {high:+.3g}"
