"""Sorting in place, by Shell's method: a tenth of the compiling that NumPy's sorts cost in a kernel, and as fast on
what kernels sort, some hundred values that are often nearly in order.

What is sorted has an order in which no two are equal, or equal ones cannot be told apart: so the method does not show.
(D. L. Shell, CACM 1959; gaps of D. E. Knuth, TAOCP 3, 5.2.1: 1, 4, 13, 40 and so on.)
"""

from __future__ import annotations

from sim.kernels.jit import part


@part
def sort_numbers(values):
    """Sort whole numbers, smallest first."""
    gap = _first_gap(values.size)
    while gap > 0:
        for i in range(gap, values.size):
            value, k = values[i], i
            while k >= gap and values[k - gap] > value:
                values[k] = values[k - gap]
                k -= gap
            values[k] = value
        gap //= 3


@part
def sort_pairs(keys, numbers):
    """Sort by key (no NaN), smallest first, equal keys by number; no number is there twice."""
    gap = _first_gap(keys.size)
    while gap > 0:
        for i in range(gap, keys.size):
            key, number, k = keys[i], numbers[i], i
            while k >= gap and (keys[k - gap] > key or (keys[k - gap] == key and numbers[k - gap] > number)):
                keys[k], numbers[k] = keys[k - gap], numbers[k - gap]
                k -= gap
            keys[k], numbers[k] = key, number
        gap //= 3


@part
def _first_gap(size):
    gap = 1 if size > 1 else 0
    while 3 * gap < size - 1:
        gap = 3 * gap + 1
    return gap
