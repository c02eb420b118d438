"""What only another process can show: interrupts, hash seeds, start methods, caches, an installed wheel."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import PATIENCE_S, ROOT

JOBS = "job_id,submit_s,duration_s,num_gpus\na,0,100,1\nb,10,50,2\nc,20,30,1\n"
REPLAY = ["run", "--policy", "fifo", "--trace", "jobs.csv", "--cluster", "v100:2", "--work", "recorded"]


def python(
    *arguments: object, cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run this Python with the repository importable; an empty value takes a variable away."""
    given = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={name: value for name, value in given.items() if value},
    )


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """A shell that runs the tests in the background has them ignore interrupts, and so would what they start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text(JOBS)
    return tmp_path


def content(folder: Path, *, but: tuple[str, ...] = ()) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir()) if p.name not in but}


def test_control_c_ends_a_run_and_leaves_the_earlier_one_as_it_was(folder):
    assert python("-m", "sim", *REPLAY, "--out", "out", cwd=folder).returncode == 0
    before = content(folder / "out")
    long = ["run", "--policy", "tiresias", "--jobs", "200000", "--work", "recorded", "--out", "out", "--force"]
    with subprocess.Popen(
        [sys.executable, "-m", "sim", *long],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stderr is not None
        while "jobs of synthetic philly" not in process.stderr.readline():
            assert process.poll() is None, "the run ended before it could be interrupted"
        time.sleep(0.7)  # the trace is ready: from here on the simulation runs
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130
    assert out == ""
    assert "interrupted, nothing is half written" in err
    assert "Traceback" not in err
    assert content(folder / "out") == before
    assert sorted(path.name for path in folder.iterdir()) == ["jobs.csv", "out"]


def test_a_reader_that_has_gone_away_is_no_error(folder):
    with subprocess.Popen(
        [sys.executable, "-m", "sim", "trace", "describe", "jobs.csv"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        err = process.stderr.read()
    assert err == b""


def test_hash_seeds_do_not_change_a_byte(folder):
    """A run with everything that draws random numbers or orders names, in processes with three hash seeds."""
    for seed in ("0", "1", "4242"):
        done = python(
            "-m",
            "sim",
            "run",
            "--policy",
            "srtf",
            "--estimate",
            "noisy:0.4",
            "--trace",
            "pai",
            "--jobs",
            "300",
            "--cluster",
            "mixed",
            "--set",
            "engine.mtbf_h=50",
            "--out",
            seed,
            "--quiet",
            cwd=folder,
            PYTHONHASHSEED=seed,
        )
        assert done.returncode == 0, done.stderr
    first = content(folder / "0", but=("timing.json",))
    assert len(first) == 6
    assert content(folder / "1", but=("timing.json",)) == first
    assert content(folder / "4242", but=("timing.json",)) == first


START_METHODS = """
import hashlib, multiprocessing as mp, sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

def digest(seed):
    from policies.registry import make
    from sim.cluster.clusterfiles import load_cluster
    from sim.settings.config import load_config
    from sim.engine.simulate import simulate
    from sim.workload.prepare import prepare
    config = load_config(None, {"jobs": 40, "seed": seed, "load": 0.9})
    cluster = load_cluster("v100:2x4+p100:2x4")
    work = prepare(config, cluster)
    result = simulate(work.trace, cluster, make("hetero"), work.truth, performance=work.performance, seed=seed)
    text = "".join(str(table.to_pylist()) for table in result.tables.values())
    return hashlib.sha256(text.encode()).hexdigest()

if __name__ == "__main__":
    seeds = [1, 2]
    print(*map(digest, seeds))
    for method in ("fork", "spawn"):
        with ProcessPoolExecutor(2, mp_context=mp.get_context(method)) as pool:
            print(*pool.map(digest, seeds))
    with ThreadPoolExecutor(2) as pool:
        print(*pool.map(digest, seeds))
"""


@pytest.mark.slow
def test_fork_spawn_and_threads_give_the_serial_result(folder):
    (folder / "methods.py").write_text(START_METHODS)
    done = python("methods.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    serial, *others = done.stdout.splitlines()
    assert len(set(serial.split())) == 2  # the seeds do differ
    assert others == [serial] * 3


@pytest.mark.slow
def test_a_home_that_cannot_be_written_gives_one_notice_and_the_same_result(folder):
    """Kernels are compiled anew, in memory."""
    run = ["-m", "sim", *REPLAY, "--quiet"]
    done = python(*run, "--out", "a", cwd=folder, HOME="/proc/none", HETSIM_CACHE_DIR="", XDG_CACHE_HOME="")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("compiled kernels cannot be kept") == 1
    assert len(done.stderr.splitlines()) == 1
    assert "HETSIM_CACHE_DIR" in done.stderr
    assert python(*run, "--out", "b", cwd=folder).stderr == ""
    assert content(folder / "a", but=("timing.json",)) == content(folder / "b", but=("timing.json",))


def test_an_edited_helper_is_seen_though_its_caller_was_cached(folder):
    """Numba's own cache looks at the caller's file only, and would answer 10 for ever."""
    kernels = folder / "sim" / "kernels"
    kernels.mkdir(parents=True)
    for path in (folder / "sim" / "__init__.py", kernels / "__init__.py"):
        path.write_text("")
    for name in ("jit.py", "cache_folder.py"):
        shutil.copy(ROOT / "sim/kernels" / name, kernels)
    (kernels / "caller.py").write_text(
        "from sim.kernels.helper import helper\nfrom sim.kernels.jit import jit\n\n\n"
        "@jit\ndef caller(x):\n    return helper(x)\n"
    )
    ask = (
        "from sim.kernels.caller import caller; from sim.kernels.jit import cache_directory; "
        "print(caller(5)); print(cache_directory()); print(sum(caller._cache_hits.values()))"
    )
    answers = []
    for factor in (2, 2, 4):
        (kernels / "helper.py").write_text(
            f"from sim.kernels.jit import jit\n\n\n@jit\ndef helper(x):\n    return {factor} * x\n"
        )
        # Python's own cache tells sources apart by second and size, and these are as long and may be of one second.
        done = python("-c", ask, cwd=folder, PYTHONPATH=str(folder), HETSIM_CACHE_DIR=str(folder / "cache"),
                      PYTHONDONTWRITEBYTECODE="1")
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout.split())
    (first, directory, hits), (again, same, hits_again), (edited, other, hits_edited) = answers
    assert (first, again, edited) == ("10", "10", "20")
    assert directory == same != other
    assert (hits, hits_again, hits_edited) == ("0", "1", "0")


@pytest.mark.slow
def test_a_wheel_runs_from_any_folder(folder):
    pytest.importorskip("hatchling", reason="building a wheel offline needs hatchling in this environment")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "-q"]
    source = folder / "source"
    source.mkdir()
    for name in ("sim", "policies", "traces", "analysis"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    wheels = folder / "wheels"
    for command in (
        ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", wheels, source],
        ["install", "--no-deps", "--no-index", "--find-links", wheels, "--target", folder / "lib", "hetsim"],
    ):
        done = subprocess.run(
            [*pip, *map(str, command)], cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
    shutil.rmtree(source)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(folder / "jobs.csv", elsewhere)

    def installed(*arguments: object) -> str:
        done = python(*arguments, cwd=elsewhere, PYTHONPATH=str(folder / "lib"))
        assert done.returncode == 0, done.stderr
        return done.stdout

    every = (
        "import importlib, pkgutil, sys, sim, policies, traces, analysis\n"
        "for package in (sim, policies, traces, analysis):\n"
        "    assert package.__file__.startswith(sys.argv[1]), package.__file__\n"
        "    for module in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not module.name.endswith('__main__'):\n"
        "            importlib.import_module(module.name)\n"
    )
    installed("-c", every, folder / "lib")
    assert "Replay a trace" in installed("-m", "sim", "--help")
    assert "133.3" in installed("-m", "sim", *REPLAY)
    assert "gavel" in installed("-m", "sim", "cluster", "show")
