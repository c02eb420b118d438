"""Gandiva-fair: each user's tickets buy their share of each GPU type, and users trade fast for slow GPU time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policies.mechanisms import Informed, Rounds, rounds_param
from policies.shares.trading import by_tickets, filled, traded
from sim.api import Decision, PolicyError, View, param


@dataclass
class GandivaFair(Rounds, Informed):
    """Shares each GPU type by users' tickets, then trades where speed-ups differ (Chaudhary et al., EuroSys'20).

    1. Tickets: on each type users divide the GPUs in proportion to their tickets, a user's jobs equally.
    2. Trading: the user of the highest speed-up of a fast over a slow type buys fast GPU time with slow
       from the one of the lowest, at the price of the second highest speed-up, until no pair gains. So nobody's work a
       second, as believed, falls below that of his tickets (`policies.shares.traded`). Jobs of one user that are
       equally fast everywhere are one trader: a user of mixed jobs trades with himself, too, and loses with none.
    3. Stride scheduling: each minute jobs get GPUs by the smallest pass, time received over tickets'
       share; here its inverse, the priority of `Rounds`. A gang that does not fit is passed over, and keeps its pass.

    Must know: speeds of jobs on each type (the paper profiles them), no run times. Departures: one central scheduler
    has all gangs (the paper: small ones locally, to scale); like jobs of a user are laid on types one after another,
    the earliest on the fastest, so that of them few must change types (the paper balances load by migration);
    GPUs that nobody has a right to are filled. A job of which no speed is known is as fast everywhere; one that
    no type is believed to run is rejected.
    """

    round_s: float = rounds_param("round_s", 60.0)
    spare: str = rounds_param("spare", "fill")
    trade: bool = param(True, help="trade fast for slow GPU time; else tickets' shares alone")
    owner: str = param("user", choices=("user", "vc"), help="column whose names hold tickets: user, or virtual cluster")
    tickets: str = param(
        "", help="name=number, name=number, …; others have 1. 0: only what nobody has a right to"
    )

    def prepare(self, view: View) -> None:
        super().prepare(view)
        jobs = view.jobs
        if self.owner == "vc":
            names, self._user = list(jobs.vc_names), jobs.vc.astype(np.int64)
        else:
            found, self._user = np.unique(jobs.user.astype(str), return_inverse=True)
            names = found.tolist()
        self._tickets = np.ones(len(names))
        for name, number in _read(self.tickets).items():
            if name not in names:
                raise PolicyError("tickets of nobody", where="policy 'gandiva-fair', tickets", got=name,
                                  allowed=f"names in column {self.owner!r}: {', '.join(names[:12])}")
            self._tickets[names.index(name)] = number
        self._known: tuple[bytes, np.ndarray] | None = None

    def decide(self, view: View) -> Decision:
        lost = Decision()
        self.turn_away(view, lost)
        return lost if lost.reject else super().decide(view)  # asked again at this instant

    def able(self, view: View, rows: np.ndarray) -> np.ndarray:
        return np.asarray(super().able(view, rows) & (self.rates(view, rows) > 0))

    def allocation(self, view: View, rows: np.ndarray) -> np.ndarray:
        have = view.scratch(view.running).type_milli() / 1000.0
        state = rows.tobytes() + have.tobytes() + self.rates(view, rows).tobytes()  # a profile may change the last
        if self._known is None or self._known[0] != state:
            self._known = state, self._shares(view, rows, have)
        return self._known[1].copy()

    def _shares(self, view: View, rows: np.ndarray, have: np.ndarray) -> np.ndarray:
        gang = view.jobs.gpus[rows].astype(np.float64)
        speed = self.rates(view, rows) / gang[:, None]
        # Fastest first: by the mean of what jobs reach there, over what they reach on their best type.
        order = np.argsort(-(speed / speed.max(axis=1, keepdims=True)).mean(axis=0), kind="stable").tolist()
        _, user = np.unique(self._user[rows], return_inverse=True)
        tickets = self._tickets[np.unique(self._user[rows])]
        amount = by_tickets(have, order, speed > 0, gang, user, tickets)
        # Traders: jobs of one user with the same speeds.
        like, trader = np.unique(np.column_stack((user, speed)), axis=0, return_inverse=True)
        trader = trader.ravel()
        held = np.zeros((len(like), have.size))
        np.add.at(held, trader, amount)
        if self.trade:
            held = traded(held, like[:, 1:], np.bincount(trader, weights=gang), order)
        shares = np.zeros(amount.shape)
        for one in range(len(like)):
            mine = np.flatnonzero(trader == one)
            shares[mine] = dealt(held[one], gang[mine], order) / gang[mine, None]
        return shares


def dealt(amount: np.ndarray, gang: np.ndarray, order: list[int]) -> np.ndarray:
    """GPUs of each type for each of several like jobs, equal in sum up to their gangs: float64 [jobs, types].

    They are laid one after another on the types, one after another in `order`, so that at most types - 1 of them have
    time on several types.
    """
    from_types = np.concatenate(([0.0], np.cumsum(amount[order])))
    each = filled(float(from_types[-1]), np.ones(gang.size), gang)
    ends = np.cumsum(each)
    low = np.maximum(from_types[:-1], (ends - each)[:, None])
    high = np.minimum(from_types[1:], ends[:, None])
    parts = np.empty((gang.size, amount.size))
    parts[:, order] = np.maximum(high - low, 0.0)
    return parts


def _read(text: str) -> dict[str, float]:
    """Tickets by name of `a=2, b=0.5`; the last '=' parts name and number.

    Raises
    ------
    PolicyError
        No such list, a number that is not finite or below 0, a name given twice.
    """
    found: dict[str, float] = {}
    for piece in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, number = (part.strip() for part in piece.rpartition("="))
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not name or name in found or not 0 <= value < np.inf:
            raise PolicyError("tickets that cannot be meant", where="policy 'gandiva-fair', tickets", got=piece,
                              allowed="name=number, a finite number from 0 on, each name once, with commas between")
        found[name] = value
    return found
