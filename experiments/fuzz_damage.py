"""Kinds of damage that `fuzz_traces.py` does to files: to bytes, cells, rows, columns, quotes, encodings, packing."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Damage = Callable[[bytes, np.random.Generator], bytes]

NASTY = (
    "", " ", "0", "-1", "-0", "1e308", "1e309", "-1e308", "nan", "NaN", "inf", "-inf", "NA", "null", "None", "0x10",
    "1_000", "1,5", "+5", ".5", "5.", "\u0661\u0662", "\uff11", "9" * 400, "9007199254740993", "1e-320", "1.5", "-1.5",
    "2147483648", "4294967297", "9223372036854775808", "1e11", "1e12", "1970-01-01 00:00:00", "2017-10-31 25:00:00",
    "9999-12-31 23:59:59", "0000-00-00 00:00:00", "2017-11-05 01:30:00", "2020-04-01T00:00:00Z", "True", "'", '"',
    '""', "a,b", "a\tb", "\ufeff", "\u202e", "\0", "\x1b[31m", "=1+1", "|", "A||B", "running", "Pass", "\U0001f4a5",
    "x" * 3000, "\r", "1;2", "-", "--", "1-2-x", "%s", "{}", "../../etc", "\u00e9", "\ud7ff",
)
"""What a cell becomes."""

NASTY_JSON: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, 10**400, float("nan"), float("inf"), "", "None", "2017-10-07 01:02:60", "\0", "\ud800",
    [], [None], {}, {"a": []}, [[[[]]]], "x" * 3000,
)

def pick(rng: np.random.Generator, options: Sequence[Any]) -> Any:
    return options[int(rng.integers(len(options)))]


def _at(data: bytes, rng: np.random.Generator) -> int:
    return int(rng.integers(len(data) + 1))


def flip_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 6))):
        if out:
            out[int(rng.integers(len(out)))] = int(rng.integers(256))
    return bytes(out)


def cut_out(data: bytes, rng: np.random.Generator) -> bytes:
    a = _at(data, rng)
    return data[:a] + data[a + int(rng.integers(1, 40)):]


def cut_short(data: bytes, rng: np.random.Generator) -> bytes:
    return data[: _at(data, rng)]


def insert(data: bytes, rng: np.random.Generator) -> bytes:
    a = _at(data, rng)
    what = pick(rng, (b"\0", b"\xff", b'"', b"'", b",", b"\n", b"\r", b"\r\n", b"\t", b"\xef\xbb\xbf", b"\xed\xa0\x80",
                       b"\n\n", b"\x1a", b",,", b'""', b"\xc3", b"-", b"e9", b"[", b"}", b"\\"))
    return data[:a] + bytes(what) + data[a:]


def repeat_bytes(data: bytes, rng: np.random.Generator) -> bytes:
    a = _at(data, rng)
    b = min(len(data), a + int(rng.integers(1, 200)))
    return data[:b] + data[a:]


def _rows(change: Callable[[list[bytes], np.random.Generator], list[bytes]]) -> Damage:
    """Damage to rows, each still a row."""
    def damage(data: bytes, rng: np.random.Generator) -> bytes:
        return b"\n".join(change(data.split(b"\n"), rng))
    damage.__name__ = change.__name__.lstrip("_")
    return damage


def _row_lost(rows: list[bytes], rng: np.random.Generator) -> list[bytes]:
    del rows[int(rng.integers(len(rows)))]
    return rows


def _row_twice(rows: list[bytes], rng: np.random.Generator) -> list[bytes]:
    rows.insert(int(rng.integers(len(rows) + 1)), pick(rng, rows))
    return rows


def _header_again(rows: list[bytes], rng: np.random.Generator) -> list[bytes]:
    rows.insert(int(rng.integers(len(rows) + 1)), rows[0])
    return rows


def _rows_shuffled(rows: list[bytes], rng: np.random.Generator) -> list[bytes]:
    return [rows[i] for i in rng.permutation(len(rows))]


def _cells(change: Callable[[list[list[str]], np.random.Generator], None]) -> Damage:
    """Damage to cells: a table is split at its commas or tabs and joined again, without quoting what needs it."""
    def damage(data: bytes, rng: np.random.Generator) -> bytes:
        delimiter = max(",", "\t", " ", key=lambda c: data.count(c.encode()) / (4 if c == " " else 1))
        table = [row.split(delimiter) for row in data.decode("utf-8", "surrogateescape").split("\n")]
        change(table, rng)
        return "\n".join(delimiter.join(row) for row in table).encode("utf-8", "surrogatepass")
    damage.__name__ = change.__name__.lstrip("_")
    return damage


def _cell_replaced(table: list[list[str]], rng: np.random.Generator) -> None:
    for _ in range(int(rng.integers(1, 4))):
        row = pick(rng, table)
        row[int(rng.integers(len(row)))] = pick(rng, NASTY)


def _number_changed(table: list[list[str]], rng: np.random.Generator) -> None:
    """A cell below the header becomes another number, of any size: damage that a reader may not see."""
    row = pick(rng, table[1:] or table)
    number = float(rng.choice([-1.0, 1.0], p=[0.1, 0.9])) * 10 ** float(rng.uniform(-3, 13))
    row[int(rng.integers(len(row)))] = f"{number:.0f}" if rng.random() < 0.6 else f"{number:.6g}"


def _column_replaced(table: list[list[str]], rng: np.random.Generator) -> None:
    column, value = int(rng.integers(len(table[0]))), pick(rng, NASTY)
    for row in table[1:]:
        if column < len(row):
            row[column] = value


def _cell_quoted(table: list[list[str]], rng: np.random.Generator) -> None:
    row = pick(rng, table)
    at = int(rng.integers(len(row)))
    row[at] = pick(rng, ('"{}"', '"{}', '{}"', '"{}\n{}"', '"a""{}"', "'{}'")).replace("{}", row[at])


def _column_lost(table: list[list[str]], rng: np.random.Generator) -> None:
    column = int(rng.integers(len(table[0])))
    for row in table:
        del row[column : column + 1]


def _column_twice(table: list[list[str]], rng: np.random.Generator) -> None:
    column = int(rng.integers(len(table[0])))
    for row in table:
        row[column:column] = row[column : column + 1]


def _columns_swapped(table: list[list[str]], rng: np.random.Generator) -> None:
    a, b = (int(i) for i in rng.integers(len(table[0]), size=2))
    for row in table:
        if max(a, b) < len(row):
            row[a], row[b] = row[b], row[a]


def _header_misspelt(table: list[list[str]], rng: np.random.Generator) -> None:
    column = int(rng.integers(len(table[0])))
    name = table[0][column]
    table[0][column] = pick(rng, (name.upper(), f" {name} ", name[:-1], name + "s", f'"{name}"', "", table[0][0]))


def _comma_at_the_end(table: list[list[str]], rng: np.random.Generator) -> None:
    for row in table if rng.random() < 0.5 else [pick(rng, table)]:
        row.append("")


def line_ends(data: bytes, rng: np.random.Generator) -> bytes:
    return data.replace(b"\n", bytes(pick(rng, (b"\r\n", b"\r", b"\n\n", b"\n \n", b"\n\r", b""))))


def delimiters(data: bytes, rng: np.random.Generator) -> bytes:
    return data.replace(b",", bytes(pick(rng, (b";", b"\t", b", ", b"|", b",,"))))


def encoding(data: bytes, rng: np.random.Generator) -> bytes:
    text = data.decode("utf-8", "replace").replace("a", pick(rng, ("a", "\u00e9", "\u732b")), 3)
    return text.encode(pick(rng, ("utf-16", "utf-16-le", "utf-8-sig", "latin-1", "cp1252", "utf-32")), "replace")


def packed(data: bytes, rng: np.random.Generator) -> bytes:
    """Whole or damaged gzip, tar and tar.gz; a gzip in a gzip."""
    kind = int(rng.integers(5))
    if kind <= 1:
        out = gzip.compress(data, mtime=0)
    elif kind == 2:
        out = gzip.compress(gzip.compress(data, mtime=0), mtime=0)
    else:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:gz" if kind == 3 else "w") as tar:
            for name in ("jobs.csv", "more.csv")[: int(rng.integers(1, 3))]:
                about = tarfile.TarInfo(name)
                about.size = len(data)
                tar.addfile(about, io.BytesIO(data))
        out = stream.getvalue()
    return pick(rng, (lambda d, r: d, flip_bytes, cut_short, cut_out, repeat_bytes))(out, rng)  # type: ignore[no-any-return]


def json_value(data: bytes, rng: np.random.Generator) -> bytes:
    """One value somewhere in a JSON text replaced, or a key lost; other texts get a cell replaced."""
    try:
        tree = json.loads(data)
    except ValueError:
        return cell_replaced(data, rng)
    node = tree
    while True:
        if not isinstance(node, dict | list) or not node:
            return json.dumps(pick(rng, NASTY_JSON)).encode("utf-8", "surrogatepass")
        keys = list(node) if isinstance(node, dict) else range(len(node))
        key = pick(rng, keys)
        if isinstance(node[key], dict | list) and node[key] and rng.random() < 0.8:
            node = node[key]
        elif rng.random() < 0.2:
            del node[key]
            break
        else:
            node[key] = pick(rng, NASTY_JSON)
            break
    return json.dumps(tree).encode("utf-8", "surrogatepass")


cell_replaced = _cells(_cell_replaced)
DAMAGES: tuple[Damage, ...] = (
    flip_bytes, cut_out, cut_short, insert, repeat_bytes, line_ends, delimiters, encoding, packed, json_value,
    json_value, _rows(_row_lost), _rows(_row_twice), _rows(_header_again), _rows(_rows_shuffled),
    *[cell_replaced] * 4, *[_cells(_number_changed)] * 4, _cells(_column_replaced), _cells(_cell_quoted),
    _cells(_column_lost), _cells(_column_twice), _cells(_columns_swapped), _cells(_header_misspelt),
    _cells(_comma_at_the_end),
)
"""Each as likely; some are there more than once."""
