"""`hetsim reproduce`: every experiment file that is a figure, from its settings to the picture."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import console
from traces.errors import HetsimError, did_you_mean
from traces.outfile import write_text

if TYPE_CHECKING:
    from analysis.sweeps import Sweep


def reproduce(
    files: Annotated[list[Path], typer.Argument(
        metavar="FILE|FOLDER...", help="Experiment files; a folder stands for those in it that have a [figure].")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the figures.")] = Path("figures"),
    sweeps: Annotated[Path, typer.Option(help="Folder of the sweeps.")] = Path("sweeps"),
    workers: Annotated[int | None, typer.Option(
        "--workers", "-j", min=1, help="Cells of a sweep played at once.  [processors]")] = None,
    dask: Annotated[str | None, typer.Option(
        metavar="ADDRESS", help="Play on a Dask cluster: the address of its scheduler, 'local', or 'slurm'.")] = None,
    only: Annotated[list[str] | None, typer.Option(
        metavar="NAME", help="Only this experiment; may be repeated.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Draw also what is up to date.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Make the figures of experiments, in order of their names; what is done already is skipped.

    [perf] is asked as by `hetsim perf --config`; [sweep] is played, or gone on with, as by `hetsim sweep`, and drawn.
    Beside each figure (PNG, PDF) lies a table of what it shows (CSV), and a record of what it was made from (JSON).
    Of a folder, experiments are left out whose trace is not there.

    \b
    Examples:
      hetsim reproduce experiments
      hetsim reproduce experiments --only resnet18-scaling --out paper
      hetsim reproduce experiments/hetero-value.toml --workers 8
    """
    named = {file.stem for file in files if not file.is_dir()} | set(only or [])
    experiments = []
    for file in _found(files, only or []):
        if file.stem not in named and (lacking := _lacking(file)):
            console.say(f"left out: {file.name}: its trace {lacking} is not there")
        else:
            experiments.append(_checked(file, sweeps))
    _refuse_shared_names(experiments)
    failed = 0
    for experiment in experiments:
        failed += experiment.play(workers, dask, quiet)
        identity = _identity(experiment)
        made = None if again else _up_to_date(out, experiment, identity)
        drawn = experiment.draw(out) if made is None else made
        if made is None:
            _record(out, experiment, identity, drawn)
        console.tell(f"{experiment.name}: {'new' if made is None else 'up to date'}: {' '.join(map(str, drawn))}",
                     flush=True)
    if failed:
        console.say(f"{failed:,} cells have failed and are missing in the figures; hetsim sweep FILE tells why",
                    style="bold red")
        sys.exit(1)


class Experiment:
    """An experiment file with [figure].

    Attributes
    ----------
    code : where its figures are drawn; what these files import counts, too.
    stems : names of its figures' files, without their endings.
    """

    code: tuple[str, ...]

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.stem
        self.stems = [self.name]

    def play(self, workers: int | None, dask: str | None, quiet: bool) -> int:
        """Make what is drawn; returns how many cells have failed."""
        return 0

    def inputs(self) -> list[str]:
        """What the figures depend on, but for the code that draws them; known after `play`."""
        raise NotImplementedError

    def draw(self, out: Path) -> list[Path]:
        """Write the figures of what was played; returns the files."""
        raise NotImplementedError


class PerfExperiment(Experiment):
    """One with [perf]."""

    code = ("analysis/figures/perffigure.py",)

    def __init__(self, path: Path) -> None:
        from sim.cli.questions import load_experiment

        super().__init__(path)
        self.asked = load_experiment(path)

    def inputs(self) -> list[str]:
        from sim.kernels.cache_folder import code_hash

        return [code_hash(), self.path.read_text("utf-8-sig")]

    def draw(self, out: Path) -> list[Path]:
        from analysis.figures.perffigure import draw

        return draw(self.asked.rows(), self.asked.figure, out, self.name)


class SweepExperiment(Experiment):
    """One with [sweep], played in a folder of `sweeps`."""

    code = ("analysis/figures/sweepfigure.py", "analysis/figures/sweepdrawing.py", "analysis/sweeps.py")

    def __init__(self, path: Path, sweeps: Path) -> None:
        from analysis.figures.sweepdrawing import check_names, drawings, endings
        from analysis.metrics.measures import MEASURES
        from sim.sweeps.grid import read_grid

        super().__init__(path)
        self.drawings, self.grid, self.folder = drawings(path), read_grid(path), sweeps / self.name
        self.stems = [self.name + ending for ending in endings(self.drawings)]
        check_names(self.drawings, path, {axis.name: axis.values for axis in self.grid.axes}, MEASURES,
                    self.grid.tables)

    def play(self, workers: int | None, dask: str | None, quiet: bool) -> int:
        from sim.cli.sweep import executor_of, played
        from sim.sweeps.store import Store

        executor = executor_of(self.grid, workers, dask)
        return len(played(self.grid, Store(self.folder), list(self.grid.cells), executor, quiet).failed)

    @cached_property
    def played(self) -> Sweep:
        """What lies in the folder after `play`."""
        from analysis.sweeps import load_sweep

        return load_sweep(self.folder)

    def inputs(self) -> list[str]:
        cells = self.played.cells
        return [*(drawing.model_dump_json() for drawing in self.drawings), *(cells["cell"] + cells["state"])]

    def draw(self, out: Path) -> list[Path]:
        from analysis.figures.sweepfigure import draw

        pairs = zip(self.stems, self.drawings, strict=True)
        return [file for stem, drawing in pairs for file in draw(self.played, drawing, out, stem)]


def _found(files: list[Path], only: list[str]) -> list[Path]:
    """Files with [figure], in order of name; refused where one that was named has none."""
    from sim.settings.values import read_toml

    found: dict[str, Path] = {}
    for path in files:
        inside = sorted(path.glob("*.toml")) if path.is_dir() else [path]
        for file in inside:
            if "figure" not in read_toml(file):
                if not path.is_dir():
                    raise HetsimError("an experiment without [figure]", where=str(file),
                                      todo="Play it with hetsim run, sweep or perf --config.")
            elif found.setdefault(file.stem, file).resolve() != file.resolve():
                raise HetsimError("two experiments of one name", where=str(file), got=str(found[file.stem]))
    for name in only:
        if name not in found:
            raise HetsimError("no such experiment", where="--only", got=name, allowed=", ".join(sorted(found)),
                              todo=did_you_mean(name, found))
    if not found:
        raise HetsimError("no experiment with [figure]", where=" ".join(map(str, files)))
    return [found[name] for name in sorted(found) if not only or name in only]


def _lacking(file: Path) -> str:
    """The first file that a sweep names as its trace, and that is not on this machine; empty where all are there."""
    from sim.settings.values import read_toml
    from sim.sweeps.sweepfile import read_file
    from traces.synthetic.generate import GENERATORS

    if "sweep" not in read_toml(file):
        return ""
    found = read_file(file)
    given = [one for one in (found.fixed.get("run"), *found.combinations) if isinstance(one, Mapping)]
    names = [one[key] for one in given for key in ("trace", "run.trace") if isinstance(one.get(key), str)]
    # A word that is like the name of a generated trace is a slip of the pen, which is told.
    files = (name for name in names if {"/", "."} & set(name) or not did_you_mean(name, GENERATORS))
    return next((name for name in files if not os.path.exists(name)), "")


def _refuse_shared_names(experiments: Sequence[Experiment]) -> None:
    """Two experiments whose figures would have the same files (`a` with a figure `b`, and `a-b`)."""
    owner: dict[str, Experiment] = {}
    for experiment in experiments:
        for stem in experiment.stems:
            if owner.setdefault(stem, experiment) is not experiment:
                raise HetsimError("two experiments would write one figure", got=stem,
                                  where=f"{owner[stem].path} and {experiment.path}",
                                  todo="Give the figure, or the experiment, another name.")


def _checked(file: Path, sweeps: Path) -> Experiment:
    """An experiment, read and checked before any is played."""
    from sim.settings.values import read_toml

    kinds = [kind for kind in ("perf", "sweep") if kind in read_toml(file)]
    if len(kinds) != 1:
        raise HetsimError("a figure of what?", where=str(file), got=" and ".join(kinds) or "[figure] alone",
                          allowed="[figure] beside [perf] or [sweep]")
    return PerfExperiment(file) if kinds == ["perf"] else SweepExperiment(file, sweeps)


def _identity(experiment: Experiment) -> str:
    """Hash of all that the figures depend on: inputs, the code that draws, and the libraries that it draws with."""
    import matplotlib
    import numpy as np

    from sim.sweeps.identity import ROOT, hash_of, imported

    code = hash_of(imported(ROOT / file for file in experiment.code))
    digest = hashlib.sha256()
    for part in (matplotlib.__version__, np.__version__, code, *experiment.inputs()):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _file(out: Path, experiment: Experiment) -> Path:
    return out / f"{experiment.name}.json"


def _up_to_date(out: Path, experiment: Experiment, identity: str) -> list[Path] | None:
    """The files of the figures, if they were made from the same and nobody changed them since; else None."""
    try:
        record: dict[str, Any] = json.loads(_file(out, experiment).read_text("utf-8"))
        files = {out / name: digest for name, digest in record["files"].items()}
        if any(file.parent != out or not file.is_file() for file in files):  # none of ours
            return None
        same = record["identity"] == identity and all(_sha256(file) == digest for file, digest in files.items())
        return list(files) if same else None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def _record(out: Path, experiment: Experiment, identity: str, files: list[Path]) -> None:
    content = {"experiment": experiment.path.name, "identity": identity,
               "files": {file.name: _sha256(file) for file in files}}
    write_text(_file(out, experiment), json.dumps(content, indent=1) + "\n")


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
