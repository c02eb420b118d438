"""Max-load splits: by hand, against every split there is, and against what other planners reach."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from policies.recommend.algorithms import maxload_solve
from policies.recommend.algorithms.maxload_graph import MaxLoad
from policies.recommend.algorithms.maxload_solve import anywhere, contiguous
from policies.recommend.request.recommend_error import RecommendError
from tests.recommend.maxload_files import read_problem, read_rows


def chain(times, *, transfer=1.0, accelerators=2, cpus=0, cpu_factor=10.0, memory=0.0, capacity=1.0):
    """A chain of operators, each of its own colour."""
    n, times = len(times), np.array(times, dtype=float)
    return MaxLoad(times, times * cpu_factor, np.full(n, memory), np.full(n, transfer),
                   tuple((i, i + 1) for i in range(n - 1)), np.arange(n), np.zeros(n, dtype=bool),
                   accelerators, cpus, capacity)


def test_a_cut_costs_a_transfer_at_both_ends():
    split = contiguous(chain([4, 4, 4, 4]))
    assert split.load == 8 + 1
    assert split.device.tolist() == [0, 0, 1, 1]
    assert split.optimal


def test_an_output_leaves_once_and_enters_once_a_device():
    # 0 is read by 1, 2 (device 1) and 3 (device 2): one transfer on each of the three devices.
    problem = replace(chain([4, 4, 4, 4], accelerators=3), edges=((0, 1), (0, 2), (0, 3)))
    assert problem.loads([0, 1, 1, 2]).tolist() == [5, 9, 5]


def test_a_cpu_pays_no_transfer_and_has_all_memory():
    problem = chain([4, 4, 4], cpus=1, cpu_factor=1.0, accelerators=1, memory=1.0, capacity=2.0)
    assert problem.loads([0, 0, 1]).tolist() == [9, 4]
    assert problem.loads([0, 0, 0]).tolist() == [np.inf, 0]


def test_no_cut_is_worth_it_where_transfers_are_dear():
    assert contiguous(chain([4, 4, 4, 4], transfer=20.0)).load == 16


def test_nothing_fits_is_no_split():
    split = contiguous(chain([4, 4], memory=2.0))
    assert split.load == np.inf and not split.optimal and split.gap == 1
    assert anywhere(chain([4, 4], memory=2.0), seconds=5).load == np.inf


def test_a_device_may_come_back_to_a_chain_only_anywhere():
    problem = chain([1, 6, 5], transfer=0.0)
    assert contiguous(problem).load == 7
    assert anywhere(problem, seconds=5).load == 6


def test_too_many_down_sets_leave_a_split_and_a_bound():
    rng = np.random.default_rng(5)
    n = 40
    problem = replace(chain(rng.uniform(1, 2, n), accelerators=4), edges=())
    split = contiguous(problem)
    assert split.down_sets == 0
    assert problem.loads(split.device).max() == split.load
    assert 0 < split.bound < split.load and not split.optimal


@pytest.mark.parametrize(("change", "words"), [
    ({"accelerators": 0}, "no device"),
    ({"cpu": np.array([1.0, np.nan])}, "operator 1, cpu"),
    ({"transfer": np.array([-1.0, 0.0])}, "operator 0, transfer"),
    ({"edges": ((0, 2),)}, "no operator"),
    ({"memory": np.zeros(3)}, "length"),
])
def test_a_problem_that_makes_no_sense_is_refused(change, words):
    with pytest.raises(RecommendError, match=words):
        replace(chain([1, 1]), **change)


def instance(seed):
    """Small and random: colours of forward and backward operators, some of backward ones only."""
    rng = np.random.default_rng([seed, 21])
    colours, n = int(rng.integers(2, 6)), int(rng.integers(3, 10))
    forward = int(rng.integers(1, n + 1))
    backward = np.arange(n) >= forward
    density = rng.uniform(0.15, 0.6)
    edges = tuple((i, j) for j in range(n) for i in range(j) if rng.random() < density)
    accelerator = rng.uniform(0, 3, n).round(1) * (rng.random(n) < 0.75)
    cpu = np.where(rng.random(n) < 0.1, np.inf, accelerator * rng.choice([1.0, 3.0]))
    accelerator = np.where(rng.random(n) < 0.07, np.inf, accelerator)
    accelerators = int(rng.integers(0, 4))
    cpus = int(rng.integers(accelerators == 0, 3 if accelerators < 3 else 2))
    return MaxLoad(accelerator, cpu, rng.uniform(0, 1, n) * (rng.random(n) < 0.6), rng.uniform(0, 1.5, n).round(1),
                   edges, rng.integers(0, colours, n), backward, accelerators, cpus, float(rng.uniform(0.5, 4)))


def follow_one_another(problem, device):
    """Whether devices can be ordered so that forward operators read only their own device and earlier ones."""
    has_forward = {c for c, b in zip(problem.colour, problem.backward, strict=True) if not b}
    after = set()
    for source, reader in problem.edges:
        ends = device[source], device[reader]
        kinds = problem.backward[source], problem.backward[reader]
        if kinds == (False, False):
            after.add(ends)
        elif kinds == (True, True) and not {problem.colour[source], problem.colour[reader]} <= has_forward:
            after.add(ends[::-1])
    left = set(range(problem.accelerators + problem.cpus))
    while left:
        first = {d for d in left if not any((s, d) in after for s in left - {d})}
        if not first:
            return False
        left -= first
    return True


def brute_force(problem):
    """Least load of devices that follow one another, and of any, over all splits."""
    colours = np.unique(problem.colour, return_inverse=True)[1]
    best = [np.inf, np.inf]
    for choice in product(range(problem.accelerators + problem.cpus), repeat=int(colours.max()) + 1):
        device = np.array(choice)[colours]
        load = problem.loads(device).max()
        if load < best[0] and follow_one_another(problem, device):
            best[0] = load
        best[1] = min(best[1], load)
    return best


@pytest.mark.parametrize("seed", range(240))
def test_both_kinds_of_split_are_the_best_there_are(seed, monkeypatch):
    monkeypatch.setattr(maxload_solve, "STEPS", 200)  # leaves something for CP-SAT to prove
    problem = instance(seed)
    in_turn, free = brute_force(problem)
    found = contiguous(problem)
    assert found.load == pytest.approx(in_turn, rel=1e-9)
    if found.load < np.inf:
        assert found.optimal
        assert problem.loads(found.device).max() == found.load
        assert follow_one_another(problem, found.device)
    split = anywhere(problem, seconds=30, rounds=1, seed=seed)
    if found.load < np.inf:  # it starts from there
        assert split.load == pytest.approx(free, rel=1e-6)
        assert split.bound <= free * (1 + 1e-9) and split.optimal
        assert problem.loads(split.device).max() == split.load


def test_the_same_seed_gives_the_same_split(monkeypatch):
    monkeypatch.setattr(maxload_solve, "STEPS", 1000)
    problem = replace(chain(np.random.default_rng(3).uniform(1, 3, 12), accelerators=3), edges=((0, 5), (3, 9)))
    first, second = (anywhere(problem, seconds=30, rounds=2, seed=4) for _ in range(2))
    assert first.device.tolist() == second.device.tolist()


@cache
def best_in_turn(path, cpus):
    return contiguous(read_problem(path, cpus=cpus))


@pytest.fixture(scope="module")
def rows(oracle_dir):
    return [row for row in read_rows(oracle_dir) if row.load == row.load]


def test_no_planner_of_consecutive_stages_beats_ours(rows, data_dir):
    # 'DP over ideals' and 'OPTIMAL' rows are met, heuristic and human ones met or beaten. Those that ran out of time
    # there (Inception-v3 and BERT-12 training) have no figure: ours are below every heuristic's.
    for row in rows:
        if row.anywhere:
            continue
        split = best_in_turn(row.path(data_dir), row.cpus)
        assert split.optimal and split.down_sets > 0
        assert split.load <= row.load * (1 + row.slack), row
        if "over ideals" in row.algorithm or row.status == "OPTIMAL":
            assert split.load >= row.load * (1 - row.slack), row


def test_ours_beat_the_experts_by_the_margin_of_the_file(rows, data_dir):
    experts = {row.instance: row for row in rows if "expert" in row.algorithm}
    optimal = {row.instance: row for row in rows if "over ideals" in row.algorithm}
    assert len(experts) >= 6
    for instance_name, expert in experts.items():
        split = best_in_turn(expert.path(data_dir), 1)
        best = optimal[instance_name].load if instance_name in optimal else expert.load
        assert expert.load / split.load >= expert.load / best * (1 - 1e-5)


def test_loads_are_those_that_the_other_planners_count(rows, data_dir):
    folder = data_dir / "graphs" / "dnn-partitioning" / "human-experts"
    for row in rows:
        path = row.path(data_dir)
        problem = replace(read_problem(path), capacity=np.inf)  # a row of too little memory is printed all the same
        if row.algorithm == "single accelerator":
            assert problem.loads(np.zeros(len(problem.cpu), dtype=int)).max() == pytest.approx(row.load, rel=1e-5)
        if "expert" in row.algorithm:
            names = [f"{path.stem}_expert.json", f"{path.stem.replace('training', 'inference')}_expert.json"]
            expert = json.loads(next(p for name in names if (p := folder / name).exists()).read_text())
            ids = [node["id"] for node in json.loads(path.read_text())["nodes"]]
            at = {node: d for d, device in enumerate(expert["fpgas"] + expert["cpus"]) for node in device["nodes"]}
            of_colour = {c: at[i] for i, c in zip(ids, problem.colour, strict=True) if i in at}
            device = [of_colour[c] for c in problem.colour]  # a backward operator goes with its forward one
            assert problem.loads(device).max() == pytest.approx(row.load, rel=1e-5)


@pytest.mark.parametrize(("name", "rounds"), [
    ("LayerGraphs__bert24_training", 1), ("OperatorGraphs__bert_l-3_inference", 1), ("LayerGraphs__gnmt_inference", 1),
])
def test_annealing_alone_reaches_splits_of_any_operators(rows, data_dir, name, rounds):
    # The other rows, and proofs, take longer: experiments/maxload_oracle.py.
    of_it = [row for row in rows if name in row.instance and row.anywhere]
    assert of_it
    for row in of_it:
        problem = read_problem(row.path(data_dir), cpus=row.cpus)
        split = anywhere(problem, seconds=0.5, rounds=rounds)
        assert split.load <= row.load * (1 + row.slack)
