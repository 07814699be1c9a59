"""Where a changing id stands in a long prompt, and what that costs: `python -m benchmarks.prompt_layout [--base-url URL]`.

One long system prompt and a short question, five times in each of three forms: always the same, with a new id at the start,
with a new id at the end. Printed are the tokens found in the cache and the time to the first token, and each median as a
multiple of the stable prompt's. Without `--base-url` a suite with the embedded model is started.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.variants import suites
from headrace.client import Client

_LINE = "Rule {number}: when the water stands {number} hands above the sill, open gate {number} before the bell is rung twice. "
_QUESTION = "\nQuestion: which gate is first?\nAnswer:"
_WARM_UP = ("The capital of France is", "Count to ten:")


@dataclass(frozen=True, slots=True)
class Asked:
    """What one request met with."""

    prompt_tokens: int
    cached_tokens: int
    first_token_ms: float


def layouts(lines: int, seed: int) -> dict[str, Callable[[], str]]:
    """A maker of prompts for each form; `lines` rules of about 31 tokens each."""
    draw = random.Random(seed)

    def some_id() -> str:
        return f"Request id {draw.randbytes(8).hex()}. "

    rules = "".join(_LINE.format(number=number) for number in range(lines))
    return {
        "stable": lambda: rules + _QUESTION,
        "id at start": lambda: some_id() + rules + _QUESTION,
        "id at end": lambda: rules + some_id() + _QUESTION,
    }


def measure(client: Client, make: Callable[[], str], repeats: int) -> list[Asked]:
    """Ask one after the other, for one token each."""
    found = []
    for _ in range(repeats):
        prompt, began = make(), time.perf_counter()
        answer = client.generate(prompt, temperature=0, max_new_tokens=1)
        took = 1e3 * (time.perf_counter() - began)
        found.append(Asked(int(answer.meta["prompt_tokens"]), answer.cached_tokens, took))
    return found


def table(found: dict[str, list[Asked]]) -> list[str]:
    """A line for each form."""
    medians = {name: statistics.median(each.first_token_ms for each in asked) for name, asked in found.items()}
    lines = [f"{'layout':12} {'prompt':>7} {'cached':>7} {'median TTFT':>12} {'min':>9} {'max':>9} {'x stable':>9}"]
    for name, asked in found.items():
        times = [each.first_token_ms for each in asked]
        cached = statistics.median(each.cached_tokens for each in asked)
        lines.append(
            f"{name:12} {asked[-1].prompt_tokens:>7} {cached:>7.0f} {medians[name]:>9.1f} ms {min(times):>6.0f} ms {max(times):>6.0f} ms "
            f"{medians[name] / medians['stable']:>9.1f}"
        )
    return lines


def run(url: str, lines: int, repeats: int, seed: int) -> Sequence[str]:
    """All forms against one server, the cache empty before each."""
    with Client(url) as client:
        for prompt in _WARM_UP:
            client.generate(prompt, temperature=0, max_new_tokens=1)
        found = {}
        for name, make in layouts(lines, seed).items():
            client.call("POST", "/flush_cache?timeout=60")
            found[name] = measure(client, make, repeats)
    return table(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-url", help="a server that runs already")
    parser.add_argument("--lines", type=int, default=97, help="length of the system prompt, in lines of about 31 tokens")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.base_url:
        print("\n".join(run(options.base_url, options.lines, options.repeats, options.seed)))
        return
    with suites({"headrace": ()}, first_port=36_000) as servers:
        servers["headrace"].resume()
        print("\n".join(run(servers["headrace"].url, options.lines, options.repeats, options.seed)))


if __name__ == "__main__":
    main()
