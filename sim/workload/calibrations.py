"""Which calibration a replay takes that was told none, and how that is said."""

from __future__ import annotations

from pathlib import Path

from sim.settings.config import RunConfig

DEFAULT_CALIBRATION = {"acme": "tuned"}
"""Of generated traces that are not of training scripts of 2018 to 2021, as all others are taken to be: acme's jobs
are of 2023 and train large language models."""

_STANDS_FOR = {
    "scripts": "training scripts of 2018 to 2021, as in logs of those years; for optimized code --calibration tuned",
    "tuned": "optimized code, as of 2023; for training scripts of 2018 to 2021 --calibration scripts",
}


def default_calibration(config: RunConfig) -> str:
    """The calibration of these settings: the one that was told, else that of the trace."""
    if "calibration" in config.model_fields_set or config.work == "recorded":
        return config.calibration
    return DEFAULT_CALIBRATION.get(config.trace, config.calibration)


def untold_calibration(config: RunConfig) -> str:
    """One line on the calibration that these settings did not name; empty where they did, or no speed is modelled."""
    if "calibration" in config.model_fields_set or config.work == "recorded":
        return ""
    name = default_calibration(config)
    first = f"as measured where {Path(config.measured).name} has the model, else " if config.measured else ""
    return f"speeds: {first}calibration {name} ({_STANDS_FOR[name]})"
