"""Numbers of words, which are among some, and which rows came again: as pandas finds them."""

from __future__ import annotations

import importlib
import json
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.late import Late, unseen
from traces.words import Worded, again, alike, among, coded

TEXTS = st.lists(st.sampled_from(("", "a", "b", "B", "ä")), max_size=12).map(
    lambda texts: np.array(texts, dtype=object))
WHOLE = st.lists(st.integers(-2, 9) | st.sampled_from((0, 2**62, 5_000)), max_size=12).map(
    lambda numbers: np.array(numbers, dtype=np.int64))


@given(TEXTS | WHOLE | WHOLE.map(lambda numbers: np.abs(numbers) % 7), st.booleans())
def test_codes_are_those_of_pandas(values, sort):
    codes, words = coded(values, sort=sort)
    wanted, of = pd.factorize(values, sort=sort)
    assert (codes.tolist(), words.tolist(), words.dtype) == (wanted.tolist(), of.tolist(), values.dtype)


@given(st.lists(st.lists(st.tuples(st.sampled_from(("", "a", "ä")), st.integers(0, 3)), min_size=1, max_size=3),
                min_size=1, max_size=3), st.randoms())
def test_worded_columns_are_their_texts(columns, luck):
    texts = [word for parts in columns for word, rows in parts for _ in range(rows)]
    found = Worded.joined([Worded.of_parts(parts) for parts in columns])
    order = luck.sample(range(len(texts)), len(texts))
    assert found.text().tolist() == texts and len(found) == len(texts)
    assert found[np.array(order, dtype=int)].text().tolist() == [texts[row] for row in order]


@given(TEXTS, st.lists(st.sampled_from(("a", "ä", "c"))))
def test_words_among_others(values, words):
    assert among(values, words).tolist() == pd.Series(values, dtype=object).isin(words).tolist()


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from((0.0, -0.0, 1.5)), st.sampled_from("ab")), max_size=14))
def test_rows_that_come_again_are_those_of_pandas(rows):
    columns = [np.array([row[i] for row in rows], dtype=kind) for i, kind in enumerate((np.int64, np.float64, object))]
    wanted = pd.DataFrame(dict(enumerate(columns))).duplicated().tolist()
    assert again(*columns).tolist() == wanted


@given(st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 3)), min_size=1, max_size=14))
def test_rows_are_alike_that_are_equal_in_all_columns(rows):
    kind, first = alike(*np.array(rows).T)
    assert [rows[row] for row in first[kind].tolist()] == rows
    assert first.tolist() == sorted({rows.index(row) for row in rows})


def test_what_is_hidden_can_be_imported_afterwards_and_what_is_there_stays(monkeypatch):
    monkeypatch.delitem(sys.modules, "wave", raising=False)
    with pytest.raises(ZeroDivisionError), unseen("wave", "json"):
        with pytest.raises(ImportError):
            importlib.import_module("wave")
        assert importlib.import_module("json") is json
        1 / 0  # noqa: B018
    assert importlib.import_module("wave").Error


def test_a_late_module_is_the_module():
    late = Late("json.decoder")
    assert late.JSONDecoder is __import__("json").JSONDecoder
