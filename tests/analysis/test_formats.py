"""Tables as text, CSV, Markdown and LaTeX: nothing in a name breaks them, and CSV reads back as it was."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.formats import FORMATS, cell, formatted, header, latex, markdown, significant, span, value
from analysis.run import RunError

POLICIES = pd.Index(["max_min_fairness", "a|b & c", "[x] {y} ~^\\ #1 $2 ρ ± × –"], name="policy")


@pytest.fixture
def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "jct_mean_s": [12345.678, 0.57142, np.nan],
            "p95 (%)": [1, 20, 3],
            "on_front": pd.array([True, pd.NA, False], dtype="boolean"),
            "cost_usd": [None, 2.0, 9.99996],
        },
        index=POLICIES,
    )


def latex_rows(text: str) -> list[list[str]]:
    """Cells of a tabular: what stands between the ampersands that are not escaped."""
    body = [line for line in text.splitlines() if line.endswith(r" \\")]
    return [[c.strip() for c in re.split(r"(?<!\\)&", line.removesuffix(r"\\"))] for line in body]


def markdown_rows(text: str) -> list[list[str]]:
    """Cells of a table, unescaped: split at the bars that are not escaped."""
    cells = [re.findall(r"((?:\\.|[^|\\])+)\|", line.removeprefix("|")) for line in text.splitlines()]
    return [[re.sub(r"\\(.)", r"\1", c.strip()) for c in row] for row in cells]


def test_p63_underscores_and_per_cents_are_escaped_in_cells_headers_and_the_index(table):
    text = formatted(table.rename_axis("the_policy"), "latex")
    assert r"max\_min\_fairness &" in text
    assert r"p95 (\%) &" in text
    assert r"the\_policy &" in text
    assert r"on\_front" in text
    assert not re.search(r"(?<!\\)[_#$%](?![\w\\ -])", text.split("\n", 1)[1].replace("$", ""))


def test_p63_a_latex_table_has_booktabs_rules_and_as_many_cells_in_each_row(table):
    lines = formatted(table, "latex").splitlines()[1:]
    assert [lines[0], lines[1], lines[3]] == [r"\begin{tabular}{lrrlr}", r"\toprule", r"\midrule"]
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    rows = latex_rows("\n".join(lines))
    assert [len(row) for row in rows] == [5] * 4
    assert rows[0][1] == "JCT mean (s)"
    assert rows[1] == [r"max\_min\_fairness", "12,346", "1", "yes", r"\textendash{}"]
    # A bracket behind the end of a row would be an option of it.
    assert rows[3][0].startswith("{[}x{]}")


def test_p63_a_table_with_every_special_sign_compiles(table, tmp_path: Path):
    tex = shutil.which("pdflatex") or shutil.which("tectonic")
    if tex is None:
        pytest.skip("no TeX here: pdflatex and tectonic are absent")
    text = formatted(table, "latex", caption="50 % of x_y", label="tab:x")
    head = "\\documentclass{article}\\usepackage[T1]{fontenc}\\usepackage{textcomp,booktabs}\\begin{document}\n"
    (tmp_path / "t.tex").write_text(head + text + "\\end{document}\n", "utf-8")
    done = subprocess.run([tex, "t.tex"], cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_caption_and_a_label_make_it_a_table(table):
    text = formatted(table, "latex", caption="50 % of x_y", label="tab:x")
    assert r"\caption{50 \% of x\_y}" in text
    assert r"\label{tab:x}" in text
    assert text.splitlines()[1] == r"\begin{table}"
    assert text.endswith("\\end{table}\n")


ESCAPED = {
    r"\textbackslash{}": "\\", r"\textasciitilde{}": "~", r"\textasciicircum{}": "^", r"\textless{}": "<",
    r"\textgreater{}": ">", r"\textbar{}": "|", r"\textquotedbl{}": '"', r"\textasciigrave{}": "`", "{[}": "[",
    "{]}": "]", "{*}": "*", r"\{": "{", r"\}": "}", r"\_": "_", r"\%": "%", r"\&": "&", r"\#": "#",
    r"\$": "$",
}  # fmt: skip


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)))
def test_latex_says_the_text_and_takes_nothing_of_it_for_itself(text):
    """Read by its own rules, it is the text again; without the escapes, no sign of LaTeX's is left."""
    escaped = latex(text)
    pattern = re.compile("|".join(re.escape(found) for found in sorted(ESCAPED, key=len, reverse=True)))
    assert not set(pattern.sub("", escaped).replace("{}", "")) & set("\\{}_%&#$~^[*")
    back = re.sub(r"(?<=-)\{\}", "", escaped)
    assert pattern.sub(lambda found: ESCAPED[found[0]], back) == text


@given(st.lists(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1), min_size=1, max_size=4))
def test_a_markdown_table_reads_back_whatever_the_names(names):
    frame = pd.DataFrame({"x": range(len(names))}, index=pd.Index(names, name="policy"))
    head, rule, *rows = markdown_rows(formatted(frame, "markdown"))
    assert head == ["policy", "x"]
    assert rule == ["---", "---:"]
    assert rows == [[name, f"{i}"] for i, name in enumerate(names)]


def test_markdown_leaves_underscores_within_words_and_escapes_what_would_be_markup():
    assert markdown("max_min_fairness") == "max_min_fairness"
    assert markdown("_x_ *y* <b> `c` a|b") == r"\_x\_ \*y\* \<b\> \`c\` a\|b"


def test_csv_keeps_names_and_every_digit(table):
    text = formatted(table, "csv")
    head, *rows = csv.reader(io.StringIO(text))
    assert head == ["policy", *table.columns]
    assert [float(row[1]) for row in rows[:2]] == [12345.678, 0.57142]
    assert rows[2][1] == ""
    assert [row[0] for row in rows] == POLICIES.tolist()
    assert text.splitlines()[1].endswith(",1,True,")


def test_text_that_a_spreadsheet_would_run_is_quoted_on_request():
    """Numbers below 0 are none; plain CSV has the names as they are."""
    names = ["=cmd|' /C calc'!A0", "@SUM(1)", "+1", "-x", "  =1", "\t=1", "\uff1d1", "plain", "a=b"]
    frame = pd.DataFrame({"=head": names, "gpu_s": [-1.5] * len(names)}, pd.Index(names, name="user"))
    head, *rows = csv.reader(io.StringIO(formatted(frame, "spreadsheet")))
    assert head == ["user", "'=head", "gpu_s"]
    wanted = [f"'{name}" for name in names[:-2]] + names[-2:]
    assert rows == [[name, name, "-1.5"] for name in wanted]
    assert [row[0] for row in csv.reader(io.StringIO(formatted(frame, "csv")))][1:] == names


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_csv_round_trips_any_number(values):
    text = formatted(pd.DataFrame({"x_s": values}), "csv")
    assert [float(line) for line in text.splitlines()[1:]] == values


def test_text_is_in_columns_numbers_to_the_right(table):
    lines = formatted(table, "text").splitlines()
    assert lines[0].split("  ")[0] == "policy"
    assert len({line.index("12,346") + 6 for line in lines if "12,346" in line} | {lines[0].index("(s)") + 3}) == 1
    assert "–" in lines[4]


def test_a_plain_index_is_left_out_and_a_named_one_is_a_column():
    frame = pd.DataFrame({"x": [1]})
    assert markdown_rows(formatted(frame, "markdown"))[0] == ["x"]
    assert markdown_rows(formatted(frame.rename_axis("n"), "markdown"))[0] == ["n", "x"]


def test_line_ends_and_controls_in_names_are_blanks():
    frame = pd.DataFrame({"x": [1]}, index=["a\nb\x1b[31m\tc"])
    for kind in ("text", "markdown", "latex"):
        text = formatted(frame, kind)
        assert "\x1b" not in text
        assert "a b" in text


def test_an_empty_table_has_its_header(table):
    for kind in FORMATS:
        assert "policy" in formatted(table.iloc[:0], kind)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("jct_mean_s", "JCT mean (s)"),
        ("cost_usd", "cost (USD)"),
        ("wasted_gpu_s", "wasted (GPU-s)"),
        ("held_gpu_h", "held (GPU-h)"),
        ("peak_mib", "peak (MiB)"),
        ("energy_kwh", "energy (kWh)"),
        ("gpu_s", "GPU-s"),
        ("samples_per_s", "samples (1/s)"),
        ("p95 (%)", "p95 (%)"),
        ("max_min_fairness", "max_min_fairness"),
    ],
)
def test_headers_tell_the_unit_that_the_name_ends_in(name, shown):
    assert header(name) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0"), (0.571428, "0.5714"), (12.3456, "12.35"), (123456.7, "123,457"), (9.9996, "10.00"),
        (-0.000123456, "-0.0001235"), (1e-9, "1.000e-09"), (float("inf"), "∞"),
    ],
)  # fmt: skip
def test_four_digits_that_count(value, shown):
    assert significant(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (pd.NA, "–"), (np.nan, "–"), (True, "yes"), (np.False_, "no"), (np.int64(12345), "12,345"),
     (np.float32(0.5), "0.5000"), ("x", "x")],
)  # fmt: skip
def test_cells(value, shown):
    assert cell(value) == shown


@pytest.mark.parametrize(
    ("number", "unit", "shown"),
    [
        (None, "s", "–"), (None, "USD", "unknown"), (None, "kWh", "unknown"), (np.nan, "USD", "unknown"),
        (None, "", "–"),
        (16430.25, "s", "16,430.2"), (0.0, "s", "0.0"), (153877.7, "USD", "153,877.70"), (0.21657, "share", "21.7 %"),
        (21.657, "%", "21.7"), (100.4, "MiB", "100"), (5000, "", "5,000"), (61137.3, "GPU-h", "61,137"),
        (0.0475, "GPU-h", "0.04750"), (1.28, "", "1.280"), (float("inf"), "s", "∞"), (-725.0, "s", "-725.0"),
    ],
)  # fmt: skip
def test_a_measure_has_the_decimals_of_its_unit(number, unit, shown):
    assert value(number, unit) == shown


@pytest.mark.parametrize(
    ("time_s", "shown"),
    [(None, "–"), (59.94, "59.9"), (59.96, "60.0 (1 min 0 s)"), (-725.0, "-725.0 (-12 min 5 s)"),
     (16430.2, "16,430.2 (4 h 34 min)"), (float("inf"), "∞")],
)  # fmt: skip
def test_a_time_has_words_beside_it_from_a_minute(time_s, shown):
    assert span(time_s) == shown


def test_an_unknown_format_is_refused_with_the_nearest(table):
    with pytest.raises(RunError, match="did you mean 'latex'"):
        formatted(table, "latx")
