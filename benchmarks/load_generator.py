"""What `headrace bench` itself costs: `python -m benchmarks.load_generator`.

A stub streams a token per chunk at 20 thousand tokens a second in all, then as fast as it can. The load generator is not
the bottleneck as long as its share of a core is well below one and it sees the pauses that the stub makes.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.programs import free_port, program, wait_http
from headrace.bench.config import BenchConfig
from headrace.bench.measure import Measurement, measure

_TOKENS = 1000


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line per offered rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--rates", type=int, nargs="*", default=[5_000, 20_000, 0], help="tokens per second; 0 is as fast as the stub can")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a paced run")
    options = parser.parse_args(argv)
    names = ("offered tok/s", "seen", "CPU µs/token", "of a core", "pause ms", "median", "p99", "max")
    print("  ".join(f"{name:>{width}}" for name, width in zip(names, (13, 8, 12, 9, 8, 7, 7, 7), strict=True)))
    for rate in options.rates:
        tick = options.streams / rate if rate else 0.0
        tokens = max(int(options.seconds / tick), 2) if tick else _TOKENS
        found = _run(options.streams, tick, tokens)
        itl = found.summary.itl
        print(
            f"{rate or 'all it can':>13}  {found.summary.output_rate:>8.0f}  {found.about.own_cpu_us_per_token:>12.1f}  "
            f"{found.about.own_cpu_share:>9.0%}  {1e3 * tick:>8.2f}  {1e3 * itl.median:>7.2f}  {1e3 * itl.p99:>7.2f}  {1e3 * itl.max:>7.2f}"
        )
    return 0


def _run(streams: int, tick_s: float, tokens: int) -> Measurement:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.token_stub", "--port", str(port), "--tick-ms", str(1e3 * tick_s)]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "stub.log"
        with program(command, log) as child:
            wait_http(port, "/v1/models", child, log)
            config = BenchConfig(
                backend="openai",
                base_url=f"http://127.0.0.1:{port}",
                num_prompts=streams,
                max_concurrency=streams,
                random_input_len=32,
                random_output_len=tokens,
                warmup_requests=0,
            )
            return asyncio.run(measure(config))


if __name__ == "__main__":
    raise SystemExit(main())
