"""A run that was damaged or edited: each command that reads runs refuses it, naming the file; none crashes or warns."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

NAN, INF = float("nan"), float("inf")
COMMANDS: dict[str, tuple[Any, ...]] = {
    "metrics": ("metrics", "bad"),
    "metrics --by": ("metrics", "bad", "--by", "gpu_type"),
    "metrics --warmup": ("metrics", "bad", "--warmup", "10%"),
    "compare": ("compare", "good", "bad"),
    "report": ("report", "good", "bad", "-o", "out/page.html"),
    "figures": ("figures", "bad", "-o", "out/figures", "--format", "png"),
    "timeline": ("timeline", "bad", "-o", "out/timeline.json"),
    "explain": ("explain", "bad", "a"),
    "audit": ("audit", "bad"),
}
Damage = Callable[[Path], object]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three jobs on two nodes, as the command line writes it."""
    from sim.settings.config import load_config
    from sim.sweeps.replay import Replay

    folder = tmp_path_factory.mktemp("damaged")
    (folder / "jobs.csv").write_text("job_id,submit_s,duration_s,num_gpus\na,0,100,1\nb,10,50,2\nc,20,30,1\n")
    settings = {"policy": "las", "trace": str(folder / "jobs.csv"), "cluster": "v100:2x2", "work": "recorded"}
    Replay(load_config(None, settings)).play().write(folder / "good")
    return folder / "good"


@pytest.fixture
def bad(good: Path, here: Path) -> Path:
    """A copy to damage, beside one that stays whole."""
    for name in ("good", "bad"):
        shutil.copytree(good, here / name)
    (here / "out").mkdir()
    return here / "bad"


def put(table: str, column: str, value: Any, row: int | None = 1) -> Damage:
    """Write a value into one row of a column, or (None) into all."""

    def damage(folder: Path) -> None:
        file = folder / f"{table}.parquet"
        content = pq.read_table(file)
        at = content.schema.get_field_index(column)
        values = content[column].to_pylist()
        values = [value] * len(values) if row is None else [*values[:row], value, *values[row + 1 :]]
        field = content.schema.field(at)
        pq.write_table(content.set_column(at, field, pa.array(values, field.type)), file)

    return damage


def rows(table: str, chosen: Callable[[pa.Table], pa.Table]) -> Damage:
    """Choose other rows of a table."""

    def damage(folder: Path) -> None:
        file = folder / f"{table}.parquet"
        pq.write_table(chosen(pq.read_table(file)), file)

    return damage


def say(key: str, value: Any) -> Damage:
    """Write a value under a key of run.json, such as trace.counts."""

    def damage(folder: Path) -> None:
        file = folder / "run.json"
        part = info = json.loads(file.read_text())
        *path, last = key.split(".")
        for name in path:
            part = part[name]
        part[last] = value
        file.write_text(json.dumps(info))

    return damage


def turned(table: pa.Table) -> pa.Table:
    return table.take(list(range(len(table)))[::-1])


def twice(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table])


def emptied(table: pa.Table) -> pa.Table:
    return table.slice(0, 0)


def flipped(folder: Path) -> None:
    """Bytes of a text column that are no UTF-8 any more."""
    file = folder / "jobs.parquet"
    table = pq.read_table(file)
    ids = pa.Array.from_buffers(pa.binary(), 3, pa.array([b"a", b"\xff", b"c"]).buffers()).view(pa.string())
    pq.write_table(table.set_column(0, table.schema.field(0), ids), file)


DAMAGES: dict[str, tuple[Damage, str]] = {
    # what is done, what the message names
    **{f"{t}.{c}={v}": (put(t, c, v, r), f"{t}.parquet, column '{c}', row {r or 0}") for t, c, r, values in (
        ("segments", "begin_s", 1, (None, NAN, -INF, 1e300)),
        ("segments", "end_s", None, (None, NAN, INF)),
        ("segments", "gpus", 1, (None, [NAN], [INF], [-1.0], [0.0])),
        ("segments", "nodes", 1, (None, [-1], [7])),
        ("segments", "gpu_ids", 1, (None, [], [-1], [1_000_000])),
        ("segments", "gpu_milli", 1, (None, 0, -5, 2_000)),
        ("segments", "overhead_s", None, (None, NAN, -1.0, 1e300)),
        ("segments", "rate", 1, (None, INF, -1.0)),
        ("segments", "work_done", 1, (NAN, -1.0)),
        ("segments", "work_lost", 1, (None, -1.0, 1e300)),
        ("segments", "end_reason", 1, (None, "stopped")),
        ("segments", "job_id", 1, (None,)),
        ("jobs", "job_id", 1, (None,)),
        ("jobs", "submit_s", 1, (None, NAN, 1e300)),
        ("jobs", "first_start_s", 1, (NAN, INF)),
        ("jobs", "end_s", 1, (INF, 1e300)),
        ("jobs", "num_gpus", 1, (None, 0, -3)),
        ("jobs", "duration_s", 1, (None, -1.0, INF)),
        ("jobs", "deadline_s", 1, (INF,)),
        ("jobs", "work_total", None, (NAN, -1.0)),
        ("jobs", "gpu_type", 1, (None,)),
        ("jobs", "state", 1, (None, "finished")),
        ("nodes", "node", None, (None, -1)),
        ("nodes", "gpus", 1, (None, 0, 2**31 - 1)),
        ("nodes", "gpu_type", 1, (None,)),
        ("nodes", "price_usd_per_gpu_h", 1, (NAN, INF, -1.0)),
        ("nodes", "idle_w", 1, (-5.0,)),
        ("nodes", "down_s", 1, (None, [NAN], [INF])),
        ("decisions", "now_s", 1, (None, NAN, 1e300)),
        ("decisions", "queued", 1, (None, -1)),
    ) for v in values},
    "a lone node of a list too many": (put("segments", "nodes", [0, 1]), "segments.parquet, column 'gpus', row 1"),
    "a segment of another job": (put("segments", "job_id", "nobody"), "segments.parquet, row 1, job 'nobody'"),
    "a segment that ends before it begins": (put("segments", "end_s", -1.0), "segments.parquet, row 1"),
    "a job id twice": (put("jobs", "job_id", "a"), "jobs.parquet, job 'a': is there more than once"),
    "a job that ran without a start": (put("jobs", "first_start_s", None), "jobs.parquet, row 1"),
    "a job that is done without an end": (put("jobs", "end_s", None), "jobs.parquet, row 1"),
    "a job that starts before it is there": (put("jobs", "first_start_s", 1.0), "jobs.parquet, row 1"),
    "a text that is none": (flipped, "jobs.parquet: not readable as Parquet"),
    "node numbers": (put("nodes", "node", 0), "nodes.parquet, row 1"),
    "first GPUs": (put("nodes", "first_gpu", 1), "nodes.parquet, row 1"),
    "down twice": (put("nodes", "down_s", [5.0, 5.0]), "nodes.parquet, node 1: times down and up do not alternate"),
    **{f"{name} {how.__name__}": (rows(name, how), f"{name}.parquet") for name, how in (
        ("jobs", emptied), ("jobs", twice), ("jobs", turned), ("nodes", emptied), ("nodes", twice), ("nodes", turned),
        ("decisions", emptied), ("decisions", turned), ("segments", twice))},
    "more GPUs than the slots": (put("segments", "gpus", [100_000.0]), "segments.parquet"),
    "GPUs of another node": (put("segments", "gpu_ids", [0]), "segments.parquet"),
    "segments emptied": (rows("segments", emptied), "jobs.parquet, row 0"),
    **{f"run.json {key}={value!r:.30}": (say(key, value), f"run.json, key '{key}") for key, values in {
        "start_s": (None, "0", True, 1e300, -1e300, NAN, 10**400),
        "end_s": (None, False, -5, 1e300, INF),
        "schema_version": (3,),
        "policy": (None, 5, ["a"]),
        "policy_settings": (None, "x"),
        "trace": (None, 5, "x", []),
        "trace.counts": (None, 5, {"rows": "x"}),
        "trace.notes": ("x", [5]),
        "trace.hash": ([],),
        "trace.jobs": ("x", -1),
        "cluster": (None, 5),
        "cluster.name": (None,),
        "cluster.gpus_by_type": ({"V100": "x"},),
        "work": (5, None),
        "work.unit": (5,),
        "settings": (None, []),
        "settings.quotas": (5, {"vc": "x"}),
        "timetable": (5, {"quotas": {"vc": []}}, {"quotas": {"vc": [[1.0]]}}),
        "config": (None, 5),
        "config.load": ([],),
        "estimate": (5,),
        "speed_belief": (5,),
        "seed": ("x", 1e300, []),
        "one_type_gangs": ("x",),
        "versions": (5,),
        "window": (5, {"begin_s": 1, "end_s": 5}),
    }.items() for value in values},
    "run.json is a list": (lambda folder: (folder / "run.json").write_text("[]"), "run.json: not a JSON object"),
    "run.json is deep": (lambda folder: (folder / "run.json").write_text("[" * 100_000), "run.json: not readable"),
    "run.json is deep within": (say("notes", json.loads("[" * 400 + "]" * 400)), "run.json: nested too deeply"),
    "run.json is no text": (lambda folder: (folder / "run.json").write_bytes(b"\xff\xfe\0"), "run.json: not readable"),
    "timing.json": (lambda folder: (folder / "timing.json").write_text('{"wall_s": "x"}'), "timing.json, key 'wall_s'"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_refused_and_audited_by_name(bad, hetsim, damage):
    """metrics refuses it (exit 2) naming file and place; the audit names the broken law (exit 1) or cannot read it."""
    spoil, named = DAMAGES[damage]
    spoil(bad)
    said = hetsim("metrics", "bad")
    assert (said.code, said.out) == (2, "")
    assert f"bad/{named}" in said.err.replace("\n", " ")
    assert "Traceback" not in said.err
    audited = hetsim("audit", "bad")
    assert audited.code in (1, 2)
    assert named in (audited.out if audited.code == 1 else audited.err).replace("\n", " ")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("damage", ["segments.begin_s=None", "segments.end_s=inf", "nodes turned", "jobs emptied",
                                    "segments emptied", "run.json trace=None", "run.json is deep"])
def test_each_command_refuses_a_damaged_run_and_writes_nothing(bad, hetsim, command, damage):
    DAMAGES[damage][0](bad)
    said = hetsim(*COMMANDS[command])
    assert said.code == (1 if command == "audit" and damage != "run.json is deep" else 2)
    assert not [file for file in (bad.parent / "out").rglob("*") if file.is_file()]


ODD: dict[str, list[Damage]] = {
    "much is unknown": [
        *(put("nodes", name, None, None) for name in ("price_usd_per_gpu_h", "busy_w", "idle_w")),
        *(put("jobs", name, None, None) for name in ("reason", "work_total", "deadline_s", "priority")),
        say("seed", None), say("trace", {}), say("work", {}), say("estimate", None),
    ],
    "durations are as short as can be": [put("jobs", "duration_s", 5e-324, None)],
    "laws of conduct are broken": [
        put("segments", "gpu_milli", 333), put("segments", "gpu_ids", [0]), put("segments", "work_done", 0.0, None),
        put("jobs", "gpu_type", "|||"),
    ],
    "names are odd": [
        put("jobs", "user", "", None),
        put("jobs", "vc", "</script>\x00 $x_{", None), say("policy", "</script>\x00 $x_{"),
    ],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("oddity", ODD)
def test_a_run_that_is_odd_and_well_formed_crashes_nothing(bad, hetsim, command, oddity):
    """No command raises or warns (a warning is an error here)."""
    for change in ODD[oddity]:
        change(bad)
    said = hetsim(*COMMANDS[command])
    assert said.code in ((0, 1) if command == "audit" else (0, 2)), said.err


def test_a_sound_run_passes(bad, hetsim):
    for command in COMMANDS.values():
        said = hetsim(*command)
        assert said.code == (0 if command[0] != "compare" else said.code), said.err
    assert np.isfinite(json.loads(hetsim("metrics", "bad", "--json").out)["las"]["jct_mean_s"])
