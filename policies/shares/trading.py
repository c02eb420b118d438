"""GPU time by tickets, and the trading of fast for slow GPU time at the second price: pure functions over arrays."""

from __future__ import annotations

import numpy as np

LEAST = 1e-9
"""Amounts of GPUs below this are none."""
MOST_PASSES = 16
"""Times that all pairs of types are traded at most; later ones move less and less."""


def filled(room: float, weight: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Divide `room` in proportion to weights, to nobody more than he can use; what he leaves goes to the others.

        amount[i] = min(most[i], level weight[i]),  sum(amount) = min(room, sum of most where weight > 0)

    Parameters: weight, most, float64 [n], not negative. Returns: float64 [n].
    """
    amount = np.zeros(len(weight))
    open_ = (weight > 0) & (most > 0)
    while open_.any() and room > LEAST:
        level = room / weight[open_].sum()
        full = open_ & (most <= level * weight)
        if not full.any():
            amount[open_] = level * weight[open_]
            break
        amount[full] = most[full]
        room -= most[full].sum()
        open_ &= ~full
    return amount


def by_tickets(
    have: np.ndarray, order: list[int], able: np.ndarray, gang: np.ndarray, user: np.ndarray, tickets: np.ndarray
) -> np.ndarray:
    """GPUs of each type that each job has a right to by the tickets of its user: float64 [jobs, types].

    On each type of `order` in turn, users divide its GPUs in proportion to their tickets, and a user's jobs divide his
    part equally; no job gets more than its gang, all types together (`filled`).

    Parameters
    ----------
    have : float64 [types], GPUs of each type.
    able : bool [jobs, types], where a job can run.
    gang : float64 [jobs], GPUs of its gang.
    user : int [jobs], index into `tickets`.
    """
    amount, left = np.zeros(able.shape), gang.astype(np.float64).copy()
    members = [np.flatnonzero(user == one) for one in range(len(tickets))]
    for t in order:
        room = np.where(able[:, t], left, 0.0)
        part = filled(have[t], tickets, np.bincount(user, weights=room, minlength=len(tickets)))
        for one in np.flatnonzero(part > 0).tolist():
            rows = members[one]
            amount[rows, t] = filled(part[one], np.ones(rows.size), room[rows])
        left = np.maximum(left - amount[:, t], 0.0)
    return amount


def traded(amount: np.ndarray, speed: np.ndarray, gang: np.ndarray, order: list[int]) -> np.ndarray:
    """What traders hold after fast GPU time was traded for slow, until no pair of them gains: float64 [traders, types].

    Of a fast and a slow type, the speed-up of a trader is speed[fast] / speed[slow]. Of those who have slow time to pay
    with, the one of the highest speed-up buys fast time of the one of the lowest who has any, at the price of the
    second highest speed-up: so many slow GPUs a fast one. (A trader below himself bids nothing: the price is at least
    the seller's own speed-up.) They trade until one of them has nothing left to give, or no use for more GPUs than his
    gangs have; then still one for one, where that is between their speed-ups. Nobody's sum of amount × speed ever
    falls, since the price is between both speed-ups.

    Parameters
    ----------
    amount : float64 [traders, types], what each has a right to; its sum is at most `gang`.
    speed : float64 [traders, types], work a second on one GPU; 0: cannot run there.
    gang : float64 [traders], GPUs that all of his jobs together can use.
    order : types, as a rule fastest first; each pair of them is traded, the earlier one as the fast one.
    """
    held = amount.copy()
    for _ in range(MOST_PASSES):
        moved = 0.0
        for i, fast in enumerate(order):
            for slow in order[i + 1 :]:
                moved += _trade(held, speed, gang, fast, slow)
        if moved <= LEAST * held.size:
            break
    return held


def _trade(held: np.ndarray, speed: np.ndarray, gang: np.ndarray, fast: int, slow: int) -> float:
    """Trade one pair of types in place; GPUs of the fast one that changed hands."""
    both = np.flatnonzero((speed[:, fast] > 0) & (speed[:, slow] > 0))
    ratio = speed[both, fast] / speed[both, slow]
    both, ratio = both[order := np.argsort(ratio, kind="stable")], ratio[order]
    moved, low, high = 0.0, 0, both.size - 1
    while low < high and ratio[low] < ratio[high] * (1 - LEAST):
        seller, buyer = both[low], both[high]
        if held[buyer, slow] <= LEAST:
            high -= 1
            continue
        # Bids of the others who have something to pay with; the list is sorted, so the next below is the highest.
        second = high - 1
        while second > low and held[both[second], slow] <= LEAST:
            second -= 1
        price, have = float(ratio[second]), held[seller, fast]
        gains = seller if price > 1 else buyer  # he who gets more GPUs than he gives
        room = gang[gains] - held[gains].sum()
        if price != 1 and room <= LEAST and ratio[low] <= 1 <= ratio[high]:
            price = 1.0
        most = min(have, held[buyer, slow] / price)
        if price != 1:
            most = min(most, room / abs(price - 1))
        if most <= LEAST:
            if have > LEAST and gains == buyer:
                high -= 1
            else:
                low += 1
            continue
        held[seller, fast] -= most
        held[buyer, fast] += most
        held[seller, slow] += most * price
        held[buyer, slow] = max(held[buyer, slow] - most * price, 0.0)
        moved += float(most)
    return moved
