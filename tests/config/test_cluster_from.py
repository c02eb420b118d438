"""A cluster out of a trace's side table: what the files say, that they can be used, and what is assumed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from analysis.run import load_run
from sim.cli import app
from sim.cluster.clusterfiles import load_cluster
from sim.cluster.frommachines import Group, from_counts, from_machines
from sim.cluster.spec import ClusterError
from sim.cluster.timetable import make_timetable
from sim.settings.config import EngineConfig
from traces.errors import HetsimError
from traces.machines.any_form import read_machines
from traces.machines.capacity import Capacity, Machines
from traces.machines.own_tables import read_capacity, write_outages

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,262144,0,\nn1,64000,262144,2,P100\nn2,64000,262144,8,G2\n" \
        "n3,64000,262144,2,P100\nn4,64000,262144,8,V100M32\n"
SIZES = "date,vcA,vcB,total\n2020-04-01,16,0,16\n2020-04-02,8,64,72\n2020-04-03,8,32,40\n"


def hetsim(*arguments: object) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    return result.exit_code, result.stdout, result.stderr


def test_a_node_list_becomes_a_cluster_file(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    out = tmp_path / "openb.toml"
    code, said, notes = hetsim("cluster", "from", tmp_path / "nodes.csv", "-o", out, "--type", "G2=A10")
    assert code == 0 and "4 nodes, 20 GPUs" in said and sorted(p.name for p in tmp_path.iterdir()) == [
        "nodes.csv", "openb.toml"]
    cluster = load_cluster(str(out))
    assert [t.name for t in cluster.types] == ["P100", "A10", "V100-32"] and cluster.node_gpus.tolist() == [2, 2, 8, 8]
    assert "jobs that ask for G2 by name find none" in notes and "1 nodes without GPUs (first: line 2)" in notes


def test_a_type_that_nobody_knows_is_a_stand_in_and_the_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    out = tmp_path / "openb.toml"
    code, _, notes = hetsim("cluster", "from", tmp_path / "nodes.csv", "-o", out)
    assert code == 0 and "8 GPUs of G2: taken as MISC" in notes and "--type G2=TYPE" in out.read_text().splitlines()[0]
    assert "MISC" in [t.name for t in load_cluster(str(out)).types]


@pytest.mark.parametrize(("options", "message"), [
    (["--type", "G7=A10"], "no such GPU type; got \"'g7'\""),
    (["--type", "G2=A1O"], "did you mean 'a10'"),
    (["--read", "rule=strict"], "no such option"),
    (["--format", "opnb"], "did you mean 'openb'"),
])
def test_what_is_asked_wrongly_is_one_message_and_no_file(tmp_path: Path, options: list[str], message: str) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    code, _, said = hetsim("cluster", "from", tmp_path / "nodes.csv", "-o", tmp_path / "c.toml", *options)
    assert code == 2 and message in " ".join(said.split()) and not (tmp_path / "c.toml").exists()


def test_files_that_are_there_stay_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "c.outages.csv").write_text("mine")
    command = ["cluster", "from", tmp_path / "nodes.csv", "-o", tmp_path / "c.toml"]
    assert hetsim(*command)[0] == 2 and (tmp_path / "c.outages.csv").read_text() == "mine"
    assert hetsim(*command, "--force")[0] == 0 and not (tmp_path / "c.outages.csv").exists()


def test_counts_become_nodes_and_a_capacity_file_that_a_run_can_use(tmp_path: Path) -> None:
    """Helios: as large as it ever was, 72 GPUs on 9 nodes of 8; the file says how many are there, and whose."""
    (tmp_path / "cluster_gpu_number.csv").write_text(SIZES)
    out = tmp_path / "venus.toml"
    code, said, notes = hetsim("cluster", "from", tmp_path / "cluster_gpu_number.csv", "-o", out, "--type", "V100")
    assert code == 0 and "engine.capacity=" in said and "nodes of 8 GPUs" in " ".join(notes.split())
    capacity = read_capacity(tmp_path / "venus.capacity.csv")
    assert [capacity.at(day * 86_400) for day in range(3)] == [16, 72, 40] and capacity.vcs == ("vcA", "vcB")
    config = EngineConfig(capacity=str(tmp_path / "venus.capacity.csv"))
    cluster = load_cluster(str(out))
    table = make_timetable(cluster, ("vcA", "vcB"), config, 0.0)
    assert table.time_s.tolist() == [0, 86_400, 172_800] and cluster.num_gpus == 72
    assert [(len(gone), len(back)) for gone, back in map(table.nodes_at, range(3))] == [(7, 0), (0, 7), (4, 0)]
    assert [table.quota_ahead(vc).tolist() for vc in (0, 1)] == [[16_000, 8_000, 8_000], [64_000, 64_000, 32_000]]


def test_times_are_put_on_the_clock_of_the_trace(tmp_path: Path) -> None:
    """The trace begins at 22:00 UTC, six hours after the table's first midnight in Shanghai."""
    (tmp_path / "cluster_gpu_number.csv").write_text(SIZES)
    (tmp_path / "t.csv").write_text("job_id,submit_s,duration_s,num_gpus\na,0,10,1\n")
    (tmp_path / "log.csv").write_text("timestamp,duration,num_gpus,gpu_time,cluster\n2020-03-31 22:00:00,10,1,10,vcA\n")
    out = tmp_path / "v.toml"
    code, _, said = hetsim("cluster", "from", tmp_path / "cluster_gpu_number.csv", "-o", out, "--trace",
                           tmp_path / "log.csv")
    assert code == 0
    assert read_capacity(tmp_path / "v.capacity.csv").time_s[0] == -6 * 3600
    code, _, said = hetsim("cluster", "from", tmp_path / "cluster_gpu_number.csv", "-o", out, "--trace",
                           tmp_path / "t.csv", "--force")
    assert code == 2 and "the trace has none" in said
    (tmp_path / "mine.csv").write_text("came;ran;gpus\n2020-03-31T22:00Z;10;1\n")
    assert hetsim("cluster", "from", tmp_path / "cluster_gpu_number.csv", "-o", out, "--trace", tmp_path / "mine.csv",
                  "--trace-map", "submit=came,duration=ran,gpus=gpus", "--force")[0] == 0
    assert read_capacity(tmp_path / "v.capacity.csv").time_s[0] == -6 * 3600


def test_a_machine_takes_the_place_of_one_that_has_gone(tmp_path: Path) -> None:
    """P-15: two servers one after the other are one node, empty before and after."""
    listed = Machines.from_columns({"name": ["s1", "s2"], "gpus": [1, 1], "gpu_type": ["T4", "T4"],
                                    "first_s": [0, 5], "last_s": [5, 10]})
    made = from_machines(listed)
    assert made.groups == (Group("T4", 1, 1),) and made.capacity is None
    assert made.outages is not None
    assert list(zip(made.outages.time_s, made.outages.up, strict=True)) == [(-np.inf, False), (0, True), (10, False)]
    assert "2 stays of machines on 1 nodes" in made.notes[0]


def test_racks_are_kept_where_they_are_alike() -> None:
    rows = {"name": list("abcde"), "gpus": [8] * 5, "gpu_type": ["V100"] * 5, "rack": list("xxyyz")}
    assert from_machines(Machines.from_columns(rows)).groups == (Group("V100", 5, 8, 2),)
    odd = from_machines(Machines.from_columns({**rows, "rack": list("xyyzz")}))
    assert odd.groups == (Group("V100", 5, 8),) and "differ in size" in odd.notes[0]


def test_a_count_that_is_no_multiple_of_a_node_has_a_smaller_last_one() -> None:
    made = from_counts(Capacity.from_columns([0], [""], ["T4"], [19]), gpus_per_node=8)
    assert made.groups == (Group("T4", 2, 8), Group("T4", 1, 3)) and made.gpus == 19


@pytest.mark.parametrize("gpus", [[0, 0], [4, 2000]])
def test_a_list_without_gpus_or_with_too_many_on_one_machine_is_refused(gpus: list[int]) -> None:
    with pytest.raises(ClusterError, match="GPUs of a machine"):
        from_machines(Machines.from_columns({"name": ["a", "b"], "gpus": gpus}))


STAYS = st.lists(st.tuples(st.sampled_from([1, 2, 8]), st.integers(0, 12), st.integers(1, 6), st.sampled_from(
    ["T4", "V100"])), min_size=1, max_size=16)


@settings(max_examples=60)
@given(stays=STAYS)
def test_at_each_time_as_many_nodes_are_there_as_machines_were(
    tmp_path_factory: pytest.TempPathFactory, stays: list[tuple[int, int, int, str]]
) -> None:
    """By law, for each type and size: nodes that are there by the timetable are the machines of the list, and there
    are no more nodes than machines at once."""
    gpus, first, hours, kind = zip(*stays, strict=True)
    last = [a + b for a, b in zip(first, hours, strict=True)]
    listed = Machines.from_columns({"name": [f"m{i}" for i in range(len(stays))], "gpus": gpus, "gpu_type": kind,
                                    "first_s": first, "last_s": last})
    made = from_machines(listed)
    folder = tmp_path_factory.mktemp("made")
    (folder / "c.toml").write_text(made.toml("c", "a test"))
    assert made.outages is not None
    write_outages(made.outages, folder / "o.csv")
    cluster = load_cluster(str(folder / "c.toml"))
    table = make_timetable(cluster, ("",), EngineConfig(outages=str(folder / "o.csv")), -1.0)
    there = np.ones(cluster.num_nodes, dtype=bool)
    names = np.array([t.name for t in cluster.types])[cluster.node_type]
    most = {(k, g): 0 for g, _, _, k in stays}
    for step, now_s in enumerate(table.time_s.tolist()):
        gone, back = table.nodes_at(step)
        there[gone], there[back] = False, True
        for key, before in most.items():
            want = sum(f <= now_s < end and (k, g) == key for g, f, end, k in zip(gpus, first, last, kind, strict=True))
            assert (there & (names == key[0]) & (cluster.node_gpus == key[1])).sum() == want
            most[key] = max(before, want)
    assert cluster.num_nodes == sum(most.values())


def test_real_lists_become_the_clusters_that_are_known(data_dir: Path) -> None:
    pai = from_machines(read_machines(data_dir / "pai" / "pai_machine_spec.tar.gz"))  # type: ignore[arg-type]
    preset = load_cluster("pai")
    assert pai.gpus == preset.num_gpus == 6742 and pai.nodes == preset.num_nodes == 1814
    by_type = dict(zip([t.name for t in preset.types], preset.gpus_by_type().tolist(), strict=True))
    assert {group.type: group.count * group.gpus for group in pai.groups} == by_type
    openb = from_machines(read_machines(data_dir / "openb" / "openb_node_list_all_node.csv"))  # type: ignore[arg-type]
    assert openb.nodes == 1213 and openb.gpus == 6212 and len([n for n in openb.notes if "stand-in" in n]) == 2
    racks = from_machines(read_machines(data_dir / "tiresias" / "n160g8.csv"), {"": "P100"})  # type: ignore[arg-type]
    assert racks.groups == (Group("P100", 160, 8, 32),)


def test_unknown_types_of_the_users_map_are_refused() -> None:
    listed = Machines.from_columns({"name": ["a"], "gpus": [1], "gpu_type": ["G2"]})
    with pytest.raises(HetsimError, match="unknown GPU type"):
        from_machines(listed, {"G2": "G2"})


def test_from_a_table_of_counts_to_a_run(tmp_path: Path) -> None:
    """P-18 from end to end: vcB has GPUs from the second day on, vcC never; nothing is lost, and all is said."""
    (tmp_path / "cluster_gpu_number.csv").write_text(
        "date,vcA,vcB,vcC,total\n2020-04-01,8,0,0,8\n2020-04-02,8,64,0,72\n")
    (tmp_path / "jobs.csv").write_text(
        "job_id,submit_s,duration_s,num_gpus,vc\na,0,100,8,vcA\nb,60,100,64,vcB\nc,70,100,1,vcC\nd,80,100,1,vcD\n")
    out = tmp_path / "venus.toml"
    assert hetsim("cluster", "from", tmp_path / "cluster_gpu_number.csv", "-o", out, "--type", "V100")[0] == 0
    code, _, notes = hetsim(
        "run", "--policy", "fifo_skip", "--work", "recorded", "--trace", tmp_path / "jobs.csv", "--cluster", out,
        "--set", f"engine.capacity={tmp_path / 'venus.capacity.csv'}", "--out", tmp_path / "run")
    assert code == 0, notes
    assert "does not name have no quota: 'vcD'" in " ".join(notes.split())
    assert hetsim("audit", tmp_path / "run")[0] == 0
    table = load_run(tmp_path / "run").jobs.set_index("job_id")
    assert table["first_start_s"].to_dict() == pytest.approx({"a": 0, "b": 86_400, "c": np.nan, "d": 100}, nan_ok=True)
    assert table.loc["c", "reason"] == "asks for 1 GPUs, more than its virtual cluster's quota of 0 from 0 s on"


def test_no_word_of_a_table_breaks_the_cluster_file(tmp_path: Path) -> None:
    listed = Machines.from_columns({"name": ["a"], "gpus": [4], "gpu_type": ['new\nline "\x7f\\ ]]']})
    (tmp_path / "c.toml").write_text(from_machines(listed).toml('c"\\', "two\nlines"), "utf-8")
    assert load_cluster(str(tmp_path / "c.toml")).num_gpus == 4


def test_a_cluster_that_nothing_could_load_is_not_written(tmp_path):
    (tmp_path / "counts.csv").write_text("time_s,vc,gpu_type,gpus\n0,,,1000000000\n")
    code, _, _ = hetsim("cluster", "from", tmp_path / "counts.csv", "-o", tmp_path / "out.toml")
    assert code == 2 and [p.name for p in tmp_path.iterdir()] == ["counts.csv"]


def test_a_type_is_said_once_and_is_one_of_the_catalogue(tmp_path):
    (tmp_path / "counts.csv").write_text("time_s,vc,gpu_type,gpus\n0,,,8\n")
    for options, says in ((["--type", "P40"], "unknown GPU type"), (["--type", "T4", "--type", "V100"], "given twice")):
        code, _, err = hetsim("cluster", "from", tmp_path / "counts.csv", "-o", tmp_path / "out.toml", *options)
        assert code == 2 and says in err and not (tmp_path / "out.toml").exists()
