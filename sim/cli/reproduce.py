"""`hetsim reproduce`: every experiment file that is a figure, from its settings to the picture."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sim.cli import console
from traces.errors import HetsimError, did_you_mean

if TYPE_CHECKING:
    from sim.experiment import Drawing
    from sim.questions import Experiment
    from sim.sweeps.grid import Grid


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

    \b
    Examples:
      hetsim reproduce experiments
      hetsim reproduce experiments --only resnet18-scaling --out paper
      hetsim reproduce experiments/hetero-value.toml --workers 8
    """
    experiments = [_checked(file) for file in _found(files, only or [])]
    failed = 0
    for experiment in experiments:
        failed += experiment.play(sweeps, workers, dask, quiet)
        made = None if again else _up_to_date(out, experiment)
        drawn = experiment.draw(out) if made is None else made
        if made is None:
            _record(out, experiment, drawn)
        print(f"{experiment.name}: {'new' if made is None else 'up to date'}: {' '.join(map(str, drawn))}", flush=True)
    if failed:
        console.say(f"{failed:,} cells have failed and are missing in the figures; hetsim sweep FILE tells why",
                    style="bold red")
        sys.exit(1)


class Figure:
    """An experiment file with [figure]."""

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.stem

    def play(self, sweeps: Path, workers: int | None, dask: str | None, quiet: bool) -> int:
        """Make what is drawn; returns how many cells have failed."""
        return 0

    def inputs(self) -> list[str]:
        """What the figures depend on, but for the code that draws them."""
        raise NotImplementedError

    def draw(self, out: Path) -> list[Path]:
        """Write the figures; returns the files."""
        raise NotImplementedError


class Asked(Figure):
    """One with [perf]."""

    def __init__(self, path: Path) -> None:
        from sim.questions import load_experiment

        super().__init__(path)
        self.experiment: Experiment = load_experiment(path)

    def inputs(self) -> list[str]:
        from sim.simulate import code_hash

        return [code_hash(), self.path.read_text("utf-8-sig")]

    def draw(self, out: Path) -> list[Path]:
        from analysis.drawing.perffigure import draw

        out.mkdir(parents=True, exist_ok=True)
        return draw(self.experiment.rows(), self.experiment.figure, out, self.name)


class Swept(Figure):
    """One with [sweep]."""

    def __init__(self, path: Path) -> None:
        from analysis.measure.measures import MEASURES
        from sim.experiment import check_names, drawings
        from sim.sweeps.grid import read_grid

        super().__init__(path)
        self.drawings: list[Drawing] = drawings(path)
        self.grid: Grid = read_grid(path)
        check_names(self.drawings, path, {axis.name: axis.values for axis in self.grid.axes}, MEASURES,
                    self.grid.tables)

    def play(self, sweeps: Path, workers: int | None, dask: str | None, quiet: bool) -> int:
        from sim.cli.sweep import executor_of, played
        from sim.sweeps.store import Store

        self.folder = sweeps / self.name
        how = {"retry_failed": False, "stop_on_error": False, "prune": False}
        executor = executor_of(self.grid, workers, dask)
        return len(played(self.grid, Store(self.folder), list(self.grid.cells), executor, quiet, how).failed)

    def inputs(self) -> list[str]:
        from analysis.sweeps import load_sweep

        cells = load_sweep(self.folder).cells
        return [*(drawing.model_dump_json() for drawing in self.drawings), *(cells["cell"] + cells["state"])]

    def draw(self, out: Path) -> list[Path]:
        from analysis.drawing.sweepfigure import draw
        from analysis.sweeps import load_sweep

        sweep = load_sweep(self.folder)
        stems = [self.name + (f"-{d.name or n}" if d.name or len(self.drawings) > 1 else "")
                 for n, d in enumerate(self.drawings, 1)]
        pairs = zip(stems, self.drawings, strict=True)
        return [file for stem, drawing in pairs for file in draw(sweep, drawing, out, stem)]


def _found(files: list[Path], only: list[str]) -> list[Path]:
    """Files with [figure], in order of name; refused where one that was named has none."""
    from sim.settings import read_toml

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


def _checked(file: Path) -> Figure:
    """An experiment, read and checked before any is played."""
    from sim.settings import read_toml

    kinds = [kind for kind in ("perf", "sweep") if kind in read_toml(file)]
    if len(kinds) != 1:
        raise HetsimError("a figure of what?", where=str(file), got=" and ".join(kinds) or "[figure] alone",
                          allowed="[figure] beside [perf] or [sweep]")
    return Asked(file) if kinds == ["perf"] else Swept(file)


def _identity(experiment: Figure) -> str:
    """Hash of all that the figures depend on: inputs, the code that draws, and the libraries that it draws with."""
    import matplotlib
    import numpy as np

    import analysis

    code = Path(str(analysis.__file__)).parent
    digest = hashlib.sha256()
    for part in (matplotlib.__version__, np.__version__, *experiment.inputs(), *_sources(code)):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()


def _sources(code: Path) -> Iterator[str]:
    for file in sorted(code.glob("*.py")):
        yield file.name
        yield file.read_text("utf-8")


def _file(out: Path, experiment: Figure) -> Path:
    return out / f"{experiment.name}.json"


def _up_to_date(out: Path, experiment: Figure) -> list[Path] | None:
    """The files of the figures, if they were made from the same and nobody changed them since; else None."""
    try:
        record: dict[str, Any] = json.loads(_file(out, experiment).read_text("utf-8"))
        same = record["identity"] == _identity(experiment)
        files = {out / name: digest for name, digest in record["files"].items()}
        return list(files) if same and all(_sha256(file) == digest for file, digest in files.items()) else None
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None


def _record(out: Path, experiment: Figure, files: list[Path]) -> None:
    content = {"experiment": experiment.path.name, "identity": _identity(experiment),
               "files": {file.name: _sha256(file) for file in files}}
    part = out / f".{experiment.name}.json.part"
    part.write_text(json.dumps(content, indent=1) + "\n", "utf-8")
    part.replace(_file(out, experiment))


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()
