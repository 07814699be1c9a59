"""The report a person reads. It names what it measured, or has no headline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.bench.summary import Lengths, Spread, Summary

_WIDTH = 60


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What must stand beside a figure for it to mean anything."""

    backend: str
    url: str
    model: str
    server_version: str  # empty if the server does not say
    client_version: str
    dataset: str
    rate: str
    concurrency_cap: int | None
    seed: int
    flags: str
    targets: Mapping[str, float]
    own_cpu_us_per_token: float
    own_cpu_share: float
    server_flags: str = ""
    retokenized: int | None = None
    details: str = ""


def render(summary: Summary, about: Circumstances) -> str:
    """The whole report as text."""
    lines = [" Headrace bench ".center(_WIDTH, "=")]
    lines += _about(about)
    lines += [" Requests ".center(_WIDTH, "-"), *_requests(summary, about)]
    lines += [" Throughput ".center(_WIDTH, "-"), *_throughput(summary, about)]
    for name, values in (
        ("End-to-end latency", summary.e2e),
        ("Time to first token (TTFT)", summary.ttft),
        ("Time per output token after the first (TPOT)", summary.tpot),
        ("Inter-token latency (ITL)", summary.itl),
    ):
        lines += [f" {name} ".center(_WIDTH, "-"), *_spread(name, values)]
    lines += [" Load generator ".center(_WIDTH, "-")]
    lines += [
        _line("Own CPU per output token (us)", f"{about.own_cpu_us_per_token:.1f}"),
        _line("Own CPU, share of one core", f"{100 * about.own_cpu_share:.0f} %"),
        "=" * _WIDTH,
        headline(summary, about),
    ]
    return "\n".join(lines)


def headline(summary: Summary, about: Circumstances) -> str:
    """One sentence to quote, or why there is none."""
    if summary.succeeded == 0:
        return "No headline: no request succeeded."
    if not about.server_version:
        return "No headline: the server does not tell its version; pass --server-version to state it."
    lengths = f"{_range(summary.input_lengths)} tokens in, {_range(summary.output_lengths)} out"
    cap = f"at a cap of {about.concurrency_cap}" if about.concurrency_cap else f"at {about.rate} requests/s"
    failed = f", {summary.requests - summary.succeeded} of {summary.requests} failed" if summary.failures else ""
    return (
        f"{summary.output_rate:.1f} output tok/s {cap}: median TTFT {1e3 * summary.ttft.median:.0f} ms, "
        f"p99 {1e3 * summary.ttft.p99:.0f}; median TPOT {1e3 * summary.tpot.median:.1f} ms; longest pause "
        f"{1e3 * summary.itl.max:.0f} ms ({about.model}, {about.server_version}, {lengths}, seed {about.seed}{failed})."
    )


def short(summary: Summary, about: Circumstances) -> str:
    """The sentence, and how it came about."""
    return f"{headline(summary, about)}\n{flags_line(about)}"


def flags_line(about: Circumstances) -> str:
    """Client and flags, which a headline has no room for."""
    return f"measured by {about.client_version}, flags: {about.flags}"


def _about(about: Circumstances) -> list[str]:
    pairs = [
        ("Backend", about.backend),
        ("Server", about.url),
        ("Model", about.model),
        ("Server version", about.server_version or "unknown"),
        ("Client version", about.client_version),
        ("Dataset", about.dataset),
        ("Seed", str(about.seed)),
        ("Flags", about.flags),
    ]
    if about.server_flags:
        pairs.append(("Server settings", about.server_flags))
    return [_line(name, value) for name, value in pairs]


def _requests(summary: Summary, about: Circumstances) -> list[str]:
    cached = "not reported" if summary.cached_tokens is None else f"{summary.cached_tokens} ({_share(summary)} of input)"
    lines = [
        _line("Traffic request rate", about.rate),
        _line("Max request concurrency", str(about.concurrency_cap or "none")),
        _line("Successful requests", f"{summary.succeeded} of {summary.requests}"),
        *(_line(f"Failed: {kind}", str(count)) for kind, count in sorted(summary.failures.items())),
        _line("Benchmark duration (s)", f"{summary.duration:.2f}"),
        _line("Total input tokens", str(summary.input_tokens)),
        _line("Total generated tokens", str(summary.output_tokens)),
        _line("Streamed chunks", str(summary.streamed_chunks)),
        _line("Cached input tokens", cached),
        _line("Input length", _distribution(summary.input_lengths)),
        _line("Output length", _distribution(summary.output_lengths)),
    ]
    if about.retokenized is not None:
        lines.append(_line("Generated tokens, text re-encoded", str(about.retokenized)))
    return lines


def _throughput(summary: Summary, about: Circumstances) -> list[str]:
    lines = [
        _line("Request throughput (req/s)", f"{summary.request_rate:.2f}"),
        _line("Output token throughput (tok/s)", f"{summary.output_rate:.2f}"),
        _line("Peak output token throughput (tok/s)", f"{summary.peak_output_rate:.2f}"),
        _line("Total token throughput (tok/s)", f"{summary.total_rate:.2f}"),
        _line("Concurrency", f"{summary.concurrency:.2f}"),
        _line("Peak concurrent requests", str(summary.peak_concurrency)),
        _line("Peak concurrent, in 1 s buckets", str(summary.peak_concurrency_buckets)),
    ]
    if summary.steady_rate is not None:
        window = f"{summary.steady_rate:.2f} ({summary.steady_s:.1f} s)"
        lines.insert(2, _line(f"Output throughput at {summary.peak_concurrency} in flight", window))
    if summary.goodput is not None:
        targets = " ".join(f"{kind}:{1e3 * bound:g}" for kind, bound in about.targets.items())
        lines.append(_line(f"Goodput (req/s), {targets} ms", f"{summary.goodput:.2f} ({summary.goodput_requests} requests)"))
    return lines


def _spread(name: str, values: Spread) -> list[str]:
    short = {"E": "E2E", "T": name[name.rfind("(") + 1 : -1], "I": "ITL"}[name[0]]
    rows = [("Mean", values.mean), ("Median", values.median), ("P90", values.p90), ("P95", values.p95), ("P99", values.p99)]
    if short == "ITL":
        rows.append(("P99.9", values.p999))
    rows.append(("Max", values.max))
    return [_line(f"{label} {short} (ms)", f"{1e3 * value:.2f}") for label, value in rows]


def _line(name: str, value: str) -> str:
    return f"{name + ':':<38} {value}"


def _distribution(lengths: Lengths) -> str:
    if lengths.least == lengths.most:
        return f"all {lengths.most}"
    return f"min {lengths.least}, mean {lengths.mean:.1f}, median {lengths.median:g}, max {lengths.most}"


def _range(lengths: Lengths) -> str:
    return str(lengths.most) if lengths.least == lengths.most else f"{lengths.least} to {lengths.most} (mean {lengths.mean:.0f})"


def _share(summary: Summary) -> str:
    return f"{100 * (summary.cached_tokens or 0) / max(summary.input_tokens, 1):.1f} %"
