"""The report: where it goes, and that every number on it is that of the tables, counted anew."""

from __future__ import annotations

import json
import math
import re
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests import oracle
from tests.e2e.work import CLASSES, LOSSES, Work, problem, scores, split_rows, write
from tests.report_pages import Element, is_rounded, numbers, read_page

REPORT = Path("out/rows_report.html")
SLOW = pytest.mark.slow
FOLDS = {"fit": "train", "holdout": "test"}
WHENS = {"before": "", "after": "_reconciled"}


def page(path: Path = REPORT) -> Element:
    return read_page(path.read_text(encoding="utf-8"))


# --- the numbers ----------------------------------------------------------------------------------


class Anew:
    """One split at one moment, counted from scores on the grid by plain loops."""

    def __init__(self, given: oracle.Problem, f1: Any, f2: Any):
        self.given = given
        self.f = {1: f1, 2: f2}
        self.y = oracle.grid_labels(given)
        self.n = len(self.y)
        self.acts = {}
        for name, costs in given.losses.items():
            loss = oracle.quantise_loss(costs)
            self.acts[name] = [
                [oracle.argmin(oracle.action_scores(loss, row)) for row in f] for f in (f1, f2)
            ]

    def brier(self, model: int) -> Fraction:
        return Fraction(oracle.brier_sum(self.f[model], self.y), self.n << 52)

    def cost(self, loss: str, model: int) -> Fraction:
        return oracle.decision_loss(self.given, loss, self.f[model])

    def loss_gap(self, loss: str, model: int) -> Fraction:
        return self.cost(loss, model) - oracle.decision_loss(self.given, loss, self.y)

    def rows(self, loss: str, model: int, action: int) -> list[int]:
        return [i for i, a in enumerate(self.acts[loss][model - 1]) if a == action]

    def pair(self, loss: str, a1: int, a2: int) -> Fraction:
        found = sum((a, b) == (a1, a2) for a, b in zip(*self.acts[loss], strict=True))
        return Fraction(found, self.n)

    def apart(self, loss: str) -> Fraction:
        return Fraction(sum(a != b for a, b in zip(*self.acts[loss], strict=True)), self.n)

    def spent(self, loss: str, model: int, action: int) -> Fraction:
        costs = [oracle.exact(c) for c in self.given.losses[loss][action]]
        rows = self.rows(loss, model, action)
        total = sum(
            (c * y for i in rows for c, y in zip(costs, self.y[i], strict=True)), Fraction(0)
        )
        return total / (self.n << 26)

    def squared_gap(self, loss: str, model: int, action: int) -> Fraction:
        run = oracle.Run(self.given, self.y)
        run.f = self.f
        sums = run.residual_sums(model, self.rows(loss, model, action))
        return Fraction(oracle.dot(sums, sums), (self.n << 26) ** 2)

    def events(self) -> dict[tuple[str, int, int], int]:
        run = oracle.Run(self.given, self.y)
        run.f = self.f
        return {(loss, a1, a2): len(rows) for loss, a1, a2, rows in run.events()}


def grids(part: pa.Table, suffix: str) -> tuple[Any, Any]:
    """The written scores, quantised again."""
    one, two = (oracle.grid_scores(part[f"{name}{suffix}"].to_pylist()) for name in ("a", "b"))
    return one, two


def expected(work: Work, shown: Element, **parameters: Any) -> dict[str, Fraction | float]:
    """Every number that a report may show, from the tables alone; of the steps, those it shows."""
    written = work.table().sort_by("case")
    log = work.redcal("log", "--json").lines
    found: dict[str, Fraction | float] = {
        "rows": Fraction(written.num_rows),
        "patches": Fraction(len(log)),
        "losses": Fraction(len(LOSSES)),
        "without a label": Fraction(written["outcome"].null_count),
        "unusable": Fraction(0),
    }
    steps = {int(of.split("/")[-1]) for of in numbers(shown) if "/step/" in of}
    assert steps <= {row["step"] for row in work.table("out/rows_history").to_pylist()}
    for split, fold in FOLDS.items():
        part = split_rows(written, fold)
        given = problem(part, **parameters)
        found[f"{split}/rows"] = Fraction(part.num_rows)
        for when, suffix in WHENS.items():
            anew = Anew(given, *grids(part, suffix))
            found |= of_point(split, when, anew)
            if (split, when) == ("fit", "before") and given.alpha is not None:
                for (loss, a1, a2), count in anew.events().items():
                    found[f"fit/{loss}/event/{a1}/{a2}/rows"] = Fraction(count)
                    found[f"fit/{loss}/event/{a1}/{a2}/mass"] = Fraction(count, anew.n)
        for step in steps:
            anew = Anew(given, *oracle.replay(given, log[:step]))
            for model in (1, 2):
                found[f"{split}/brier/{model}/step/{step}"] = float(anew.brier(model))
                for loss in LOSSES:
                    gap = float(anew.loss_gap(loss, model))
                    found[f"{split}/{loss}/loss_gap/{model}/step/{step}"] = gap
            for loss in LOSSES:
                found[f"{split}/{loss}/disagreement/step/{step}"] = float(anew.apart(loss))
            found[f"{split}/mean_cost/step/{step}"] = float(rescaled_cost(anew))
    found |= of_decisions(split_rows(written, "test"), parameters)
    return found | of_rounds(work.table("out/rows_patches").sort_by("step").to_pylist())


def rescaled_cost(anew: Anew) -> Fraction:
    """The mean of both models and all losses, the costs of each loss rescaled to [0, 1].

    The report knows the costs by the history, whose cells are floats.
    """
    told = []
    for loss, given in LOSSES.items():
        flat = [Fraction(repr(float(cost))) for row in given["costs"] for cost in row]
        least, most = min(flat), max(flat)
        cells = [Fraction(float(anew.cost(loss, model))) for model in (1, 2)]
        told += [(cell - least) / (most - least) for cell in cells]
    return Fraction(sum(told)) / len(told)


def of_point(split: str, when: str, anew: Anew) -> dict[str, Fraction | float]:
    found: dict[str, Fraction | float] = {}
    largest = 0.0
    for model in (1, 2):
        found[f"{split}/brier_{model}/{when}"] = anew.brier(model)
    for loss, given in LOSSES.items():
        actions = range(len(given["costs"]))
        found[f"{split}/{loss}/disagreement/{when}"] = anew.apart(loss)
        for model in (1, 2):
            found[f"{split}/{loss}/cost_{model}/{when}"] = anew.cost(loss, model)
            for action in actions:
                rows = len(anew.rows(loss, model, action))
                place = f"{action}/{model}/{when}"
                found[f"{split}/{loss}/mass/{place}"] = rows / anew.n
                found[f"{split}/{loss}/spent/{place}"] = anew.spent(loss, model, action)
                gap = math.sqrt(anew.squared_gap(loss, model, action))
                largest = max(largest, gap)
                # McDiarmid: sqrt(rows) (1 + sqrt(ln 20)) of n, for 95 %
                margin = math.sqrt(rows) / anew.n * (1 + math.sqrt(math.log(1 / (1 - 0.95))))
                found[f"{split}/{loss}/gap/{place}"] = gap
                found[f"{split}/{loss}/gap/{place}/low"] = max(0.0, gap - margin)
                found[f"{split}/{loss}/gap/{place}/high"] = gap + margin
        for a1 in actions:
            for a2 in actions:
                found[f"{split}/{loss}/{when}/pair/{a1}/{a2}"] = anew.pair(loss, a1, a2)
    return found | {f"{split}/largest_gap/{when}": largest}


def of_decisions(part: pa.Table, parameters: dict[str, Any]) -> dict[str, Fraction | float]:
    """What the one who signs reads: rows and money of every move, counted row by row."""
    given = problem(part, **parameters)
    was, now = (Anew(given, *grids(part, suffix)) for suffix in WHENS.values())
    n = was.n
    moved = [sum(a != b for a, b in zip(was.f[m], now.f[m], strict=True)) for m in (1, 2)]
    either = sum(part["touched"].to_pylist())
    found: dict[str, Fraction | float] = {
        "holdout/touched": Fraction(either),
        "holdout/touched/share": Fraction(either, n),
        **{f"holdout/touched/{m}": Fraction(moved[m - 1]) for m in (1, 2)},
    }
    for loss in LOSSES:
        of = f"holdout/{loss}"
        costs = [[oracle.exact(c) for c in row] for row in given.losses[loss]]
        spent = [1000 * now.cost(loss, model) for model in (1, 2)]
        found |= {f"{of}/cost_of_1000/{m}": spent[m - 1] for m in (1, 2)}
        found[f"{of}/use/gap"] = abs(spent[0] - spent[1])
        squares = 0.0
        for a1, line in enumerate(costs):
            for a2, other in enumerate(costs):
                rows = now.pair(loss, a1, a2) * n
                if a1 != a2:
                    found[f"{of}/dispute/{a1}/{a2}"] = rows
                    apart = [float(x) - float(y) for x, y in zip(line, other, strict=True)]
                    squares += int(rows) * (max(apart) - min(apart)) ** 2
        # Hoeffding, for 95 %: one row moves the sum by as much as its two actions are apart
        found[f"{of}/use/margin"] = 1000 * (math.sqrt(squares * math.log(2 / (1 - 0.95)) / 2) / n)
        found[f"{of}/dispute/rows"] = now.apart(loss) * n
        found[f"{of}/dispute/share"] = now.apart(loss)
        for model in (1, 2):
            path, changed, total = f"{of}/moves/{model}", 0, Fraction(0)
            both = list(zip(was.acts[loss][model - 1], now.acts[loss][model - 1], strict=True))
            for b in range(len(costs)):
                for a in range(len(costs)):
                    some = [i for i, pair in enumerate(both) if pair == (b, a)]
                    found[f"{path}/matrix/{b}/{a}"] = Fraction(len(some))
                    if a != b:
                        price = sum(
                            (costs[a][k] - costs[b][k]) * was.y[i][k]
                            for i in some
                            for k in range(len(CLASSES))
                        )
                        price = Fraction(price) / 2**26
                        found[f"{path}/{b}/{a}/rows"] = Fraction(len(some))
                        found[f"{path}/{b}/{a}/cost"] = price
                        changed, total = changed + len(some), total + price
            assert total == n * (now.cost(loss, model) - was.cost(loss, model))
            found |= {
                f"{path}/rows": Fraction(changed),
                f"{path}/share": Fraction(changed, n),
                f"{path}/cost": total,
                f"{path}/per_1000": 1000 * total / n,
            }
    return found


def of_rounds(log: list[Any]) -> dict[str, Fraction | float]:
    found: dict[str, Fraction | float] = {}
    rounds: dict[Any, list[Any]] = {}
    for patch in log:
        rounds.setdefault((patch["round"], patch["model"]), []).append(patch)
    for (number, model), patches in rounds.items():
        of = f"round/{'all' if number is None else number}/{model}"
        first = patches[0]["rows"] if number is not None else max(p["rows"] for p in patches)
        moved = max((x for p in patches for x in p["phi"]), key=abs)
        found |= {
            f"{of}/rows": Fraction(first),
            f"{of}/patches": Fraction(len(patches)),
            f"{of}/largest": Fraction(moved, 2**26),
        }
    return found


def of_certificate(work: Work) -> dict[str, str]:
    """The numbers of the certificate in the ledger, in the user's units."""
    checks = json.loads(work.runs()[-1]["certificate"])["checks"]
    found: dict[str, str] = {}
    for place, check in enumerate(checks):
        scale = Fraction(check["scale"])
        if check["name"] == "decision_loss":
            costs = [oracle.exact(c) for row in LOSSES[check["loss"]]["costs"] for c in row]
            assert scale == max(costs) - min(costs)
        ends = check["interval"] or {}
        for part in ("measured", "bound", "low", "high"):
            number = check.get(part) or ends.get(part)
            if number is not None:
                root = re.fullmatch(r"sqrt\((.*)\)", number["exact"])
                value = Fraction(root[1]) * scale**2 if root else Fraction(number["exact"]) * scale
                told = f"{value.numerator}/{value.denominator}"
                found[f"certificate/{place}/{part}"] = f"sqrt({told})" if root else told
    return found


def assert_true_numbers(work: Work, shown: Element, known: dict[str, Fraction | float]) -> int:
    certificate = of_certificate(work)
    told = numbers(shown)
    own = [of for of in told if of.split("/")[0] not in ("certificate", "parameters")]
    assert set(own) <= set(known), sorted(set(own) - set(known))[:5]
    for of, values in told.items():
        for value, text in values:
            if of.startswith("parameters/"):
                continue
            if of.startswith("certificate/"):
                assert value == certificate[of], of
                root = re.fullmatch(r"sqrt\((.*)\)", value)
                exact = math.sqrt(Fraction(root[1])) if root else Fraction(value)
                assert is_rounded(text, Fraction(exact)), (of, text)
                continue
            true = known[of]
            if isinstance(true, float):
                assert value == repr(true), of
            else:
                assert Fraction(value) == true, of
            if of.split("/")[2:4] in (["before", "pair"], ["after", "pair"]) and text not in "·<.1":
                text += " %"  # cells of a heat map have no room for the sign
            assert is_rounded(text, Fraction(true)), (of, text, true)
    return len(own)


@pytest.mark.parametrize("algorithm", ["redcal", pytest.param("dc_then_redcal", marks=SLOW)])
def test_every_number_is_that_of_the_tables(work: Work, algorithm: str) -> None:
    work.tree["reconcile"]["algorithm"] = algorithm
    work.ran()
    shown = page()
    known = expected(work, shown, algorithm=algorithm)
    assert assert_true_numbers(work, shown, known) > 200
    # what must be there, whatever the page's form
    told = numbers(shown)
    for loss in LOSSES:
        for of in (
            "dispute/rows",
            "use/gap",
            *(f"moves/{m}/{x}" for m in (1, 2) for x in ("rows", "cost")),
        ):
            assert f"holdout/{loss}/{of}" in told
    assert any("/matrix/" in of for of in told)
    for split in FOLDS:
        for loss, given in LOSSES.items():
            for when in WHENS:
                assert f"{split}/{loss}/disagreement/{when}" in told
                for a1 in range(len(given["costs"])):
                    for a2 in range(len(given["costs"])):
                        assert f"{split}/{loss}/{when}/pair/{a1}/{a2}" in told
    for loss, given in LOSSES.items():
        for model in (1, 2):
            for when in WHENS:
                spent = [
                    Fraction(next(iter(told[f"holdout/{loss}/spent/{action}/{model}/{when}"]))[0])
                    for action in range(len(given["costs"]))
                ]
                assert sum(spent) == known[f"holdout/{loss}/cost_{model}/{when}"]


def test_the_ledger_keeps_audits_without_pairs(work: Work) -> None:
    work.ran()
    kept = json.loads(work.runs()[-1]["audits"])
    assert set(kept) == {"fit", "holdout"}
    for split, audits in kept.items():
        for audit in audits.values():
            assert audit["rows"] == split_rows(work.table(), FOLDS[split]).num_rows
            assert [loss["loss"] for loss in audit["losses"]] == list(LOSSES)
            assert not any("pairs" in loss for loss in audit["losses"])


def test_no_number_on_the_page_goes_untested(work: Work) -> None:
    """Numbers that are not told by `data` stand in names, dates, versions, axes and words."""
    work.ran()
    shown = page()
    for element in shown.all("data"):
        of = element.attributes.get("data-n")
        assert of is not None or re.fullmatch(r"[\d,]+", element.words)  # a step, in a table
    for tile in shown.all("li", class_="tile"):
        assert len(tile.all("data")) == 2
    for row in shown.one("section", id="costs").all("li", class_="barrow"):
        assert len(row.all("data")) == 4


@pytest.mark.slow
def test_charts_are_drawn_where_the_numbers_are(work: Work) -> None:
    """Dots against a scale read off the axis: two ticks say which height is which value."""
    work.ran()
    shown = page()
    known = expected(work, shown)
    charts = shown.one("section", id="steps").all("svg", class_="chart")
    assert len(charts) == 2 + 2 * 3  # Brier; per loss the gap twice, and the disagreement
    dots = 0
    for chart in charts:
        scale = [
            (float(t.attributes["y"].rstrip("%")), number(t.words))
            for t in chart.all("text", class_="end")
        ]
        (y1, v1), (y2, v2) = scale[0], scale[-1]
        label = chart.attributes["aria-label"]
        last = max(
            float(t.words) for t in chart.all("text", class_="tick") if t not in scale_texts(chart)
        )
        for circle in chart.all("circle"):
            title = circle.one("title").words
            found = re.fullmatch(r"(\w+)(?: rows)?, after (\d+) patch(?:es)?: (.*)", title)
            assert found is not None, title
            true = known[key_of(label, found[1], int(found[2]))]
            assert is_rounded(found[3], Fraction(true))
            # coordinates, those of the ticks too, have two digits
            height = y1 + (float(true) - v1) * (y2 - y1) / (v2 - v1)
            assert float(circle.attributes["cy"].rstrip("%")) == pytest.approx(height, abs=0.02)
            across = 100 * int(found[2]) / last
            assert float(circle.attributes["cx"].rstrip("%")) == pytest.approx(across, abs=0.02)
            dots += 1
    assert dots > 50


def scale_texts(chart: Element) -> list[Element]:
    return chart.all("text", class_="end")


def number(text: str) -> float:
    told = text.replace("−", "-").replace(",", "")
    return float(told.removesuffix(" %")) / (100 if told.endswith("%") else 1)


def key_of(label: str, series: str, step: int) -> str:
    """What a dot shows, from the words of its chart."""
    split = "holdout" if "holdout rows:" in label or series == "holdout" else "fit"
    model = {"a": 1, "b": 2}.get(series)
    if label.startswith("Brier"):
        return f"{split}/brier/{model}/step/{step}"
    loss = next(loss for loss in LOSSES if f" {loss}" in label)
    if label.startswith("Decision"):
        return f"{split}/{loss}/loss_gap/{model}/step/{step}"
    return f"{split}/{loss}/disagreement/step/{step}"


def test_the_timeline_has_a_bar_for_every_patch(work: Work) -> None:
    work.ran()
    log = work.redcal("log", "--json").lines
    chart = page().one("section", id="patches").one("svg", class_="chart")
    bars = {}
    for path in chart.all("path"):
        for x, y, height in re.findall(r"M([\d.]+) ([\d.]+)h[\d.]+v([\d.]+)", path.attributes["d"]):
            step = int(float(x) * len(log) / 1000)
            bars[step] = (path.attributes["class"], float(y), float(height))
    assert sorted(bars) == [patch["step"] for patch in log]
    tallest = max(log, key=lambda patch: patch["rows"])
    unit = bars[tallest["step"]][2] / tallest["rows"]
    for patch in log:
        style, _, height = bars[patch["step"]]
        assert style.split()[1] == {1: "one", 2: "two"}[patch["model"]]
        assert style.split()[2] == ("opens" if patch["kind"] == "reconcile" else "follows")
        assert height == pytest.approx(max(5, unit * patch["rows"]), abs=0.02)


def test_reconcile_without_losses(work: Work) -> None:
    work.tree["losses"] = None
    work.tree["reconcile"] = {"algorithm": "reconcile", "alpha": 0.1, "eta": 0.05}
    work.ran()
    shown = page()
    told = numbers(shown)
    gap = 2**26 // 10  # floor(alpha * 2^26)
    written = work.table().sort_by("case")
    for split, fold in FOLDS.items():
        part = split_rows(written, fold)
        y = oracle.grid_labels(problem(part))
        for when, suffix in WHENS.items():
            f1, f2 = grids(part, suffix)
            beyond = [
                sum(abs(p[j] - q[j]) > gap for p, q in zip(f1, f2, strict=True))
                for j in range(len(CLASSES))
            ]
            share = Fraction(max(beyond), part.num_rows)
            if split == "holdout":
                assert {Fraction(v) for v, _ in told[f"holdout/largest_class/{when}"]} == {share}
                for model, f in ((1, f1), (2, f2)):
                    brier = Fraction(oracle.brier_sum(f, y), part.num_rows << 52)
                    assert {Fraction(v) for v, _ in told[f"holdout/brier_{model}/{when}"]} == {
                        brier
                    }
            elif when == "before":
                for j, rows in enumerate(beyond):
                    if rows >= 0.05 * part.num_rows:
                        ((value, _),) = told[f"fit/coordinate/{j}/rows"]
                        assert int(value) == rows
            step = 0 if when == "before" else len(work.redcal("log", "--json").lines)
            ((value, _),) = told[f"{split}/apart/step/{step}"]
            assert value == repr(float(share))
    assert not shown.all("section", id="costs")
    assert shown.one("h1").words.startswith("The scores were apart on ")


@pytest.mark.slow
def test_decision_calibration_is_told_by_its_gaps(work: Work) -> None:
    work.tree["reconcile"] = {"algorithm": "decision_calibration"}
    work.ran()
    shown = page()
    known = expected(work, shown, algorithm="decision_calibration", alpha=None, eta=None)
    assert "calibration gap fell" in shown.one("h1").words
    assert_true_numbers(work, shown, known)
    assert "beta" in shown.one("section", id="audit").words


# --- where it goes --------------------------------------------------------------------------------


def test_a_run_ends_with_its_report(work: Work) -> None:
    told = work.redcal("run")
    assert told.code == 0, told.err
    assert f"  report   {REPORT}\n" in told.out
    run = work.runs()[-1]
    text = REPORT.read_text(encoding="utf-8")
    for known in (run["run_id"], run["fingerprint"], run["config_digest"]):
        assert known in text
    assert [p.name for p in Path("out").glob(".*")] == []


def test_the_same_again_keeps_it_and_a_lost_one_is_written_again(work: Work) -> None:
    first = work.ran()
    assert first["report"] == str(REPORT)
    before = REPORT.stat().st_mtime_ns
    assert work.ran()["report"] == str(REPORT)
    assert REPORT.stat().st_mtime_ns == before
    text = REPORT.read_text(encoding="utf-8")
    REPORT.unlink()
    assert work.ran()["unchanged"]
    assert REPORT.read_text(encoding="utf-8") == text
    REPORT.write_text("of another run", encoding="utf-8")
    work.ran()
    assert REPORT.read_text(encoding="utf-8") == text


def test_where_is_no_part_of_what_a_run_is(work: Work) -> None:
    first = work.ran()
    work.tree["output"]["report"] = "pages/night.html"
    again = work.ran()
    assert (again["run_id"], again["unchanged"]) == (first["run_id"], True)
    assert Path("pages/night.html").exists()
    work.tree["output"]["report"] = None
    REPORT.unlink()
    assert work.ran("run", "--force")["report"] is None
    assert not REPORT.exists()


def test_the_command(work: Work) -> None:
    old = work.ran()
    new = work.ran("run", "--set", "reconcile.eta=0.02")
    told = work.redcal("report")
    assert (told.code, told.out) == (0, f"report of run {old['run_id']} in {REPORT}\n")
    later = f"out/rows was written later by run {new['run_id']}, with other settings; --run "
    assert later in told.err  # the table has its rows, and the report is of the other
    assert "written later" in work.redcal("explain", "--id", "1").err
    assert old["run_id"] in REPORT.read_text(encoding="utf-8")
    told = work.redcal("report", "--run", "latest", "-o", "deep/x.html", "--json")
    assert "written later" not in told.err + work.redcal("log", "--set", "reconcile.eta=0.02").err
    assert told.json == {"run_id": new["run_id"], "report": "deep/x.html"}
    assert new["run_id"] in Path("deep/x.html").read_text(encoding="utf-8")
    told = work.redcal("report", "--run", "nope")
    assert (told.code, told.err) == (
        2,
        "redcal report: no run 'nope' with a log in out/rows_runs\n",
    )
    told = work.redcal("report", "-o", "scores.parquet/x.html")
    assert told.code == 2
    assert "scores.parquet/x.html: the report cannot be written: " in told.err


def test_a_fit_has_one_on_demand(work: Work) -> None:
    work.ran("fit")
    assert not REPORT.exists()
    assert work.redcal("report").code == 0
    assert "holdout" in page().one("header").words


def test_no_jinja2_is_a_line_not_a_failure(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    told = work.redcal("run")
    assert told.code == 0
    assert told.err.count("no report: the report needs jinja2") == 1
    assert not REPORT.exists()
    told = work.redcal("report")
    assert told.code == 2
    assert told.err == (
        "redcal report: the report needs jinja2, which is not installed; get it with: "
        "pip install 'redcal-spark[report]'\n"
    )


def test_a_place_that_cannot_be_written_is_a_line_not_a_failure(work: Work) -> None:
    work.tree["output"]["report"] = "scores.parquet/x.html"
    told = work.redcal("run")
    assert told.code == 0
    assert "no report: scores.parquet/x.html: the report cannot be written" in told.err
    work.tree["output"]["report"] = "hdfs://bucket/x.html"
    told = work.redcal("run")
    assert (told.code, "output.report: must be a file of this machine" in told.err) == (2, True)


def test_the_demo_ends_with_where_it_is(work: Work) -> None:
    for _ in range(2):
        told = work.cli("demo", "--rows", "4000")
        assert told.code == 0, told.err
        last = told.out.splitlines()[-1]
        assert last == "The report, for your browser: out/demo/triage_report.html"
    assert "model_vitals" in page(Path("out/demo/triage_report.html")).one("header").words


# --- what must not get in -------------------------------------------------------------------------


def test_variables_stay_variables(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = {
        "REDCAL_ROOT": str(work.folder / "hush-folder"),
        "REDCAL_MODEL": "hush_model",
        "REDCAL_ACTION": "hush action",
        "REDCAL_CLASS": "hush class",
    }
    for key, value in secrets.items():
        monkeypatch.setenv(key, value)
    (work.folder / "hush-folder").mkdir()
    table = scores().rename_columns(["case", "outcome", "fold", "note", "hush_model", "b"])
    outcome = ["hush class" if x == "mild" else x for x in table["outcome"].to_pylist()]
    write(table.set_column(1, "outcome", pa.array(outcome)), "hush-folder/scores.parquet")
    work.tree["input"] |= {
        "table": "${REDCAL_ROOT}/scores.parquet",
        "model_1": "${REDCAL_MODEL}",
        "classes": ["${REDCAL_CLASS}", *CLASSES[1:]],
    }
    work.tree["output"]["table"] = "${REDCAL_ROOT}/rows"
    work.tree["losses"]["triage"]["actions"] = ["${REDCAL_ACTION}", "ward", "icu"]
    told = work.redcal("run")
    assert told.code == 0, told.err
    text = (work.folder / "hush-folder/rows_report.html").read_text(encoding="utf-8")
    assert "hush" not in text
    for key in secrets:
        assert f"${{{key}}}" in text
