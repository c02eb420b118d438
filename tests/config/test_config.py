"""Settings: what a file and the command line say is what a run gets, and nothing wrong passes in silence."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from sim.hardware.gputypes import catalogue
from sim.settings.config import ConfigError, EngineConfig, RunConfig, list_settings, load_config, parse_setting

_ESTIMATES = "oracle, noisy:MRE or noisy-lognormal:MRE with MRE a number from 0, or column"


@pytest.fixture
def write(tmp_path: Path):
    """Write a settings file and return its path."""

    def _write(text: str) -> Path:
        path = tmp_path / "experiment.toml"
        path.write_text(text, "utf-8")
        return path

    return _write


def test_without_a_file_the_defaults_hold():
    config = load_config()
    assert config == RunConfig()
    assert (config.policy, config.trace, config.seed) == ("hetero", "philly", 0)
    assert config.engine.preemption_overhead_s == 30.0
    assert config.engine.preempted_work == "kept"


def test_a_file_says_what_to_run(write):
    config = load_config(write("""
        [run]
        policy = "las"
        cluster = "v100:8x4"
        jobs = 100
        load = 0.9
        [policy]
        threshold_gpu_s = 3600
        [engine]
        checkpoint_interval_s = inf
        mtbf_h = 1000
        [engine.quotas]
        "team.a" = 16
    """))
    assert (config.policy, config.cluster, config.jobs, config.load) == ("las", "v100:8x4", 100, 0.9)
    assert config.policy_settings == {"threshold_gpu_s": 3600}
    assert config.engine == EngineConfig(checkpoint_interval_s=math.inf, mtbf_h=1000.0, quotas={"team.a": 16})
    assert config.trace == "philly"  # not named: the default


def test_the_command_line_wins_over_the_file_and_none_means_not_given(write):
    path = write('[run]\nseed = 1\njobs = 50\n[engine]\nrepair_h = 2.0\n[policy]\na = 1\n')
    config = load_config(path, {
        "seed": 2, "run.jobs": None, "engine.retries": False, "engine.quotas.team.a": 4, "policy.b": "x"})
    assert (config.seed, config.jobs) == (2, 50)
    assert (config.engine.repair_h, config.engine.retries) == (2.0, False)
    assert config.engine.quotas == {"team.a": 4}
    assert config.policy_settings == {"a": 1, "b": "x"}


def test_a_misspelt_key_is_an_error_that_names_the_right_one_and_the_path(write):
    # P-66: such a key was dropped, and the default used, in many a tool.
    path = write("[engine]\npreemption_overhed_s = 30\n")
    with pytest.raises(ConfigError) as error:
        load_config(path)
    assert f"{path}, engine.preemption_overhed_s: unknown key" in str(error.value)
    assert "did you mean 'preemption_overhead_s'?" in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(("text", "hint"), [
    ("[run]\npreemption_overhead_s = 30\n", "engine.preemption_overhead_s"),
    ("[engine]\nseed = 30\n", "run.seed"),
    ("seed = 30\n", "run.seed"),
    ("[engin]\nretries = true\n", "engine"),
])
def test_a_right_key_in_the_wrong_section_is_told_its_place(write, text, hint):
    with pytest.raises(ConfigError, match=f"did you mean '{hint}'"):
        load_config(write(text))


def test_an_error_from_the_command_line_does_not_blame_the_file(write):
    path = write("[run]\nseed = 1\n[engine]\nrepair_h = 3\n")
    with pytest.raises(ConfigError, match=r"^command line, run\.seed: .* got -1; allowed: an integer from"):
        load_config(path, {"seed": -1})
    with pytest.raises(ConfigError, match=r"^command line, engine\.quotas\.vc1: .* got -3"):
        load_config(path, {"engine.quotas.vc1": -3})
    with pytest.raises(ConfigError, match=r"experiment\.toml, engine\.mtbf_h: .* got 0; allowed: a finite"):
        load_config(write("[engine]\nmtbf_h = 0\n"), {"seed": 3})


@pytest.mark.parametrize(("line", "got", "allowed"), [
    ("engine.preemption_overhead_s = nan", "nan", "a finite number from 0 to 100,000,000,000"),
    ("engine.preemption_overhead_s = inf", "inf", "a finite number from 0 to 100,000,000,000"),
    ("engine.preemption_overhead_s = -1", "-1", "a finite number from 0 to 100,000,000,000"),
    ('engine.preemption_overhead_s = "30"', "'30'", "a finite number from 0 to 100,000,000,000"),
    ("engine.checkpoint_interval_s = nan", "nan", "a number from 0, or inf"),
    ("engine.horizon_s = 0", "0", "a finite number above 0 to 100,000,000,000"),
    ("engine.retries = 1", "1", "true or false"),
    ('engine.preempted_work = "Lost"', "'Lost'", "kept, lost"),
    ("engine.quotas = 3", "3", "name = GPUs, an integer from 0 to 1,000,000,000, for each virtual cluster"),
    ("engine.quotas.a = 1.5", "1.5", "name = GPUs, an integer from 0 to 1,000,000,000, for each virtual cluster"),
    ("run.seed = true", "True", "an integer from 0"),
    ("run.jobs = 0", "0", "an integer from 1"),
    ("run.jobs = 1.5", "1.5", "an integer from 1"),
    ("run.load = 0", "0", "a finite number above 0 to 1,000"),
    ('run.trace = ""', "''", "text, not empty"),
    ('run.work = "steps"', "'steps'", "iterations, recorded"),
    ('run.estimate = "noisy"', "'noisy'", _ESTIMATES),
    ('run.estimate = "noisy:-0.1"', "'noisy:-0.1'", _ESTIMATES),
    ('run.estimate = "noisy:inf"', "'noisy:inf'", _ESTIMATES),
])
def test_a_value_out_of_its_rule_is_refused_with_path_value_and_rule(write, line, got, allowed):
    path = write(line)
    with pytest.raises(ConfigError) as error:
        load_config(path)
    key = line.partition(" =")[0]
    assert str(error.value).startswith(f"{path}, {key}: value not allowed; got {got}; allowed: {allowed}")


def test_the_reference_type_is_one_of_the_catalogue(write):
    assert load_config(write('[run]\nreference = "v100-32"\n')).reference == "V100-32"
    assert RunConfig().reference in catalogue()
    with pytest.raises(ConfigError, match=r"run\.reference: unknown GPU type; got 'v10'.*mean 'v100'"):
        load_config(write('[run]\nreference = "v10"\n'))


@pytest.mark.parametrize("estimate", ["oracle", "column", "noisy:0", "noisy:0.35", "noisy-lognormal:0.35"])
def test_estimates_that_exist_are_accepted(estimate):
    assert load_config(None, {"estimate": estimate}).estimate == estimate


def test_a_file_that_is_missing_or_broken_is_a_message_not_a_traceback(tmp_path, write):
    with pytest.raises(ConfigError, match=r"absent\.toml: the file cannot be read"):
        load_config(tmp_path / "absent.toml")
    with pytest.raises(ConfigError, match="the file cannot be read"):
        load_config(tmp_path)
    with pytest.raises(ConfigError, match=r"is no TOML.*line 2"):
        load_config(write("[run]\npolicy: las\n"))
    with pytest.raises(ConfigError, match="is no TOML"):
        load_config(write("[run]\nseed = 1\nseed = 2\n"))
    (tmp_path / "latin.toml").write_bytes(b'[run]\nout = "\xe9"\n')
    with pytest.raises(ConfigError, match="is not UTF-8 text"):
        load_config(tmp_path / "latin.toml")
    with pytest.raises(ConfigError, match="run: value not allowed; got 3; allowed: a table"):
        load_config(write("run = 3\n"))
    with pytest.raises(ConfigError, match=r"run\.engine: not a key of this section.*\[engine\]"):
        load_config(write("[run.engine]\nretries = true\n"))


def test_a_file_value_in_the_way_of_a_command_line_table_is_reported(write):
    with pytest.raises(ConfigError, match=r"engine\.quotas: value not allowed; got 3"):
        load_config(write("[engine]\nquotas = 3\n"), {"engine.quotas.a": 3})


def test_settings_do_not_change_once_made():
    with pytest.raises(ValidationError):
        EngineConfig().retries = False  # type: ignore[misc]


def test_every_setting_is_listed_with_meaning_and_a_default_that_is_accepted():
    listed = {s.name: s for s in list_settings()}
    fields = {f"engine.{name}" for name in EngineConfig.model_fields}
    fields |= {f"run.{name}" for name in RunConfig.model_fields} - {"run.engine", "run.policy_settings"}
    assert set(listed) == fields
    for name, setting in listed.items():
        assert setting.meaning and setting.allowed, name
        assert load_config(None, {name: setting.default}) == RunConfig(), name
        unit = "GiB/s" if name.endswith("_gib_per_s") else {"_s": "s", "_h": "h"}.get(name[-2:])
        assert unit is None or setting.unit == unit, name
    assert listed["engine.retries"].default_text == "true"
    assert listed["engine.mtbf_h"].default_text == ""


def test_a_default_written_to_a_file_reads_back(write):
    lines = [f'{s.name} = "{s.default}"' if isinstance(s.default, str) else f"{s.name} = {s.default_text}"
             for s in list_settings() if s.default_text]
    assert len(lines) > 10
    assert load_config(write("\n".join(lines))) == RunConfig()


def test_a_setting_on_the_command_line_is_toml_or_text():
    assert parse_setting("engine.mtbf_h=3") == ("engine.mtbf_h", 3)
    assert parse_setting("engine.retries = false") == ("engine.retries", False)
    assert parse_setting("engine.checkpoint_interval_s=inf") == ("engine.checkpoint_interval_s", math.inf)
    assert parse_setting("trace=a=b.csv") == ("trace", "a=b.csv")
    assert parse_setting("a=1\nb=2") == ("a", "1\nb=2")
    for text in ("retries", "=3", ""):
        with pytest.raises(ConfigError, match="allowed: name=value"):
            parse_setting(text)


@given(name=st.text(st.characters(codec="utf-8"), min_size=1, max_size=30))
def test_no_unknown_name_ever_passes_or_crashes(name):
    known = {s.name for s in list_settings()} | {s.name.removeprefix("run.") for s in list_settings()}
    assume(name not in known | {"engine", "policy_settings"})
    assume(not name.startswith(("policy.", "engine.quotas.")))
    with pytest.raises(ConfigError, match="unknown key"):
        load_config(None, {name: 1})


@given(overhead_s=st.floats(allow_nan=True, allow_infinity=True))
def test_a_number_is_taken_as_it_is_or_refused_never_bent(overhead_s):
    if 0 <= overhead_s <= 1e11:
        config = load_config(None, {"engine.preemption_overhead_s": overhead_s})
        assert config.engine.preemption_overhead_s == overhead_s
    else:
        with pytest.raises(ConfigError):
            load_config(None, {"engine.preemption_overhead_s": overhead_s})


@pytest.mark.parametrize("value", ["[" * 3000, "9" * 5000])
def test_a_value_that_no_toml_reader_takes_is_text(value):
    """Then the setting itself says what it allows, instead of a traceback."""
    assert parse_setting(f"seed={value}") == ("seed", value)
    with pytest.raises(ConfigError, match="an integer from 0"):
        load_config(None, dict([parse_setting(f"seed={value}")]))


def test_a_quota_beyond_all_clusters_is_refused():
    with pytest.raises(ConfigError, match="1,000,000,000"):
        load_config(None, {"engine.quotas.a": 10**16})
