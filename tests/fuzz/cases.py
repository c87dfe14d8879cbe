"""Cases per target: what is spoiled, and the command that meets it."""

from __future__ import annotations

import json
from typing import Any

import yaml
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from redcal_spark.config.input import Input
from redcal_spark.config.schema import EngineSection, Output, Reconcile
from redcal_spark.config.section import Section
from tests.fuzz import base
from tests.fuzz.harness import Case
from tests.fuzz.mutations import (
    WORDS,
    meant_for,
    spoiled_bytes,
    spoiled_text,
    spoiled_tree,
    texts,
    values,
)
from tests.fuzz.odd_tables import odd_parquet

# `check` is the quickest and reads all there is to read; the others go further.
READERS = ["check"] * 6 + ["audit"] * 2 + ["fit", "run"]
SECTIONS: dict[str, type[Section]] = {
    "input": Input,
    "reconcile": Reconcile,
    "output": Output,
    "engine": EngineSection,
}
KEYS = [(name, key) for name, section in SECTIONS.items() for key in section.keys()]  # noqa: SIM118


@st.composite
def configs(draw: DrawFn) -> Case:
    """Configurations that were nearly right, wild trees, and no YAML at all."""
    name = draw(st.sampled_from(["reference", "demo", "csv"]))
    tree = base.csv_config() if name == "csv" else base.config(name)
    files = {
        "scores.csv": base.csv_bytes(base.flat_rows()),
        "data/scores": base.reference_parquet(),
        "out/demo/patients": base.demo_parquet(),
        "beds.csv": b"action,healthy,mild,severe\nward,1,2,3\nhome,0,4,9\n",
        "losses.yaml": b"a: {costs: [[0, 1, 2], [2, 1, 0]]}\n",
    }
    kinds = ["keys"] * 24 + ["tree"] * 12 + ["text"] * 8 + ["wild", "bytes", "losses"] * 4
    kinds += ["large"]  # takes seconds
    kind = draw(st.sampled_from(kinds))
    others = ["log", "runs", "evaluate", "export", "resume", "report", "compare"]
    arguments = [draw(st.sampled_from(READERS + others)), "-c", "c.yaml"]
    if kind == "keys":
        for _ in range(draw(st.sampled_from([1, 1, 2]))):
            section, key = draw(st.sampled_from(KEYS))
            tree.setdefault(section, {})[key] = draw(meant_for(key))
        data = _written(draw, tree)
    elif kind == "large":
        data = base.dumped(draw(_large(tree)))
    elif kind == "wild":
        data = _written(draw, draw(values()))
    elif kind == "bytes":
        data = draw(st.binary(max_size=200))
    elif kind == "text":
        if name == "csv":
            text = yaml.safe_dump(tree)
        else:
            text = (base.ROOT / "conf" / f"{name}.yaml").read_text(encoding="utf-8")
        data = draw(spoiled_text(text)).encode("utf-8", "surrogatepass")
    elif kind == "losses":
        file = draw(st.sampled_from(["beds.csv", "losses.yaml"]))
        files[file] = draw(spoiled_bytes(files[file]))
        tree["losses"] = {"beds": {"file": file}} if file == "beds.csv" else file
        data = base.dumped(tree)
    else:
        data = _written(draw, draw(spoiled_tree(tree)))
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        keys = ["input.table", "input.id", "losses.triage.costs", "reconcile.eta", "engine", "a.b"]
        key = draw(st.sampled_from(keys) | texts(20))
        arguments += ["--set", f"{key}={draw(texts(20))}".replace("\0", "")]
    return Case("config", files | {"c.yaml": data}, arguments)


@st.composite
def _large(draw: DrawFn, tree: dict[str, Any]) -> dict[str, Any]:
    """Thousands of what there should be a few of: what takes the square of it would be seen."""
    start = draw(st.sampled_from(["labl", "x", ""]))
    names = [f"{start}{i}" for i in range(8_000)]
    match draw(st.sampled_from(["keys", "sections", "columns", "classes", "partitions", "losses"])):
        case "keys":
            tree["input"] |= dict.fromkeys(names, 1)
        case "sections":
            tree |= dict.fromkeys(names, 1)
        case "columns":
            tree["input"] |= {"model_1": names, "model_2": names[::-1]}
        case "classes":
            tree["input"]["classes"] = names
        case "partitions":
            tree["output"]["partition_by"] = names
        case "losses":
            tree["losses"] = {key: {"costs": [[0, 1, 2], [2, 1, 0]]} for key in names[:100]}
    return tree


def _written(draw: DrawFn, tree: Any) -> bytes:
    """A tree as YAML, by one of several hands."""
    if draw(st.booleans()):
        return json.dumps(tree, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    flow = draw(st.sampled_from([None, False]))
    text: str = yaml.dump(tree, default_flow_style=flow, allow_unicode=True, sort_keys=False)
    return text.encode("utf-8", "surrogatepass")


def _spoiled_model(draw: DrawFn, tree: dict[str, Any]) -> bytes:
    match draw(st.sampled_from(["tree"] * 6 + ["bytes", "text", "wild", "deep"])):
        case "tree":
            return json.dumps(draw(spoiled_tree(tree, most=2))).encode()
        case "bytes":
            return draw(spoiled_bytes(json.dumps(tree).encode()))
        case "text":
            words = [*WORDS, "1e999", "[" * 50, '{"a":' * 50, "9" * 5_000, '"\\ud800"', "NaN"]
            text = draw(spoiled_text(json.dumps(tree), words))
            return text.encode("utf-8", "surrogatepass")
        case "wild":
            return json.dumps(draw(values())).encode()
    depth = draw(st.sampled_from([100, 1_000, 100_000]))
    inner = draw(st.sampled_from(["[", '{"schema_version":']))
    return inner.encode() * depth


@st.composite
def models(draw: DrawFn) -> Case:
    """Model files, applied."""
    flat = draw(st.booleans())
    data = _spoiled_model(draw, base.csv_model() if flat else base.model())
    if flat:
        table, config = ("scores.csv", base.csv_bytes(base.flat_rows())), base.csv_config()
    else:
        table, config = ("scores.parquet", base.reference_parquet()), base.parquet_config()
    files = {"c.yaml": base.dumped(config), "m.json": data, table[0]: table[1]}
    return Case("model", files, ["apply", "-c", "c.yaml", "--model", "m.json"])


@st.composite
def doors(draw: DrawFn) -> Case:
    """Model files made into SQL, and as MLflow keeps them, whose own file may be spoiled, too."""
    tree = base.csv_model() if draw(st.booleans()) else base.model()
    whole = draw(st.integers(0, 4)) == 0
    data = json.dumps(tree).encode() if whole else _spoiled_model(draw, tree)
    if draw(st.booleans()):
        table = draw(st.sampled_from(["t", "a b", *WORDS]))
        dialect = draw(st.sampled_from(["spark", "duckdb", "ansi", "sqlite"]))
        return Case("doors", {"m.json": data}, ["sql", table, dialect])
    own = b"flavors:\n  python_function: {loader_module: redcal_spark.registry.served}\n"
    files = {"model/MLmodel": draw(st.just(own) | spoiled_bytes(own))}
    for place in draw(st.sampled_from([["data"]] * 8 + [[], ["data", "other"]])):
        files[f"model/{place}/pair.json"] = data
    return Case("doors", files, ["mlflow", "model"])


@st.composite
def inits(draw: DrawFn) -> Case:
    """Tables that `init` looks at, one or several, and costs."""
    files: dict[str, bytes] = {}
    names = []
    for number in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        kind = draw(st.sampled_from([csvs, csvs, parquets, deltas]))
        made = draw(kind()).files
        tables = [name for name in made if name not in ("c.yaml", "m.json")]
        files |= {f"{number}/{name}": made[name] for name in tables}
        names.append(f"{number}/{'table' if kind is deltas else min(tables)}")
    arguments = ["init", *names]
    if draw(st.booleans()):
        costs = b"action,healthy,mild,severe\nward,1,2,3\nhome,0,4,9\n"
        files["costs.csv"] = draw(st.just(costs) | spoiled_bytes(costs))
        arguments += ["--costs", "costs.csv"]
    return Case("init", files, arguments)


def _reading(draw: DrawFn, target: str, tree: dict[str, Any], files: dict[str, bytes]) -> Case:
    """A command that reads the table, which may skip rows, or apply a model to them."""
    command = draw(st.sampled_from([*READERS, "apply"]))
    tree["input"]["on_bad_rows"] = draw(st.sampled_from(["error", "skip"]))
    arguments = [command, "-c", "c.yaml"]
    if command == "apply":
        model = base.csv_model() if target == "csv" else base.model()
        files = files | {"m.json": json.dumps(model).encode()}
        arguments += ["--model", "m.json"]
    if command == "check" and draw(st.booleans()):
        arguments.append("--ids")
    if draw(st.integers(0, 3)) == 0:
        tree["output"]["mode"] = draw(st.sampled_from(["merge", "append"]))
    if draw(st.integers(0, 3)) == 0:
        tree["input"]["split"] = {"holdout_fraction": 0.5}
    return Case(target, files | {"c.yaml": base.dumped(tree)}, arguments)


CELLS = [
    "",
    " ",
    "NaN",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "0,5",
    "0.5 ",
    "-0.0",
    "1.0000001",
    "0x1p-3",
    "9" * 60,
    "true",
    "null",
    '"',
    '""',
    '"a\nb"',
    '"a,b',
    "a\0b",
    "2026-01-31",
    "12:30",
    "=1+1",
    "é",
    "x" * 5_000,
    "\r",
    "\u2028",
    "0" * 400 + ".5",
]
ENCODINGS = ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp037", "utf-7"]


@st.composite
def csvs(draw: DrawFn) -> Case:
    """CSV files: odd cells, ragged lines, other encodings, spoiled bytes."""
    rows = [list(row) for row in base.flat_rows()]
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 3]))):
        row = draw(st.sampled_from(rows))
        if not row:
            continue
        place = draw(st.integers(0, len(row) - 1))
        match draw(st.sampled_from(["cell", "cell", "cell", "more", "less", "none", "twice"])):
            case "cell":
                row[place] = draw(st.sampled_from(CELLS) | st.text(max_size=6))
            case "more":
                row.insert(place, draw(st.sampled_from(CELLS)))
            case "less":
                del row[place]
            case "none":
                row.clear()
            case "twice":
                rows.append(list(row))
    if draw(st.booleans()):
        data = base.csv_bytes(rows)
    else:  # without quotes around what needs them
        end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
        data = end.join(",".join(row) for row in rows).encode("utf-8", "surrogatepass")
    match draw(st.sampled_from(["as is"] * 4 + ["bytes"] * 3 + ["encoded", "long", "empty"])):
        case "bytes":
            data = draw(spoiled_bytes(data))
        case "encoded":
            text = data.decode("utf-8", "replace")
            data = text.encode(draw(st.sampled_from(ENCODINGS)), "replace")
        case "long":
            new = draw(st.sampled_from([b"x", b",", b'"', b"\n", b"\0", b"1", b'","']))
            place = draw(st.integers(0, 100) | st.integers(0, len(data)))
            data = (
                data[:place] + new * draw(st.sampled_from([10**4, 10**6, 2 * 10**6])) + data[place:]
            )
        case "empty":
            data = draw(st.sampled_from([b"", b"\n", b"\xef\xbb\xbf", b",", data.split(b"\n")[0]]))
    tree = base.csv_config()
    name = draw(st.sampled_from(["scores.csv"] * 6 + ["scores.csv.gz", "part/fold=1/scores.csv"]))
    tree["input"]["table"] = "part" if name.startswith("part/") else name
    if draw(st.integers(0, 5)) == 0:
        tree["input"]["separator"] = draw(st.sampled_from([";", "\t", " ", "|", "é", "\\", "1"]))
    return _reading(draw, "csv", tree, {name: data})


@st.composite
def parquets(draw: DrawFn) -> Case:
    """Parquet files: bits flipped, ends cut, other types than asked for."""
    tree = base.parquet_config()
    if draw(st.booleans()):
        data = base.reference_parquet()
    else:
        data = draw(odd_parquet())
    if draw(st.integers(0, 4)) < 3:
        data = draw(spoiled_bytes(data, tail=True))
    if draw(st.integers(0, 5)) == 0:
        tree["input"].pop("classes")
    return _reading(draw, "parquet", tree, {"scores.parquet": data})


@st.composite
def deltas(draw: DrawFn) -> Case:
    """Delta tables whose log or files were tampered with."""
    tree = base.parquet_config()
    files = dict(base.delta_files())
    for _ in range(draw(st.integers(1, 2))):
        name = draw(st.sampled_from(sorted(files)))
        match draw(st.sampled_from(["log", "log", "bytes", "gone", "copied"])):
            case "log" if name.endswith(".json"):
                try:
                    lines = files[name].decode().splitlines()
                    place = draw(st.integers(0, max(0, len(lines) - 1)))
                    entry = json.loads(lines[place])
                except (ValueError, IndexError):  # spoiled already
                    continue
                lines[place] = json.dumps(draw(spoiled_tree(entry, most=2)))
                files[name] = "\n".join(lines).encode()
            case "gone":
                del files[name]
            case "copied":
                files[draw(st.sampled_from(sorted(files)))] = files[name]
            case _:
                files[name] = draw(spoiled_bytes(files[name]))
        if not files:
            break
    tree["input"]["table"] = "table"
    if draw(st.integers(0, 3)) == 0:
        times = ["2020-01-01", "2100-01-01", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00+12:00"]
        tree["input"]["version"] = draw(st.sampled_from([0, 1, 2, 10**30, *times]))
    found = {f"table/{name}": data for name, data in files.items()}
    return _reading(draw, "delta", tree, found or {"table/x": b""})


TARGETS: dict[str, SearchStrategy[Case]] = {
    "config": configs(),
    "model": models(),
    "csv": csvs(),
    "parquet": parquets(),
    "delta": deltas(),
    "doors": doors(),
    "init": inits(),
}
SHARES = {"config": 25, "model": 15, "csv": 15, "parquet": 15, "delta": 10, "doors": 10, "init": 10}
