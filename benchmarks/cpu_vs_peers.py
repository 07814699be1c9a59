"""The suite beside vLLM and llama.cpp on this CPU: `python -m benchmarks.cpu_vs_peers --peers DIR [--rounds 3]`.

Nothing is set up by hand: the model is fetched, the peers are installed into DIR if they are not there. All servers
run the same weights; only the measured one is awake, the others are stopped in their tracks. Servers take turns within
a round, prompts are new in every round and equal for all servers, temperature is 0, lengths are exact. A run that is
interrupted prints what it has.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.peers import page
from benchmarks.peers.clients import OWN, VLLM_BENCH, Client, OwnClient, VllmBench
from benchmarks.peers.floors import floors
from benchmarks.peers.install import install
from benchmarks.peers.loads import LOADS
from benchmarks.peers.parts import Parts
from benchmarks.peers.session import Session
from benchmarks.peers.table import rows, text
from headrace.models.catalog import CATALOG
from headrace.models.store import ModelStore
from services.common.config import cache_dir

SKIPPABLE = ("llama.cpp", "int8", "bf16", "start", "radix")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table. Exit code 1 if the run ended before its end."""
    args = _arguments(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers are stopped
    args.logs.mkdir(parents=True, exist_ok=True)
    install(args.peers)
    store = ModelStore(cache_dir())
    model = store.ensure(CATALOG[0], print)
    client: Client = OwnClient() if args.client == OWN else VllmBench(args.peers / "vllm", model)
    known = floors(model)
    started, session = datetime.now(UTC), None
    try:
        with ExitStack() as stack:
            session = Session(args.logs, stack, client, args.seed)
            parts = Parts(session, args.peers, model, store.gguf(CATALOG[0]), args.rounds, frozenset(args.skip))
            loads = [load for load in LOADS if load.name in args.loads]
            if loads:
                parts.beside_peers(loads)
            if "start" not in args.skip:
                parts.start_and_memory(again=bool(loads))
            if "radix" not in args.skip:
                parts.radix_on_and_off(args.radix_rounds)
    finally:
        if session is not None and session.values:
            found = rows(session.values, known)
            print("\n" + text(found), flush=True)
            if args.json:
                args.json.write_text(json.dumps({"/".join(key): values for key, values in session.values.items()}, indent=1))
            if args.markdown:
                about = page.About(started, client.name, args.seed, _command(argv))
                args.markdown.write_text(page.render(found, about))
    return 0


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True, help="folder of the peers' environments; made if missing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--radix-rounds", type=int, default=1, help="rounds of the long prefix with and without the cache")
    parser.add_argument("--client", choices=[OWN, VLLM_BENCH], default=OWN, help="load generator")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(2), "big") * 1000, help="first seed; else drawn anew")
    parser.add_argument("--loads", nargs="*", default=[load.name for load in LOADS], choices=[load.name for load in LOADS])
    parser.add_argument("--skip", nargs="*", default=[], choices=SKIPPABLE, help="leave these out")
    parser.add_argument("--logs", type=Path, default=Path("/tmp/headrace-bench"), help="folder for what the servers write")
    parser.add_argument("--json", type=Path, help="store every value of every round")
    parser.add_argument("--markdown", type=Path, help="write the table as it stands in docs/performance.md")
    return parser.parse_args(argv)


def _command(argv: Sequence[str] | None) -> str:
    return "python -m benchmarks.cpu_vs_peers " + shlex.join(sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    raise SystemExit(main())
