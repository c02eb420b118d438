"""The same jobs, GPUs and policy in another simulator and in this one.

    python -m benchmarks.peers NAME CHECKOUT [--python python2.7] [--policy srsf] [--jobs 1000] [--nodes 32] [--gpus 8]

NAME is tiresias, pai or gavel; CHECKOUT is the folder of its repository that you fetched, with what it needs for the
Python that runs it. Jobs are the first of the Philly CSV below HETSIM_DATA, or of --trace, in whole seconds.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.measuring import BenchError
from benchmarks.peers.gavel import Gavel
from benchmarks.peers.pai import Pai
from benchmarks.peers.peer import Peer, compare, whole_seconds
from benchmarks.peers.tiresias import Tiresias
from benchmarks.rows import PHILLY
from traces.errors import HetsimError
from traces.load import head, load_trace

PEERS: dict[str, type[Peer]] = {peer.name: peer for peer in (Tiresias, Pai, Gavel)}


def main(words: list[str] | None = None) -> int:
    """Compare, and print; 2: it cannot be compared."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=sorted(PEERS))
    parser.add_argument("checkout", type=Path, help="folder of its repository")
    parser.add_argument("--python", default="python3", help="with which it runs  [python3]")
    both = "; ".join(f"{name}: {', '.join(peer.policies)}" for name, peer in sorted(PEERS.items()))
    parser.add_argument("--policy", help=f"one that both have ({both})  [the last of these]")
    parser.add_argument("--trace", type=Path, default=PHILLY, help="any that `hetsim run` reads  [the Philly CSV]")
    parser.add_argument("--jobs", type=int, default=1000, help="the first so many of the trace  [1000]")
    parser.add_argument("--nodes", type=int, default=32, help="of the cluster  [32]")
    parser.add_argument("--gpus", type=int, default=8, help="on each node  [8]")
    given = parser.parse_args(words)
    peer = PEERS[given.name]()
    policy = given.policy or list(peer.policies)[-1]
    try:
        if not given.checkout.is_dir():
            raise BenchError(f"{given.checkout}: no such folder; fetch the repository of {given.name} and name it")
        trace = whole_seconds(head(load_trace(given.trace), given.jobs), given.nodes * given.gpus, peer.fits)
        found = compare(peer, trace, policy, given.nodes, given.gpus, given.checkout.resolve(), given.python)
    except (BenchError, HetsimError) as error:
        print(f"peers: {error}", file=sys.stderr)
        return 2
    print(f"{given.name}, {policy}, {given.nodes} nodes of {given.gpus} GPUs, {found.jobs:,} jobs\n{found.text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
