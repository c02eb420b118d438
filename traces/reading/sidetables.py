"""Files that users take for traces and that belong to no trace: measured speeds, graphs of models, figures of papers.

Each is recognised by its content, and refused with what it is and the command that takes it. Tables published beside a
trace are in the `side_tables` of its reader instead.
"""

from __future__ import annotations

from traces.reading.reader import Head, SideTable

MEASURED = "It tells speeds: hetsim run --measured FILE runs jobs at them, and hetsim perf --measured FILE shows them."
GRAPH = "It is a model: hetsim perf FILE, or hetsim recommend --graph FILE."
FIGURES = "It is there to compare with; no command reads it."


def _starts_with_keys(head: Head, *keys: bytes) -> bool:
    """Whether a JSON object has all these keys among the first bytes."""
    return head.first.lstrip()[:1] == b"{" and all(b'"' + key + b'"' in head.first for key in keys)


def _is_gavel_rates(head: Head) -> bool:
    """Gavel's JSON: a GPU type, then keys such as "('A3C', 1)"."""
    return head.first.lstrip()[:1] == b"{" and b"\"('" in head.first[:400]


def _is_pipedream(head: Head) -> bool:
    """PipeDream's graph: its first line is "node1 -- Conv2d(…) -- forward_compute_time=…"."""
    first = head.first.split(b"\n", 1)[0]
    return b" -- " in first and b"forward_compute_time=" in first


def _is_prose(head: Head) -> bool:
    """Documentation: by name, since prose has no form of its own."""
    return head.path.suffix.lower() in (".md", ".rst") or head.path.stem.upper() in ("LICENSE", "README", "INDEX")


OTHERS: tuple[SideTable, ...] = (
    SideTable("Gavel's measured throughputs", MEASURED, sniff=_is_gavel_rates),
    SideTable("Gavel's measured throughputs as a table", MEASURED,
              header=("model", "batch_size", "scale_factor", "physical_v100")),
    SideTable("measured speeds of pairs of jobs that share a GPU", FIGURES,
              header=("model_a", "model_b", "steps_per_s_a", "steps_per_s_b")),
    SideTable("ElasticFlow's measured throughputs by batch size and GPUs", MEASURED, header=("global_batch_size",)),
    SideTable("step times that Pollux and Sia measured", MEASURED, header=("local_bsz", "step_time", "sync_time")),
    SideTable("step times that Pollux and Sia measured, as means", MEASURED,
              header=("num_replicas", "local_bsz", "step_time_s", "sync_time_s", "n_meas")),
    SideTable("gradient noise and metric of a model while it trains", FIGURES,
              header=("progress", "iteration", "metric", "grad_sqr", "grad_var")),
    SideTable("fitted parameters of Pollux' speed model", FIGURES, header=("alpha_c", "beta_c", "gamma")),
    SideTable("limits of the applications of Pollux and Sia", FIGURES,
              sniff=lambda head: _starts_with_keys(head, b"init_batch_size", b"max_batch_size")),
    SideTable("reference values of Pollux' speed model", FIGURES,
              header=("model", "gpu_type", "placement", "measured_placement")),
    SideTable("reference values of Pollux' goodput", FIGURES, header=("opt_goodput", "opt_atomic_bsz")),
    SideTable("run times of single jobs in Pollux' simulator", FIGURES, header=("mode", "jct_s", "restart_delay_s")),
    SideTable("a graph of PipeDream", GRAPH, sniff=_is_pipedream),
    SideTable("a graph of dnn-partitioning", GRAPH, sniff=lambda head: _starts_with_keys(head, b"maxFPGAs", b"nodes")),
    SideTable("a graph of Piper", GRAPH, sniff=lambda head: _starts_with_keys(head, b"maxDevices", b"nodes")),
    SideTable("a graph of operators with their times", GRAPH,
              sniff=lambda head: head.first[:9] == b'{"nodes":' and b'"par"' in head.first),
    SideTable("a model split by hand over devices (dnn-partitioning)", FIGURES,
              sniff=lambda head: _starts_with_keys(head, b"fpgas", b"load")),
    SideTable("a catalogue of GPU types", "hetsim has its own: hetsim perf --list.",
              sniff=lambda head: head.header[:2] == ("gpu", "arch") or b"\ngpu,arch," in head.first),
    SideTable("distributions of run times, GPUs or use, read from published figures", FIGURES,
              sniff=lambda head: _starts_with_keys(head, b"duration_cdf_pct_at_2^i_s_i0..21")
              or _starts_with_keys(head, b"hourly_mean_utilisation_pct")),
    SideTable("text for people", "", sniff=_is_prose),
)
