"""[sweep] as cells: which there are, what their columns are, and what is refused before any is played."""

from __future__ import annotations

from collections import OrderedDict

import pytest

from sim.settings.values import ConfigError
from sim.sweeps.executors import Here
from sim.sweeps.grid import check_jobs, read_grid
from sim.sweeps.kept import TRACES
from sim.workload.prepare import whole_trace
from tests.sweeps.conftest import RUN, played
from traces.errors import HetsimError


def values(grid, *names):
    return [tuple(cell.axes[name] for name in names) for cell in grid.cells]


def test_cells_are_all_combinations_and_the_first_list_is_the_slowest(grid):
    made = grid('policy = ["fifo", "srtf"]\nseed = [7, 8]')
    assert values(made, "policy", "seed") == [("fifo", 7), ("fifo", 8), ("srtf", 7), ("srtf", 8)]
    assert [cell.config.seed for cell in made.cells] == [7, 8, 7, 8]
    assert len({cell.id for cell in made.cells}) == 4
    assert made.tables == ("jobs",)


def test_one_value_needs_no_list(grid):
    assert values(grid('policy = "fifo"\nseed = [1, 2]'), "policy", "seed") == [("fifo", 1), ("fifo", 2)]


def test_a_dotted_name_may_be_quoted_or_not_and_the_section_run_may_be_named(grid):
    bare, quoted = grid("engine.mtbf_h = [1, 2.5]\nrun.seed = [3]"), grid('"engine.mtbf_h" = [1, 2.5]\nseed = 3')
    assert [cell.id for cell in bare.cells] == [cell.id for cell in quoted.cells]
    assert [cell.config.engine.mtbf_h for cell in bare.cells] == [1.0, 2.5]
    axis = bare.axes[0]
    assert (axis.name, axis.column, axis.kind, axis.values) == ("engine.mtbf_h", "engine_mtbf_h", "double", (1.0, 2.5))


def test_several_blocks_are_put_together_and_equal_cells_are_one(grid):
    """What a block does not vary has the value that its runs have: a default, or none where that is no setting."""
    made = grid("""
        [[sweep]]
        policy = ["fifo", "srtf"]
        [[sweep]]
        policy = ["srtf", "tiresias"]
        estimate = ["oracle", "noisy:0.5"]
        [[sweep]]
        policy = "tiresias"
        "policy.queue_limits" = ["3250,7200", "60,600"]
    """)
    default = "3250,7200"
    assert values(made, "policy", "estimate", "policy.queue_limits") == [
        ("fifo", "oracle", None), ("srtf", "oracle", None), ("srtf", "noisy:0.5", None),
        ("tiresias", "oracle", default), ("tiresias", "noisy:0.5", default), ("tiresias", "oracle", "60,600")]


def test_settings_that_go_together_are_tables_of_with(grid):
    made = grid('seed = [1, 2]\nwith = [{trace = "pai", cluster = "pai320"}, {trace = "philly", cluster = "v100:4x8"}]')
    assert values(made, "seed", "trace", "cluster") == [
        (seed, *pair) for seed in (1, 2) for pair in (("pai", "pai320"), ("philly", "v100:4x8"))]


def test_a_column_makes_way_for_that_of_the_tables(grid):
    """`user` is of jobs, `jobs` a number of the metrics."""
    made = grid('trace = "jobs.csv"\nuser = [["u"], ["u", "v"]]\njobs = [1, 2]')
    assert [(axis.column, axis.kind) for axis in made.axes] == [
        ("trace", "string"), ("run_user", "string"), ("run_jobs", "int64")]
    assert made.axes[1].values == ("u", "u,v")


def test_names_of_policies_and_gpu_types_are_as_the_run_has_them(grid):
    made = grid('policy = ["fifo_skip", "fifo-skip"]\nreference = "v100"')
    assert values(made, "policy", "reference") == [("fifo-skip", "V100")] * len(made.cells)
    assert len(made.cells) == 1


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("preemption_overhed_s = [30]", ["sweep.toml, [sweep]", "unknown key", "'engine.preemption_overhead_s'"]),
        ("engine.preemption_overhed_s = [30]", ["[sweep], engine.preemption_overhed_s", "'preemption_overhead_s'"]),
        ("engine.mtbf_h = [5, -1.0]", ["[sweep], engine.mtbf_h: value not allowed; got -1.0"]),
        ("seed = [0, 1.5]", ["[sweep], run.seed", "got 1.5", "an integer from 0"]),
        ('policy = ["fifo", "srft"]', ["with policy = srft: unknown policy; got 'srft'", "did you mean 'srtf'?"]),
        ('policy = ["fifo", "srtf"]\n"policy.queue_limits" = ["60"]', ["policy = fifo", "unknown setting"]),
        ('cluster = ["gavel", "gavle"]', ["with cluster = gavle: no such cluster", "did you mean 'gavel'?"]),
        ('trace = ["jobs.csv", "job.csv"]', ["with trace = job.csv", "job.csv"]),
        ('estimate = ["noisy:x"]', ["[sweep], run.estimate", "noisy:MRE"]),
        ('policy = ["fifo", "hetero"]', ["with policy = hetero: the policy needs modelled speeds"]),
        ("seed = []", ["[sweep], seed: a list without values"]),
        ('out = ["a"]', ["[sweep], out: not a setting of a sweep"]),
        ('with = [{seed = 1}]\nseed = [2]', ["[sweep]: a setting is given twice; got 'seed'"]),
        ('seed = [1]\nrun.seed = [2]', ["a setting is given twice; got 'seed'"]),
        ("engine = [{}]", ["[sweep], engine: a table, not a value of one setting"]),
        ('gpu_types = [{V100 = "T4"}]', ["[sweep], gpu_types: a table, not a value of one setting"]),
        ('"engine.outages" = ["/dev/zero"]', ["engine.outages", "neither a file nor a folder"]),
        ('"engine.pairs" = ["/nowhere.csv"]', ["engine.pairs: no such file; got '/nowhere.csv'"]),
        ('measured = ["/nowhere.csv"]', ["run.measured: no such file; got '/nowhere.csv'"]),
        ("with = 3", ["[sweep], with: value not allowed"]),
        ("", ["no [sweep] with lists of settings"]),
        (f"seed = {list(range(400))}\nload = {[n / 1000 for n in range(1, 400)]}", ["too many cells; got 159600"]),
    ],
    ids=lambda text: text[:40] if isinstance(text, str) else "",
)
def test_p66_what_is_wrong_is_said_before_anything_is_played(grid, text, parts):
    with pytest.raises(HetsimError) as said:
        grid(text)
    assert said.value.exit_code == 2
    for part in parts:
        assert part in str(said.value), str(said.value)


@pytest.mark.parametrize(
    ("sections", "part"),
    [
        ("[resutls]\n", "unknown section; got 'resutls'.*did you mean 'results'"),
        ('[results]\ntables = ["job"]\n', "results.tables: no such table; got 'job'.*did you mean 'jobs'"),
        ('[results]\ntable = ["jobs"]\n', "results.table: unknown key"),
        ('[dask]\nmemroy = "2GB"\n', "dask.memroy: unknown key.*did you mean 'memory'"),
        ('[run]\nout = "x"\n', "run.out: not a setting of a sweep"),
        ('[results]\nwarmup = "soon"\n', "results.warmup: no time of a measuring window; got 'soon'"),
        ("[results]\nfrom = true\n", "results.from.*value not allowed; got True"),
        ('[results]\nfrom = 5\nwarmup = "1h"\n', "from and warmup say the same"),
        ("[results]\nfollow = true\n", "results.follow: follow without a measuring window"),
        ("[engine]\nmtbf = 1\n", "engine.mtbf: unknown key"),
    ],
)
def test_other_sections_are_checked_too(grid, sections, part):
    with pytest.raises(ConfigError, match=part):
        grid("seed = [1]", sections)


def test_a_file_without_sweep_is_one_run(tmp_path):
    file = tmp_path / "one.toml"
    file.write_text(RUN)
    with pytest.raises(ConfigError, match=r"no \[sweep\].*hetsim run --config"):
        read_grid(file)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("skip = [30]", "skip = 30.*no jobs before its first"),
        ('"read.attempts" = [true]', "no such option; got 'attempts'"),
        ('"gpu_types.V100" = ["nonsense"]', "nonsense"),
        ('"assign_with.x" = [1]', "settings of no recipe"),
        ('vc = [["nobody"]]', "nobody"),
    ],
)
def test_what_is_wrong_with_jobs_that_are_generated_is_found_before_they_are_played(grid, text, part):
    made = grid(text)
    with pytest.raises(HetsimError, match=part):
        check_jobs(made.cells)


def test_one_trace_is_drawn_of_those_that_differ_in_the_seed_only(grid, monkeypatch):
    drawn = []
    whole = TRACES.get
    monkeypatch.setattr(TRACES, "get", lambda config, sha256=None: drawn.append(config.seed) or whole(config))
    check_jobs(grid('policy = ["fifo", "srtf"]\nseed = [3, 4, 5]\njobs = [20, 30]').cells)
    assert drawn == [3]  # 20 and 30 jobs are of one month
    check_jobs(grid('policy = ["fifo", "srtf"]\nseed = [3, 4, 5]\njobs = [20, 30]\nload_by = ["compress"]').cells)
    assert drawn == [3, 3, 3]


def test_a_trace_file_is_read_once_for_the_check_of_settings_jobs_and_the_first_cell(grid, monkeypatch):
    """The check of the jobs asked for any content of the file, and so read it again."""
    monkeypatch.setattr("sim.sweeps.kept.TRACES._kept", OrderedDict())
    read = []
    monkeypatch.setattr("sim.sweeps.kept.whole_trace", lambda config: read.append(config.trace) or whole_trace(config))
    made = grid('trace = ["jobs.csv"]\npolicy = ["fifo", "srtf"]\ncluster = ["v100:2"]')
    check_jobs(made.cells)
    assert not played(made, "out", Here).failed
    assert read == ["jobs.csv"]


@pytest.mark.parametrize(("key", "part"), [
    ("sede", r"unknown key; got 'sede'.*did you mean 'run.seed'"), ("engine.mtbfh", "mtbfh.*mtbf_h"),
    ("engin.mtbf_h", "engin"), ("policy.limits", "limits"),
])
def test_a_misspelt_key_of_a_later_block_is_named_as_in_the_first(grid, key, part):
    """Its value in the cells of the first block was asked for before anybody had looked whether there is such a key."""
    with pytest.raises(HetsimError, match=part) as alone:
        grid(f'[[sweep]]\npolicy = "fifo"\n"{key}" = [1]')
    with pytest.raises(HetsimError) as later:
        grid(f'[[sweep]]\npolicy = "srtf"\n[[sweep]]\npolicy = "fifo"\n"{key}" = [1]')
    assert str(later.value) == str(alone.value)
