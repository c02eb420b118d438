"""What bytes that leave a zone cost in a run: by hand, from the model's bytes to the bill; nothing where none leave."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.audit import audit
from analysis.compare.bill import Bill
from analysis.figures.tradeoff import cost_bars
from analysis.measuring_window import windowed
from analysis.metrics import cost_egress_usd, cost_known_usd, cost_usd, measures
from analysis.metrics.breakdown import per_job
from analysis.metrics.costs import cost_by_type_usd
from analysis.run import load_run
from sim.api import Decision, Placement, Plan, Policy, View
from sim.cluster.clusterfiles import load_cluster
from sim.cluster.plan import Stage
from sim.engine.simulate import simulate
from sim.performance import Performance
from sim.results.schema import FURTHER
from sim.settings.config import EngineConfig, RunConfig
from sim.sweeps.replay import Replay
from sim.sweeps.second_look import look_again
from sim.workload.progress import Modelled, Recorded
from tests.helpers import jobs, nodes, run
from traces.errors import HetsimError

PRICE = 0.02
"""USD for 10^9 bytes from one zone to the other."""
LAW = "bytes that leave a zone are paid by work"


def zones(folder, price=f"egress_usd_per_gb = {PRICE}\n"):
    """A node of four V100 in each of two zones."""
    node = '[[nodes]]\ntype = "V100"\ncount = 1\ngpus = 4\nzone = "{}"\n'
    link = '[[links.zones]]\nbetween = ["a", "b"]\ngbits_per_s = 8\nlatency_s = 0.03\n' + price
    (folder / "zones.toml").write_text(node.format("a") + node.format("b") + link)
    return load_cluster(str(folder / "zones.toml"))


@dataclass
class Puts(Policy):
    """Starts the only job where it is told to."""

    name = "puts"
    sizes_gangs = sets_batch = True
    placement: Placement | None = None

    def decide(self, view: View) -> Decision:
        return Decision(start=[(row, self.placement) for row in view.queued.tolist()])


def played(folder, placement, price=f"egress_usd_per_gb = {PRICE}\n", work=None, **columns):
    cluster = zones(folder, price)
    trace = jobs([(0, 100.0, 8)], model=["resnet50"], batch_size=[64], **columns)
    truth = work(trace, cluster) if work else Modelled(trace, cluster, Performance(cluster.links), cluster.types[0])
    simulate(trace, cluster, Puts(placement=placement), truth, EngineConfig()).write(folder / "run")
    found = load_run(folder / "run")
    report = audit(found)
    assert report.ok, report.text
    assert report.checked[LAW] == "1 segments"
    return found


def on(*gpus, **terms):
    return Placement(np.array(gpus, dtype=np.int32), **terms)


def params():
    return Performance().graph("resnet50").params


def value_bytes():
    """Bytes of a gradient's value in mixed precision."""
    return 2


def test_gradients_go_round_a_ring_that_leaves_each_zone_once(tmp_path):
    """Each of 8 sends 2 × 7 / 8 of the gradients to the next; there and back between two zones."""
    found = played(tmp_path, on(*range(8)))
    iterations = found.column("segments", "work_done")[0]
    of_work = 2 * (7 / 8) * params() * value_bytes() / 1e9 * 2 * PRICE
    assert found.column("segments", "egress_usd_per_work")[0] == pytest.approx(of_work)
    assert cost_egress_usd(found) == pytest.approx(iterations * of_work)
    held_h = 8 * found.column("segments", "end_s")[0] / 3600
    assert cost_by_type_usd(found) == {"V100": pytest.approx(held_h * 3.06)}
    for total in (cost_usd(found), cost_known_usd(found), cost_usd(found, per="cluster"),
                  per_job(found)["cost_usd"].sum(), Bill().of_jobs(found)[0, 0], measures(found)["cost_usd"]):
        assert total == pytest.approx(held_h * 3.06 + iterations * of_work)


def test_the_picture_of_costs_has_all_that_is_paid(tmp_path):
    found = played(tmp_path, on(*range(8)))
    (axes,) = cost_bars([found]).axes
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(cost_usd(found))
    assert "and of egress" in axes.get_xlabel()


def test_a_pipeline_pays_for_activations_there_and_gradients_back(tmp_path):
    """And for its gradients nothing: the replicas of a stage are in one zone."""
    graph = Performance().graph("resnet50")
    plan = Plan((Stage(0, 60, "V100", 4), Stage(61, 125, "V100", 4)), 4)
    found = played(tmp_path, on(*range(8), plan=plan))
    crosses = 2 * 64 * float(graph.cut_bytes[60]) / 1e9
    assert found.column("segments", "egress_usd_per_work")[0] == pytest.approx(crosses * PRICE)


def test_within_a_zone_nothing_is_paid_whatever_is_known(tmp_path):
    for i, how in enumerate(({}, {"price": ""}, {"work": Recorded})):
        (tmp_path / str(i)).mkdir()
        found = played(tmp_path / str(i), on(4, 5, 6, 7), **how)
        assert found.column("segments", "egress_usd").tolist() == [0.0]
        assert cost_egress_usd(found) == 0 and cost_usd(found) == cost_known_usd(found) > 0


@pytest.mark.parametrize("how", [{"price": ""}, {"work": Recorded}])
def test_what_is_unknown_is_never_zero(tmp_path, how):
    """A price that nobody said, or durations as recorded, which do not tell what a job sends."""
    found = played(tmp_path, on(*range(8)), **how)
    assert found.tables["segments"]["egress_usd"].to_pylist() == [None]
    assert cost_egress_usd(found) is None and cost_usd(found) is None
    held_h = 8 * found.column("segments", "end_s")[0] / 3600
    assert cost_known_usd(found) == pytest.approx(held_h * 3.06)
    assert np.isnan(Bill().of_jobs(found)[0, 0]) and Bill().of_jobs(found)[0, 1] == pytest.approx(held_h * 3.06)


def test_iterations_of_a_larger_batch_are_paid_and_not_their_worth(tmp_path):
    """Twice the samples: an iteration is worth less than two, and sends the same gradients."""
    own = played(tmp_path, on(*range(8)))
    (tmp_path / "twice").mkdir()
    twice = played(tmp_path / "twice", on(*range(8), batch_size=128), min_batch_size=[64], max_batch_size=[128])
    noise = EngineConfig().gradient_noise * 64
    worth = 2 * (noise + 64) / (noise + 128)
    price = [found.column("segments", "egress_usd_per_work")[0] for found in (own, twice)]
    assert worth != 1 and price[1] == pytest.approx(price[0] / worth)


def test_a_window_has_the_part_that_was_sent_in_it(tmp_path):
    found = played(tmp_path, on(*range(8)))
    begin, end = found.window_s
    half = begin + (end - begin) / 2
    parts = [cost_egress_usd(windowed(found, *window)) for window in ((begin, half), (half, end))]
    assert parts == pytest.approx([cost_egress_usd(found) / 2] * 2)


def test_the_audit_names_what_does_not_add_up(tmp_path):
    """A bill that is not work times price; a price within a zone; a column that is gone."""
    found = played(tmp_path, on(*range(8)))
    for name, change in (("egress_usd", lambda v: v * 1.01), ("egress_usd_per_work", lambda v: v + 1.0)):
        table = found.tables["segments"]
        at = table.schema.get_field_index(name)
        pq.write_table(table.set_column(at, table.schema.field(at), pa.array([change(table[name][0].as_py())])),
                       tmp_path / "run/segments.parquet")
        assert [v.law for v in audit(load_run(tmp_path / "run", check=False)).violations] == [LAW]
    nodes_there = found.tables["nodes"]
    at = nodes_there.schema.get_field_index("zone")
    pq.write_table(found.tables["segments"], tmp_path / "run/segments.parquet")
    pq.write_table(nodes_there.set_column(at, nodes_there.schema.field(at), pa.array(["a", "a"])),
                   tmp_path / "run/nodes.parquet")
    (broken,) = audit(load_run(tmp_path / "run", check=False)).violations
    assert broken.law == LAW and "one zone" in str(broken)
    pq.write_table(found.tables["segments"].drop_columns("egress_usd_per_work"), tmp_path / "run/segments.parquet")
    with pytest.raises(HetsimError, match="column 'egress_usd_per_work' is missing"):
        load_run(tmp_path / "run")


def test_without_zones_tables_have_the_columns_that_they_always_had(tmp_path):
    result = run(jobs([(0, 100, 8)]), nodes(("V100", 2, 4)), "fifo")
    for name, groups in FURTHER.items():
        assert not {field.name for fields in groups for field in fields} & set(result.tables[name].column_names)
    result.write(tmp_path / "run")
    found = load_run(tmp_path / "run")
    assert measures(found)["cost_egress_usd"] == 0
    assert audit(found).checked[LAW] == "no segments of clusters with zones"


def test_the_deep_audit_works_the_bytes_out_anew(tmp_path):
    """What a run pays is the model's bytes at the cluster's price; one that pays a tenth more is found."""
    zones(tmp_path)
    config = RunConfig(policy="fifo", trace="philly", jobs=40, cluster=str(tmp_path / "zones.toml"), work="iterations")
    Replay(config).play().write(tmp_path / "run")
    found = load_run(tmp_path / "run")
    law = "deep: bytes that leave a zone cost what the model sends"
    report = look_again(found, audit(found))
    assert report.ok, report.text
    assert int(report.checked[law].split()[0]) > 0 and cost_egress_usd(found) > 0
    table = found.tables["segments"]
    for name in ("egress_usd", "egress_usd_per_work"):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array(1.1 * found.column("segments", name)))
    pq.write_table(table, tmp_path / "run/segments.parquet")
    edited = load_run(tmp_path / "run")
    assert audit(edited).ok
    assert law in [violation.law for violation in look_again(edited, audit(edited)).violations]
