"""An end that is lost ends the run: with failures it would else go on for ever."""

from __future__ import annotations

import pytest

from sim.api import HetsimError
from sim.engine.engine import Engine
from tests.helpers import jobs, nodes, run


@pytest.mark.parametrize("engine", [{"mtbf_h": 1.0, "repair_h": 0.1}, {}, {"horizon_s": 1000.0}])
def test_a_lost_end_is_told(engine: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether nodes fail (there is always something to come), nothing else happens any more, or the horizon comes."""
    finish = Engine._on_finish
    monkeypatch.setattr(Engine, "_on_finish", lambda self, event: event.value[0] == 1 or finish(self, event))
    trace = jobs([(0, 100, 1), (0, 50, 1), (10, 30, 1)])
    with pytest.raises(HetsimError, match=r"job '1'.*its end was lost.*fault of hetsim"):
        run(trace, nodes(("V100", 2, 1)), "fifo", fast_lane="off", **engine)


def test_a_job_that_ends_at_the_horizon_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(jobs([(0, 100, 1), (0, 50, 1)]), nodes(("V100", 1, 2)), "fifo", horizon_s=50.0)
    assert result.tables["jobs"]["state"].to_pylist() == ["unfinished", "done"]
