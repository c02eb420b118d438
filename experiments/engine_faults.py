"""Faults that `mutants.py` plants in the engine: a text of one file becomes another, in a copy of the tree."""

from __future__ import annotations

from dataclasses import dataclass

ENGINE, DESK, BOOK = "sim/engine/engine.py", "sim/engine/desk.py", "sim/engine/jobbook.py"
OUTAGES, ALARM, LANE_PY = "sim/engine/outages.py", "sim/engine/alarm.py", "sim/engine/fastlane.py"
LANE, LANE_JOBS, QUEUE, LEDGER = (f"sim/kernels/{name}.py" for name in ("lane", "lanejobs", "queue", "ledger"))
BY_HAND, FAST_LANE = "tests/engine/test_by_hand.py", "tests/engine/test_fast_lane.py"


@dataclass(frozen=True)
class EngineFault:
    """`old`, which `file` has once, becomes `new`. `test`: the test file to ask where neither engine nor audit says
    anything."""

    what: str
    file: str
    old: str
    new: str
    test: str = BY_HAND


FAULTS = (
    EngineFault("a release is dropped", BOOK, "        self._ledger.give(gpus, milli)\n", ""),
    EngineFault("a job is started twice", DESK,
                'self._must(self._queue.discard(row), "only a queued job can be started", row)', "pass"),
    EngineFault("an end is lost, nodes fail", ENGINE, "if self._desk.launch[row] != launch:",
                "if row == 5 or self._desk.launch[row] != launch:"),
    EngineFault("a stale launch is accepted", ENGINE, "if self._desk.launch[row] != launch:",
                "if self._desk.launch[row] < 0:"),
    EngineFault("rates are 5 % too high", DESK, "rate = self._truth.rate(row, gpus, None) if plan is None",
                "rate = 1.05 * self._truth.rate(row, gpus, None) if plan is None"),
    EngineFault("overhead is ignored", BOOK, "overhead = self._overhead_after[self._ended_by[row]]", "overhead = 0.0"),
    EngineFault("the first start costs a restart", BOOK, '"": config.cold_start_s,', '"": usual,'),
    EngineFault("quotas are not given back", BOOK, "        self._charge(row, gpus, -milli)\n", ""),
    EngineFault("ties come in the wrong order", QUEUE, "rows[head + mid] < row", "rows[head + mid] > row",
                "tests/policies/test_order_by_hand.py"),
    EngineFault("the queue shifts one entry too few", QUEUE, "for i in range(head + at, head, -1):",
                "for i in range(head + at - 1, head, -1):"),
    EngineFault("kept work falls back to the checkpoint", BOOK,
                'saves = why == "horizon" or (why != "node_failed" and self._config.preempted_work == "kept")',
                'saves = why == "horizon"'),
    EngineFault("a decision comes before the rest of its instant", ENGINE,
                "self._clock.at(self._clock.now, self._on_decide, priority=LATE)",
                "self._clock.at(self._clock.now, self._on_decide)"),
    EngineFault("one attempt too few, in the end", BOOK, "last: bool = self._try[row] >= self._attempts[row]",
                "last: bool = self._try[row] >= self._attempts[row] - 1"),
    EngineFault("one attempt too few, from the start", BOOK, "self._attempts: Any = trace.attempts if",
                "self._attempts: Any = np.maximum(trace.attempts - 1, 1) if"),
    EngineFault("jobs start a second late", DESK, "now, own = float(self._clock.now), self._book.asked_milli[row]",
                "now, own = float(self._clock.now) + 1.0, self._book.asked_milli[row]"),
    EngineFault("a failure loses nothing", BOOK,
                "kept = self.done[row] + worked if saves else self._checkpointed(row, worked)",
                "kept = self.done[row] + worked"),
    EngineFault("a failure loses a checkpoint too many", BOOK,
                "full_s = float(np.floor((earlier_s + worked / rate) / interval)) * interval - earlier_s",
                "full_s = float(np.floor((earlier_s + worked / rate) / interval) - 1) * interval - earlier_s"),
    EngineFault("jobs of a failed node are not queued again", ENGINE, "        self._came_back(hit, why)\n", ""),
    EngineFault("jobs of a failed node run on", OUTAGES,
                '            self._on_down(np.arange(self._first[node], self._first[node + 1]), "node_failed")\n', ""),
    EngineFault("a failed node's GPUs are given out", OUTAGES, "            self._ledger.node_down(node)\n", ""),
    EngineFault("nobody is asked after a repair", OUTAGES,
                "        self._plan_failure(node)\n        self._ask()\n", "        self._plan_failure(node)\n"),
    EngineFault("nobody is asked after an end", ENGINE,
                '            self._came_back([row], "failed")\n        self._ask()\n',
                '            self._came_back([row], "failed")\n'),
    EngineFault("alarms ring a second late", ALARM, "self._clock.at(wake_s, self._wake",
                "self._clock.at(wake_s + 1.0, self._wake"),
    EngineFault("moves are written down as preemptions", DESK,
                '"migrated" if placement.gpus.size == running[row].size else "resized"', '"preempted"'),
    EngineFault("decisions do not count moves", ENGINE, "len(decision.start) + moved,", "len(decision.start),"),
    EngineFault("a change of speed forgets the overhead", BOOK,
                "overhead = max(0.0, self._begin[row] + overhead - now_s)", "overhead = 0.0"),
    EngineFault("a change of speed counts its work twice", BOOK, "            self.done[row] += worked\n",
                "            self.done[row] += 2 * worked\n"),
    EngineFault("killed jobs are written down as done", "sim/engine/outcome.py", '"killed": "killed"',
                '"killed": "done"'),
    EngineFault("lane: a release is dropped", LANE_JOBS, "        give_one(slots[s], milli, state, shape)\n",
                "        pass\n", FAST_LANE),
    EngineFault("lane: an end is lost", LANE, "while n[RUNNING] > 0 and sums[END, heap[0]] == due:",
                "while n[RUNNING] > 0 and heap[0] != 5 and sums[END, heap[0]] == due:", FAST_LANE),
    EngineFault("lane: rates are 5 % too high", LANE, "rates[i] = known_rate(", "rates[i] = 1.05 * known_rate(",
                FAST_LANE),
    EngineFault("lane: overhead is ignored", LANE_JOBS, "overhead = cost[marks[ENDED_BY, row]]", "overhead = 0.0",
                FAST_LANE),
    EngineFault("lane: quotas are not given back", LANE_JOBS,
                "    vc_left[gangs[4][row]] += np.int64(milli) * slot_n[row]\n", "", FAST_LANE),
    EngineFault("lane: kept work falls back to the checkpoint", LANE_JOBS, "if cost[SAVES] > 0 or interval == 0:",
                "if interval == 0:", FAST_LANE),
    EngineFault("lane: lost work is kept", LANE_JOBS, "if cost[SAVES] > 0 or interval == 0:", "if True:", FAST_LANE),
    EngineFault("lane: one attempt too few", LANE, "last = marks[TRIES, row] >= marks[ATTEMPTS, row]",
                "last = marks[TRIES, row] >= marks[ATTEMPTS, row] - 1", FAST_LANE),
    EngineFault("lane: equal ends in the wrong order", LANE_JOBS, "marks[LAUNCH, a] < marks[LAUNCH, b])",
                "marks[LAUNCH, a] > marks[LAUNCH, b])", FAST_LANE),
    EngineFault("lane: jobs start a second late", LANE_JOBS, "milli, now, first = gangs[1][row], f[NOW], slot_at[row]",
                "milli, now, first = gangs[1][row], f[NOW] + 1.0, slot_at[row]", FAST_LANE),
    EngineFault("lane: the last GPU of a gang is not written down", LANE_JOBS,
                "    for s in range(count):\n        ids[at + s]",
                "    ids[at + count - 1] = 0\n    for s in range(count - 1):\n        ids[at + s]", FAST_LANE),
    EngineFault("lane: moves are written down as preemptions", LANE, "PREEMPTED if stop else MIGRATED", "PREEMPTED",
                FAST_LANE),
    EngineFault("lane: alarms are forgotten", LANE, "due = min(comes, ends, f[ALARM])", "due = min(comes, ends)",
                FAST_LANE),
    EngineFault("a share taken is one milli short", LEDGER, "    free[g] -= milli\n", "    free[g] -= milli - 1\n"),
)
