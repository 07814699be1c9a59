"""`headrace check determinism`: does a prompt's answer depend on its company?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.check.determinism import MODES, Answer, check
from headrace.client import Client, ClientError
from services.common.config import at_least, load_or_exit, option

_SEED = 42  # of every request


@dataclass(frozen=True)
class DeterminismConfig:
    """Which server, which modes, how often."""

    base_url: str = option("http://127.0.0.1:30000", "REST door of the server", group="Server")
    api_key: str = option("", "key sent as bearer token", group="Server", secret=True)
    test_mode: tuple[str, ...] = option(MODES, "what to vary", group="Check", choices=MODES)
    n_trials: int = option(50, "trials of each mode", group="Check", check=at_least(1))
    max_batch: int = option(16, "largest batch of a trial", group="Check", check=at_least(1))
    max_new_tokens: int = option(32, "length of each answer", unit="tokens", group="Check", check=at_least(1))
    temperature: float = option(
        0.0, "0 takes the most likely token; above it tokens are drawn, with one seed", group="Check", check=at_least(0.0)
    )
    seed: int = option(0, "seed of batch sizes and company", group="Check")


def main(argv: Sequence[str]) -> int:
    """Exit code 0 if every prompt had one answer, 1 if not, 2 for an unusable command line."""
    if not argv or argv[0] != "determinism":
        print("usage: headrace check determinism [flags]", file=sys.stdout if argv and argv[0] in ("-h", "--help") else sys.stderr)
        return 0 if argv and argv[0] in ("-h", "--help") else 2
    config, _ = load_or_exit(
        DeterminismConfig, argv[1:], prog="headrace check determinism", description="One prompt in many batches: one answer?"
    )
    try:
        return run(config)
    except ClientError as error:
        print(f"headrace check determinism: {config.base_url}: {error}", file=sys.stderr)
        return 1


def run(config: DeterminismConfig) -> int:
    """All modes asked for."""
    passed = True
    with Client(config.base_url, api_key=config.api_key) as client:

        def ask(prompt: str) -> Answer:
            found = client.generate(
                prompt, temperature=config.temperature, sampling_seed=_SEED, max_new_tokens=config.max_new_tokens, ignore_eos=True
            )
            return Answer(found.output_ids, found.cached_tokens)

        def flush() -> None:
            client.call("POST", "/flush_cache?timeout=60")

        for mode in config.test_mode:
            result = check(mode, ask, flush, config.n_trials, config.max_batch, config.seed)
            print("\n".join(result.lines()), flush=True)
            passed = passed and result.passed
    return 0 if passed else 1
