"""What planners cut a model by where layers were measured in some tensor degrees only."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from policies.recommend.request.fleet import Fleet
from policies.recommend.request.pace import least_degree, measured, pace_s, step_pace_s
from policies.recommend.request.request import Request, Space
from policies.recommend.searching.gather import gather
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.performance.calibration import for_graphs, shipped
from sim.performance.layer_times import NotMeasuredError
from sim.performance.readers.layer_table import read_layers

HEAD = "model,value_bytes,layer,tensor,params,border_bytes,kept_bytes,gpu_type,micro_batch,fwd_s,bwd_s,update_s"
A100, V100, T4 = gpu_type("A100"), gpu_type("V100"), gpu_type("T4")
METHODS = ("exact", "uneven", "pipedream", "gpipe", "piper", "metis", "amp", "whale", "hetpipe", "chain", "maxload",
           "branches", "sailor", "search")  # fmt: skip


def known(tmp_path, *degrees: tuple[str, int], params: float = 1000) -> Performance:
    """Four layers on these (type, degree): forward 3, backward 6, step 1 ms on an A100 alone, twice on a V100."""
    rows = [HEAD]
    for ways in (1, 2):
        rows.append(f"toy,4,0-3,{ways},{params / ways},400,{800 // ways},,,,,")
    for (gpu, ways), samples in product(degrees, (1, 4)):
        unit = (2 if gpu == "V100" else 1) * samples / ways / 1000
        rows.append(f"toy,4,0-3,{ways},,,,{gpu},{samples},{3 * unit},{6 * unit},{unit / samples}")
    (tmp_path / "layers.csv").write_text("\n".join(rows))
    graph = read_layers(tmp_path / "layers.csv")["toy"]
    return Performance(graphs={"toy": graph}, calibration=for_graphs(shipped("tuned"), [graph]))


def test_the_least_degree_stands_in_for_one_gpu(tmp_path):
    performance = known(tmp_path, ("A100", 1), ("A100", 2), ("V100", 2))
    assert [least_degree(performance, "toy", gpu) for gpu in (A100, V100)] == [1, 2]
    for gpu, times in ((A100, 1), (V100, 2)):
        fwd_s, bwd_s = pace_s(performance, "toy", 4, gpu)
        assert fwd_s.tolist() == pytest.approx([0.012 * times] * 4)
        assert bwd_s.tolist() == pytest.approx([0.024 * times] * 4)
        assert step_pace_s(performance, "toy", gpu) == pytest.approx(0.004 * times)
    with pytest.raises(NotMeasuredError, match=r"got 'T4, tensor 1'.*T4 with tensor none"):
        pace_s(performance, "toy", 4, T4)


def test_where_times_are_modelled_nothing_changes():
    performance = Performance()
    assert all(map(np.array_equal, pace_s(performance, "vgg16", 8, V100), performance.op_times_s("vgg16", 8, V100)))
    last = len(performance.graph("vgg16")) - 1
    assert step_pace_s(performance, "vgg16", V100) == performance.update_s("vgg16", 0, last, V100)
    assert measured(performance.graph("vgg16"), V100)


@pytest.mark.parametrize("there", [
    (("A100", 1), ("V100", 2)), (("A100", 2), ("V100", 1)), (("A100", 2), ("V100", 2)),
    (("A100", 1), ("A100", 2), ("V100", 2)),
])  # fmt: skip
def test_plans_have_types_only_in_degrees_that_were_measured(tmp_path, there):
    """Whatever proposes them; and both types are used where both help."""
    performance = known(tmp_path, *there)
    fleet = Fleet(performance, [A100, V100], [2, 4], [4, 4])
    space = Space(micro_batches=(1, 2, 4), tensor=(1, 2), mixed=True)
    for name in METHODS:
        for found in gather(Request(performance, "toy", 16, fleet, 6, space), [name], evaluations=60):
            for stage in found.plan.stages:
                assert {(part.gpu_type, stage.degree(part)) for part in stage.all_parts} <= set(there), name
    best = gather(Request(performance, "toy", 16, fleet, 6, space), METHODS, evaluations=1000)[0]
    assert all(best.counts)
