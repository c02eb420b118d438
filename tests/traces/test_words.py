"""Numbers of words, which are among some, and which rows came again: as pandas finds them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from traces.late import Late
from traces.words import again, among, coded

TEXTS = st.lists(st.sampled_from(("", "a", "b", "B", "ä")), max_size=12).map(
    lambda texts: np.array(texts, dtype=object))
WHOLE = st.lists(st.integers(-2, 9) | st.sampled_from((0, 2**62, 5_000)), max_size=12).map(
    lambda numbers: np.array(numbers, dtype=np.int64))


@given(TEXTS | WHOLE | WHOLE.map(lambda numbers: np.abs(numbers) % 7), st.booleans())
def test_codes_are_those_of_pandas(values, sort):
    codes, words = coded(values, sort=sort)
    wanted, of = pd.factorize(values, sort=sort)
    assert (codes.tolist(), words.tolist(), words.dtype) == (wanted.tolist(), of.tolist(), values.dtype)


@given(TEXTS, st.lists(st.sampled_from(("a", "ä", "c"))))
def test_words_among_others(values, words):
    assert among(values, words).tolist() == pd.Series(values, dtype=object).isin(words).tolist()


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from((0.0, -0.0, 1.5)), st.sampled_from("ab")), max_size=14))
def test_rows_that_come_again_are_those_of_pandas(rows):
    columns = [np.array([row[i] for row in rows], dtype=kind) for i, kind in enumerate((np.int64, np.float64, object))]
    wanted = pd.DataFrame(dict(enumerate(columns))).duplicated().tolist()
    assert again(*columns).tolist() == wanted


def test_a_late_module_is_the_module():
    late = Late("json.decoder")
    assert late.JSONDecoder is __import__("json").JSONDecoder
