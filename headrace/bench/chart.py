"""A sweep drawn for a terminal and as a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headrace.bench.knee import Level

_BAR = 32


def as_text(levels: Sequence[Level], at: Level) -> str:
    """A row per cap: throughput as a bar, change to the cap before, latencies."""
    best = max(level.output_rate for level in levels)
    latencies = f"{'TTFT med/p99 ms':>17}  {'TPOT med/p99 ms':>17}  {'longest pause':>13}"
    lines = [f"{'cap':>5}  {'out tok/s':>9}  {'change':>7}  {'':{_BAR}}  {latencies}"]
    for before, level in zip([None, *levels[:-1]], levels, strict=True):
        bar = "#" * round(_BAR * level.output_rate / best) if best else ""
        change = f"{100 * (level.output_rate / before.output_rate - 1):+.0f} %" if before and before.output_rate else ""
        ttft = f"{1e3 * level.ttft_median:.0f} / {1e3 * level.ttft_p99:.0f}"
        tpot = f"{1e3 * level.tpot_median:.1f} / {1e3 * level.tpot_p99:.1f}"
        note = "  <- knee" if level is at else ""
        failed = f"  {level.failed} failed" if level.failed else ""
        lines.append(
            f"{level.cap:>5}  {level.output_rate:>9.1f}  {change:>7}  {bar:{_BAR}}  {ttft:>17}  {tpot:>17}  "
            f"{1e3 * level.itl_max:>10.0f} ms{note}{failed}"
        )
    return "\n".join(lines)


def as_png(levels: Sequence[Level], at: Level, title: str, path: Path) -> None:
    """Throughput and median time to first token over concurrency, the knee marked."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # drawing is slow to load
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    rate = figure.add_subplot()
    caps = [level.cap for level in levels]
    rate.plot(caps, [level.output_rate for level in levels], marker="o", color="#1f6f8b", label="output tokens/s")
    rate.axvline(at.cap, color="#999999", linestyle="--", linewidth=1)
    rate.annotate(f"knee: {at.cap}", (at.cap, 0), textcoords="offset points", xytext=(6, 8), color="#555555")
    rate.set_xscale("log", base=2)
    rate.set_xticks(caps, [str(cap) for cap in caps])
    rate.set_ylim(bottom=0)
    rate.set_xlabel("concurrency cap")
    rate.set_ylabel("output tokens/s")
    wait = rate.twinx()
    wait.plot(caps, [1e3 * level.ttft_median for level in levels], marker="s", color="#c8553d", label="median TTFT")
    wait.plot(caps, [1e3 * level.ttft_p99 for level in levels], marker="s", color="#c8553d", alpha=0.4, linestyle=":", label="p99 TTFT")
    wait.set_ylim(bottom=0)
    wait.set_ylabel("time to first token, ms")
    handles = [*rate.get_legend_handles_labels()[0], *wait.get_legend_handles_labels()[0]]
    rate.legend(handles=handles, loc="upper left", frameon=False)
    rate.set_title(title, fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
