"""What policies are told about run times: how wrong it is, and that nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.estimate import NOISY, run_times_s
from sim.api import PolicyError

JOBS = 200_000
TRUE_S = np.geomspace(1.0, 1e6, JOBS)


def errors(kind: str, seed: int = 0) -> np.ndarray:
    """Believed / true - 1."""
    return run_times_s(kind, TRUE_S, np.full(JOBS, np.nan), seed) / TRUE_S - 1.0


@pytest.mark.parametrize("mre", [0.1, 0.25, 0.5, 0.75, 2.0])
def test_the_mean_relative_error_is_the_one_asked_for_less_what_the_floor_cuts_off(mre):
    for kind, mean in (("noisy-lognormal", mre), ("noisy", mre - mre / 2 * np.exp(-0.99 / mre))):
        off = np.abs(errors(f"{kind}:{mre}"))
        assert off.mean() == pytest.approx(mean, abs=5 * off.std() / np.sqrt(JOBS))


@pytest.mark.parametrize("kind", NOISY)
def test_half_of_the_guesses_are_too_low(kind):
    assert (errors(f"{kind}:0.5") < 0).mean() == pytest.approx(0.5, abs=5 * 0.5 / np.sqrt(JOBS))


@given(st.sampled_from([*NOISY]), st.floats(0, 10), st.integers(0, 2**32))
def test_a_guess_is_above_zero_and_the_same_for_the_same_seed(kind, mre, seed):
    true_s, unknown = np.array([0.5, 3.0, 1e7]), np.full(3, np.nan)
    guess = run_times_s(f"{kind}:{mre}", true_s, unknown, seed)
    assert (guess > 0).all()
    assert guess.tolist() == run_times_s(f"{kind}:{mre}", true_s, unknown, seed).tolist()
    # A guess is in proportion to the truth: twice the time is guessed twice as long.
    assert run_times_s(f"{kind}:{mre}", 2 * true_s, unknown, seed).tolist() == (2 * guess).tolist()


@pytest.mark.parametrize("kind", NOISY)
def test_no_error_is_the_truth_and_other_seeds_err_elsewhere(kind):
    assert not errors(f"{kind}:0").any()
    assert abs(np.corrcoef(errors(f"{kind}:0.25", 1), errors(f"{kind}:0.25", 2))[0, 1]) < 5 / np.sqrt(JOBS)


@pytest.mark.parametrize("kind", ["noisy-lognormal", "noisy-lognormal:", "noisy:-1", "noisy-lognormal:11", "noisy:nan"])
def test_a_mean_relative_error_out_of_range_is_refused_with_the_range(kind):
    with pytest.raises(PolicyError, match=rf"got '{kind}'; allowed: {kind.partition(':')[0]}:0 to "):
        run_times_s(kind, np.ones(1), np.full(1, np.nan), 0)


def test_an_unknown_kind_is_refused_with_the_nearest():
    with pytest.raises(PolicyError, match="did you mean 'noisy-lognormal'"):
        run_times_s("noisy-lognormal2:0.1", np.ones(1), np.full(1, np.nan), 0)
