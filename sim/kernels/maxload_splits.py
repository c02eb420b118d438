"""Max-load splits of a graph over accelerators and CPUs: exact over chains of down-sets, and by annealing.

A net is a tensor: its writer and its readers are its pins. A net whose pins are on several devices costs its weight
once on each accelerator among them (a transfer out, or in). An accelerator's load is its compute plus such costs; a
CPU's is its compute.
"""

from __future__ import annotations

import numpy as np

from sim.kernels.jit import jit, part

NEVER = 1 << 40
"""More accelerators than there are."""
SWAPS = 0.3
"""Moves of annealing that exchange two vertices."""
NEAR = 0.9
"""Of the others, those to where a neighbour is."""


@part
def accelerators_needed(work, off, upper):
    """Fewest accelerators of load `upper` that do the work, but for `off` of it (and for rounding)."""
    if work <= off:
        return 0
    return int(np.ceil((work - off) / upper - 1e-9)) if upper > 0.0 else NEVER


@jit
def max_load_chain(
    members: np.ndarray, first_below: np.ndarray, below: np.ndarray, vertex_below: np.ndarray,
    accelerator: np.ndarray, cpu: np.ndarray, memory: np.ndarray,
    first_net: np.ndarray, nets: np.ndarray, pins: np.ndarray, weight: np.ndarray,
    devices: np.ndarray, capacity: float, upper: float, off: float,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Chain of down-sets with the least maximal load over at most devices[0] accelerators and devices[1] CPUs.

    D[I, a, c] = min over down-sets J within I of max(D[J, a - 1, c], accelerator load of I - J) and
    max(D[J, a, c - 1], CPU load of I - J). J is reached from I by taking away one vertex at a time; what a larger
    I - J can only add to (compute, memory, and nets with a pin outside I) ends the walk when it is above `upper`.

    Parameters
    ----------
    members, first_below, below, vertex_below : bool [I, n], int64 [I + 1], int64 [steps], int64 [steps]
        Down-sets, smaller ones first, and the steps down from each: set below[s] lacks vertex_below[s].
    accelerator, cpu, memory : float64 [n]
        Compute on a device of each kind (inf: not there), memory on an accelerator.
    first_net, nets : int64 [n + 1], int64
        Nets of each vertex, each once.
    pins, weight : int64 [nets], float64 [nets]
        Pins of each net and what it costs where it is cut.
    devices : int64 [2]
    capacity, upper : float
        Memory of an accelerator. A load that somebody reaches already: higher ones are left out.
    off : float
        Most accelerator compute that a CPU of load `upper` can take off; inf is allowed.

    Returns
    -------
    load : float
        inf: none within `upper`.
    chain : int64 [stages]
        Down-sets at the end of each stage.
    on_cpu : bool [stages]
    """
    count, n = members.shape
    accelerators, cpus = devices[0], devices[1]
    states = (accelerators + 1) * (cpus + 1)
    best = np.full((count, states), np.inf)
    back = np.full((count, states), -1, dtype=np.int64)  # 2 x set before, + 1 where the stage is on a CPU
    best[0, 0] = 0.0
    work = np.zeros(count)  # for accelerators; a vertex that none of them takes is none
    for i in range(count):
        for v in range(n):
            if members[i, v] and accelerator[v] < np.inf:
                work[i] += accelerator[v]
    total = work[count - 1]
    seen = np.full(count, -1, dtype=np.int64)
    inside = np.zeros(len(pins), dtype=np.int64)  # pins in I
    taken = np.zeros(len(pins), dtype=np.int64)  # pins in I - J
    at = np.zeros(n + 1, dtype=np.int64)
    step = np.zeros(n + 1, dtype=np.int64)
    sums = np.zeros((n + 1, 5))  # of I - J: accelerator compute, CPU compute, memory, nets cut for good, other nets cut
    low = np.zeros(cpus + 1, dtype=np.int64)
    high = np.zeros(cpus + 1, dtype=np.int64)
    for i in range(1, count):
        open_states = False
        for c in range(cpus + 1):
            low[c] = accelerators_needed(work[i], c * off if c else 0.0, upper)
            high[c] = accelerators - accelerators_needed(total - work[i], (cpus - c) * off if c < cpus else 0.0, upper)
            open_states |= low[c] <= high[c]
        if not open_states:
            continue
        inside[:] = 0
        for v in range(n):
            if members[i, v]:
                for s in range(first_net[v], first_net[v + 1]):
                    inside[nets[s]] += 1
        depth = 0
        at[0], step[0] = i, first_below[i]
        while depth >= 0:
            if step[depth] == first_below[at[depth] + 1]:
                if depth > 0:
                    v = vertex_below[step[depth - 1] - 1]
                    for s in range(first_net[v], first_net[v + 1]):
                        taken[nets[s]] -= 1
                depth -= 1
                continue
            s = step[depth]
            step[depth] += 1
            j, v = below[s], vertex_below[s]
            if seen[j] == i:
                continue
            seen[j] = i
            compute, cpu_load = sums[depth, 0] + accelerator[v], sums[depth, 1] + cpu[v]
            held, fixed, cut = sums[depth, 2] + memory[v], sums[depth, 3], sums[depth, 4]
            for s in range(first_net[v], first_net[v + 1]):
                e = nets[s]
                if inside[e] < pins[e]:
                    if taken[e] == 0:
                        fixed += weight[e]
                else:
                    if taken[e] == 0:
                        cut += weight[e]
                    if taken[e] == pins[e] - 1:
                        cut -= weight[e]
            load = compute + fixed + cut
            fits = compute + fixed <= upper and held <= capacity
            fits_cpu = cpus > 0 and cpu_load <= upper
            if not (fits or fits_cpu):
                continue
            for c in range(cpus + 1):
                if fits and load <= upper:
                    for a in range(max(1, low[c]), high[c] + 1):
                        state = a * (cpus + 1) + c
                        value = max(best[j, state - cpus - 1], load)
                        if value < best[i, state] and value <= upper:
                            best[i, state], back[i, state] = value, 2 * j
                if fits_cpu and c > 0:
                    for a in range(low[c], high[c] + 1):
                        state = a * (cpus + 1) + c
                        value = max(best[j, state - 1], cpu_load)
                        if value < best[i, state] and value <= upper:
                            best[i, state], back[i, state] = value, 2 * j + 1
            for s in range(first_net[v], first_net[v + 1]):
                taken[nets[s]] += 1
            depth += 1
            at[depth], step[depth] = j, first_below[j]
            sums[depth, 0], sums[depth, 1], sums[depth, 2] = compute, cpu_load, held
            sums[depth, 3], sums[depth, 4] = fixed, cut
    state = 0
    for other in range(states):
        if best[count - 1, other] < best[count - 1, state]:
            state = other
    load = best[count - 1, state]
    chain = np.empty(accelerators + cpus, dtype=np.int64)
    on_cpu = np.empty(accelerators + cpus, dtype=np.bool_)
    stages = 0
    i = count - 1
    while i > 0 and load < np.inf:
        chain[stages], on_cpu[stages] = i, back[i, state] & 1 == 1
        i = back[i, state] >> 1
        state -= 1 if on_cpu[stages] else cpus + 1
        stages += 1
    return load, chain[:stages][::-1].copy(), on_cpu[:stages][::-1].copy()


@part
def random_word(state: np.ndarray) -> np.uint64:
    """The next word of xorshift64 (Marsaglia 2003); state [1] is not zero."""
    x = state[0]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[0] = x
    return x


@part
def below_n(state, n):
    """A random number 0..n-1."""
    return np.int64((random_word(state) >> np.uint64(11)) % np.uint64(n))


@part
def uniform(state: np.ndarray) -> float:
    """A random number in [0, 1)."""
    return np.float64(random_word(state) >> np.uint64(11)) * 2.0**-53


@part
def power(x: float, squarings: int) -> float:
    """x to the power of 2 ** squarings."""
    for _ in range(squarings):
        x *= x
    return x


@jit
def anneal(
    device: np.ndarray, accelerator: np.ndarray, cpu: np.ndarray, memory: np.ndarray,
    first_net: np.ndarray, nets: np.ndarray, first_pin: np.ndarray, pin: np.ndarray, weight: np.ndarray,
    accelerators: int, count: int, capacity: float, state: np.ndarray,
    steps: int, hot: float, cold: float, squarings: int,
) -> tuple[float, np.ndarray]:
    """A split that simulated annealing finds from another one: its maximal load, and the device of each vertex.

    One vertex moves at a time, mostly to where a neighbour is. The energy is sum over devices of
    (load / load of the slowest at the start) ** (2 ** squarings), so that near-maximal loads count as well; the
    temperature falls from `hot` to `cold`, geometrically.

    Parameters
    ----------
    device : int64 [n]
        A split within all memories: accelerators 0..accelerators-1, then CPUs up to count-1.
    accelerator, cpu, memory, first_net, nets, weight, capacity : see `max_load_chain`
    first_pin, pin : int64 [nets + 1], int64
        Vertices of each net.
    state : uint64 [1]
        Of the random numbers, not zero; goes on.
    """
    n, net_count = len(device), len(weight)
    device = device.copy()
    on = np.zeros((net_count, count), dtype=np.int64)  # pins of each net on each device
    spread = np.zeros(net_count, dtype=np.int64)  # devices of each net
    load = np.zeros(count)
    held = np.zeros(count)
    for v in range(n):
        load[device[v]] += accelerator[v] if device[v] < accelerators else cpu[v]
        held[device[v]] += memory[v]
        for s in range(first_net[v], first_net[v + 1]):
            if on[nets[s], device[v]] == 0:
                spread[nets[s]] += 1
            on[nets[s], device[v]] += 1
    for e in range(net_count):
        for d in range(accelerators):
            if on[e, d] and spread[e] > 1:
                load[d] += weight[e]
    unit = load.max()
    if unit == 0.0 or count < 2:
        return unit, device
    best, best_device = unit, device.copy()
    temperature, cooling = hot, (cold / hot) ** (1.0 / max(1, steps))
    movers = np.zeros(2, dtype=np.int64)
    for _ in range(steps):
        temperature *= cooling
        v = below_n(state, n)
        a, u = device[v], v
        if uniform(state) < SWAPS:
            u = below_n(state, n)
            b = device[u]
        elif first_net[v] < first_net[v + 1] and uniform(state) < NEAR:
            e = nets[first_net[v] + below_n(state, first_net[v + 1] - first_net[v])]
            b = device[pin[first_pin[e] + below_n(state, first_pin[e + 1] - first_pin[e])]]
        else:
            b = below_n(state, count)
        if a == b:
            continue
        old_a, old_b, held_a, held_b = load[a], load[b], held[a], held[b]
        movers[0], movers[1] = v, u
        moves = 1 if u == v else 2
        accepted = False
        # The second pass undoes what the first did.
        for undo in range(2):
            for i in range(moves):
                w = movers[i]
                x, y = device[w], a + b - device[w]
                load[x] -= accelerator[w] if x < accelerators else cpu[w]
                load[y] += accelerator[w] if y < accelerators else cpu[w]
                held[x] -= memory[w]
                held[y] += memory[w]
                device[w] = y
                for s in range(first_net[w], first_net[w + 1]):
                    e = nets[s]
                    before = spread[e]
                    after = before + (on[e, y] == 0) - (on[e, x] == 1)
                    if x < accelerators:
                        load[x] += weight[e] * ((on[e, x] > 1 and after > 1) - (before > 1))
                    if y < accelerators:
                        load[y] += weight[e] * ((after > 1) - (on[e, y] > 0 and before > 1))
                    on[e, x] -= 1
                    on[e, y] += 1
                    spread[e] = after
            if undo:
                break
            if load[a] == np.inf or load[b] == np.inf:
                continue
            if (a < accelerators and held[a] > capacity) or (b < accelerators and held[b] > capacity):
                continue
            rise = (
                power(load[a] / unit, squarings) + power(load[b] / unit, squarings)
                - power(old_a / unit, squarings) - power(old_b / unit, squarings)
            )
            if rise <= 0 or uniform(state) < np.exp(-rise / temperature):
                accepted = True
                break
        if not accepted:
            load[a], load[b], held[a], held[b] = old_a, old_b, held_a, held_b
        elif load.max() < best * (1 - 1e-12):
            best = load.max()
            best_device[:] = device
    return best, best_device
