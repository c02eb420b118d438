"""What users of other simulators ran into with traces, each as the smallest case that shows it (P-nn: the report).

Cases that a format's own tests hold are there; docs/user-reports.md says where each is.
"""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from policies.registry import find, make, names
from sim.api import PolicyError
from sim.engine.simulate import simulate
from sim.hardware.gputypes import gpu_type
from sim.performance import Performance
from sim.settings.config import EngineConfig
from sim.workload.progress import Modelled
from tests.cli.conftest import Said, here, hetsim  # noqa: F401 - fixtures
from tests.helpers import jobs, nodes, run, segments
from traces.errors import TraceError
from traces.load import load_trace
from traces.machines.any_form import read_machines
from traces.machines.capacity import Machines
from traces.machines.philly_use import read_all_use
from traces.readers.pai_tables import COLUMNS
from traces.reading.status import WORDS
from traces.recipes import assign_recipe
from traces.study.check import check
from traces.study.describe import describe
from traces.synthetic.month import month
from traces.trace import Trace

LOG_JOB = {"status": "Pass", "vc": "v", "user": "u", "submitted_time": "2017-10-07 01:11:39"}
READ = "fb16744dba7d4b887475960151e454a48f81ed764310dfb9f814a5e061db7645"
SCHEDULED = "ae0d172cd5ce499da1e352a20a18bc18336e334db57939c705fb4d240ea88ab2"
"""Hashes of P-67, made before traces were read and checked faster."""
EIGHT = [{"ip": "m51", "gpus": [f"gpu{i}" for i in range(8)]}]


def philly_log(folder: Path, *attempts: tuple[str, str], **more: object) -> Path:
    """A job log of one job with attempts from, to."""
    tried = [{"start_time": start, "end_time": end, "detail": EIGHT} for start, end in attempts]
    path = folder / "cluster_job_log"
    path.write_text(json.dumps([LOG_JOB | {"jobid": "application_1", "attempts": tried} | more]))
    return path


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_p01_a_machine_seen_with_more_gpus_than_listed_is_counted_once_and_has_them(hetsim, here: Path) -> None:  # noqa: F811
    """m51 is listed with 2 GPUs and a job ran on gpu0 to gpu7 of it; a strict reading refuses and names it."""
    philly_log(here, ("2017-10-07 01:12:09", "2017-10-07 01:13:23"))
    written(here, "cluster_machine_list", "machineId,number of GPUs, single GPU mem\nm51,2, 12GB\n")
    words = ("cluster", "from", "cluster_machine_list", "--job-log", "cluster_job_log", "--type", "P100", "-o")
    said: Said = hetsim(*words, "seen.toml")
    assert said.code == 0, said.err
    assert "1 nodes, 8 GPUs" in said.out
    assert len([line for line in said.err.splitlines() if "counted: 1 " in line and "m51" in line]) == 1
    assert hetsim("run", "--trace", "cluster_job_log", "--cluster", "seen.toml", "--policy", "fifo", "--work",
                  "recorded", "--out", "run").code == 0
    strict: Said = hetsim(*words, "strict.toml", "--read", "rule=strict")
    assert strict.code == 2
    assert "m51" in strict.err
    assert not (here / "strict.toml").exists()
    listed: Said = hetsim(*words, "listed.toml", "--read", "rule=listed")
    assert "1 nodes, 2 GPUs" in listed.out
    ran: Said = hetsim("run", "--trace", "cluster_job_log", "--cluster", "listed.toml", "--policy", "fifo", "--work",
                       "recorded", "--out", "short")
    assert "1 job rejected: asks for 8 slots" in ran.out  # not lost in silence


@pytest.mark.parametrize(("rule", "run_s"), [("sum", 193_256), ("last", 193_182), ("span", 193_263)])
def test_p02_the_published_sample_has_three_run_times_by_rule(rule: str, run_s: float, tmp_path: Path) -> None:
    """74 s, a gap of 7 s, 193,182 s: added up, the last attempt, and the wall time."""
    path = philly_log(tmp_path, ("2017-10-07 01:12:09", "2017-10-07 01:13:23"),
                      ("2017-10-07 01:13:30", "2017-10-09 06:53:12"))
    trace = load_trace(path, attempts=rule)
    assert trace.duration_s.tolist() == [run_s]
    assert rule in trace.provenance.options["attempts"]
    assert {"sum": "added up", "last": "last attempt", "span": "gaps"}[rule] in trace.provenance.rule


@pytest.mark.parametrize(("attempts", "word"), [
    ((), "jobs without attempts dropped: 1"), ((("2017-10-07 01:12:09", "None"),), "unfinished jobs dropped.*: 1"),
    ((("None", "None"),), "jobs without a usable attempt dropped: 1"),
])
def test_p02_a_job_without_a_run_time_is_dropped_by_name(
    attempts: tuple[tuple[str, str], ...], word: str, tmp_path: Path
) -> None:
    with pytest.raises(TraceError, match=f"the trace has no jobs.*{word}"):
        load_trace(philly_log(tmp_path, *attempts))


def test_p03_a_row_that_ends_in_a_comma_is_not_shifted(tmp_path: Path) -> None:
    row = "2017-10-03 00:08:00 PDT,m29,60.8,99.4,NA,63.3,100.0,100.0,100.0,100.0,\n"
    sample = read_all_use(written(tmp_path, "cluster_gpu_util", row)).iloc[0]
    assert sample["time_s"] == 1_507_014_480  # 2017-10-03 07:08 UTC
    assert (sample["machine"], sample["gpu0_util"], sample["gpu7_util"]) == ("m29", 60.8, 100.0)
    assert np.isnan(sample["gpu2_util"])  # offline, not idle
    listed = read_machines(written(tmp_path, "machines", "machineId,number of GPUs, single GPU mem\nm31,8, 24GB\n"))
    assert isinstance(listed, Machines)
    assert (listed.gpus.tolist(), listed.gpu_memory_gib.tolist()) == ([8], [24.0])


@pytest.mark.parametrize(("tz", "run_s"), [("America/Los_Angeles", 25_200), ("naive", 21_600)])
def test_p04_a_night_in_which_the_clock_changes_is_seven_hours_long_in_pacific_time(
    tz: str, run_s: float, tmp_path: Path
) -> None:
    path = philly_log(tmp_path, ("2017-11-04 23:00:00", "2017-11-05 05:00:00"), submitted_time="2017-11-04 22:00:00")
    assert load_trace(path, tz=tz).duration_s.tolist() == [run_s]


def test_p07_the_check_counts_unfinished_backwards_and_zero_length_apart(hetsim, here: Path) -> None:  # noqa: F811
    """One of each; and no negative duration is left."""
    folder = here / "pai"
    folder.mkdir()
    rows = [f"{name},worker,1,Terminated,100,{end},600,30,100,T4"
            for name, end in (("open", 0), ("back", 90), ("zero", 100), ("fine", 200))]
    written(folder, "pai_task_table.csv", "\n".join(rows) + "\n")
    assert len(COLUMNS["pai_task_table"]) == rows[0].count(",") + 1
    assert load_trace(folder).duration_s.tolist() == [100, 0] or load_trace(folder).duration_s.tolist() == [0, 100]
    said: Said = hetsim("trace", "check", folder)
    assert said.code == 0
    for words in ("not ended", "end before they start", "zero-length"):
        lines = [line for line in said.out.splitlines() if words in line and "counted" in line]
        assert len(lines) == 1, said.out
        assert lines[0].split()[1] == "1"


def test_p09_hours_are_told_on_the_clock_of_the_trace(tmp_path: Path) -> None:
    """01:18 in UTC+8 is hour 1, not 17; and nobody is shown the year 1970."""
    rows = "j,worker,1,Terminated,494319,494500,600,30,100,T4\n"
    written(tmp_path, "pai_task_table.csv", rows)
    summary = describe(load_trace(tmp_path))
    assert np.flatnonzero(summary["hours"]).tolist() == [1]
    assert "1970" not in json.dumps(summary)


def test_p12_a_prepared_file_says_how_it_was_made_and_can_be_made_again(hetsim, here: Path) -> None:  # noqa: F811
    """Source, version, filter, seed and counts stand beside it; the recipe gives the same hash."""
    made: Said = hetsim("trace", "convert", "philly", "made.csv", "--jobs", 200, "--seed", 3, "--status", "passed")
    assert made.code == 0, made.err
    about = json.loads((here / "made.csv.json").read_text())
    assert about["source"]
    assert about["hetsim"]
    assert about["seed"] == 3
    assert about["jobs"] == len(load_trace(here / "made.csv"))
    assert about["recipe"]["settings"]["status"] == ["passed"]
    others = int(np.count_nonzero(month("philly", seed=3).status != "passed"))
    assert about["jobs"] == 200
    assert about["counts"] == {"as asked, left out: jobs of another status": others}
    again: Said = hetsim("trace", "again", "made.csv.json")
    assert (again.code, "the same" in again.out) == (0, True)
    written(here, "made.csv.json", json.dumps(about | {"sha256": "0" * 64}))
    assert hetsim("trace", "again", "made.csv.json").code == 1





def test_p16_more_work_than_gpus_is_noticed_before_a_run_for_each_type(hetsim, here: Path) -> None:  # noqa: F811
    """Three jobs of 100 s on two A10, and one on the four T4: load 1.5 and 0.25 over 100 s."""
    rows = [f"{name},0,100,1,{kind}" for name, kind in (("a", "A10"), ("b", "A10"), ("c", "A10"), ("d", "T4"))]
    written(here, "spot.csv", "\n".join(["job_id,submit_s,duration_s,num_gpus,gpu_type", *rows, "e,100,0,1,T4"]) + "\n")
    said: Said = hetsim("trace", "describe", "spot.csv", "--cluster", "a10:2+t4:4", "--json")
    assert said.code == 0, said.err
    load = json.loads(said.out)["load"]["by_type"]
    assert (load["A10"], load["T4"]) == (1.5, 0.25)
    text: str = hetsim("trace", "describe", "spot.csv", "--cluster", "a10:2+t4:4").out
    above = [line for line in text.splitlines() if "more than" in line or "above" in line]
    assert any("A10" in line for line in above), text
    assert not any("T4" in line for line in above), text


def test_p17_the_words_of_each_log_have_one_meaning() -> None:
    assert {WORDS[word] for word in ("pass", "terminated", "completed", "succeeded")} == {"passed"}
    assert {WORDS[word] for word in ("killed", "cancelled", "canceled", "timeout")} == {"killed"}
    assert {WORDS[word] for word in ("failed", "node_fail")} == {"failed"}
    assert {WORDS[word] for word in ("running", "waiting", "pending")} == {"unknown"}


def test_p19_a_policy_that_needs_what_the_trace_lacks_is_refused_before_the_run() -> None:
    """The message names policy, column and trace."""
    class ByUser(find("fifo")):  # type: ignore[misc] # a base that is found by name
        name = "by-user"
        needs_columns = ("user",)

    trace = jobs([(0, 10, 1)])
    with pytest.raises(PolicyError, match=r"policy 'by-user', trace memory.*column 'user'"):
        simulate(trace, nodes(("V100", 1, 1)), ByUser(), None, EngineConfig())  # type: ignore[arg-type]


def test_p20_names_come_from_the_header_file_and_rows_without_times_are_counted(tmp_path: Path) -> None:
    """Here two columns stand in another order than published: the file beside the table says so."""
    written(tmp_path, "pai_task_table.header",
            "job_name,task_name,inst_num,status,end_time,start_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n")
    written(tmp_path, "pai_task_table.csv",
            "a,worker,1,Terminated,400,100,600,30,100,T4\nb,worker,1,Running,,,600,30,100,T4\n"
            "c,worker,1,Waiting,,,600,30,100,T4\n")
    trace = load_trace(tmp_path)
    assert trace.duration_s.tolist() == [300]
    assert sorted(trace.provenance.counts.values()) == [1, 1]
    assert {"unfinished tasks (Running) dropped", "tasks never started dropped"} == set(trace.provenance.counts)


def test_p21_ids_above_2_to_the_53_are_two_and_a_blank_one_is_refused(tmp_path: Path) -> None:
    rows = "job_id,submit_s,duration_s,num_gpus\n1925036343869802844,0,1,1\n1925036343869802843,0,1,1\n"
    assert load_trace(written(tmp_path, "two.csv", rows)).job_id.tolist() == \
        ["1925036343869802843", "1925036343869802844"]
    with pytest.raises(TraceError, match="line 4, column 'job_id'"):
        load_trace(written(tmp_path, "blank.csv", rows + ",0,1,1\n"))


def test_p22_users_called_na_and_nan_have_rows_of_their_own(tmp_path: Path) -> None:
    users = ["NA", "nan", "uA", "None", "null", "NA"]
    rows = "".join(f"{i},0,10,1,{user}\n" for i, user in enumerate(users))
    trace = load_trace(written(tmp_path, "users.csv", "job_id,submit_s,duration_s,num_gpus,user\n" + rows))
    summary = describe(trace)
    counts = {row["value"]: row["jobs"] for row in summary["top_users"]}
    assert counts == {"NA": 2, "nan": 1, "uA": 1, "None": 1, "null": 1}
    assert sum(counts.values()) == summary["jobs"]
    assert summary["users"] == 5
    assert [o.count for o in check(trace) if "user" in o.what] == [5]  # odd, and told; none is lost


def test_p29_one_file_runs_under_every_policy(tmp_path: Path) -> None:
    """Written once as hetsim's own table, with models by ElasticFlow's rule; each policy reads the same file."""
    rows = [(f"j{i}", 60 * i, 600 + 40 * i, 2 ** (i % 3)) for i in range(8)]
    text = "job_id,submit_s,duration_s,num_gpus,model,batch_size\n"
    plain = Trace.from_columns({
        "job_id": [r[0] for r in rows], "submit_s": [r[1] for r in rows], "duration_s": [r[2] for r in rows],
        "num_gpus": [r[3] for r in rows]})
    chosen = assign_recipe(plain, "pollux", 0)
    named = zip(rows, chosen.model.tolist(), chosen.batch_size.tolist(), strict=True)
    path = written(tmp_path, "one.csv", text + "".join(
        f"{i},{at},{run_s},{gpus},{model},{batch}\n" for (i, at, run_s, gpus), model, batch in named))
    cluster, performance = nodes(("V100", 1, 4), ("T4", 1, 4)), Performance()
    done = {}
    for policy in (name for name in names() if not find(name).needs_starts):
        trace = load_trace(path)
        truth = Modelled(trace, cluster, performance, gpu_type("V100"))
        result = simulate(trace, cluster, make(policy), truth, EngineConfig(), performance=performance,
                          estimate_s=truth.work_total / truth.reference_rate)
        done[policy] = int((result.tables["jobs"].to_pandas()["state"] == "done").sum())
    assert set(done.values()) == {8}, done


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to know a process's peak memory")
def test_p67_memory_grows_by_a_bounded_number_of_bytes_a_job() -> None:
    """A replay of 60,000 jobs against one of 10,000, each in a process of its own: under 2 KiB for each job more."""
    def peak_kib(count: int) -> int:
        code = (
            "import re, numpy as np\n"
            "from tests.helpers import nodes, run\n"
            "from traces.trace import Trace\n"
            f"n = {count}\n"
            "t = Trace.from_columns({'job_id': np.arange(n).astype(str), 'submit_s': np.arange(n) * 10.0,\n"
            "                        'duration_s': np.full(n, 15.0), 'num_gpus': np.ones(n, int)})\n"
            "run(t, nodes(('V100', 1, 8)), 'fifo')\n"
            # The peak of this program alone: getrusage would count the parent's memory before exec.
            "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])\n"
        )
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                             cwd=Path(__file__).parents[2])
        return int(out.stdout)

    assert 0 < (peak_kib(60_000) - peak_kib(10_000)) / 50_000 < 2.0


def test_p67_a_known_trace_has_a_known_hash_and_a_known_schedule() -> None:
    """Speed work must not change a byte: hashes written down once."""
    rows = [(37.0 * (i // 3), 10.0 + (i * 7919) % 613, 2 ** ((i * 31) % 4)) for i in range(300)]
    trace = jobs(rows, user=[("NA", "", "u\u00e9")[i % 3] for i in range(300)], status=["passed"] * 300)
    columns = ("job_id", "submit_s", "duration_s", "num_gpus", "user", "status")
    text = "\n".join(",".join(str(getattr(trace, name)[i]) for name in columns) for i in range(300))
    assert sha256(text.encode()).hexdigest() == READ
    table = segments(run(trace, nodes(("V100", 2, 8)), "srsf"))
    lines = zip(table["job_id"], table["begin_s"].astype(float), table["end_s"].astype(float), strict=True)
    assert sha256(repr(list(lines)).encode()).hexdigest() == SCHEDULED
