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
from benchmarks.peers.table import Floors, agreement, rows, text
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
    clients = [_client(name, args.peers, model) for name in args.client]
    known = floors(model)
    about = page.About(datetime.now(UTC), args.seed, _command(argv))
    with ExitStack() as stack:
        session = Session(args.logs, stack, clients, args.seed)
        parts = Parts(session, args.peers, model, store.gguf(CATALOG[0]), args.rounds, frozenset(args.skip))
        try:
            _measure(parts, args)
        finally:  # before the servers stop, which may take long
            _tell(session, known, args, about)
    return 0


def _client(name: str, peers: Path, model: Path) -> Client:
    return OwnClient() if name == OWN else VllmBench(peers / "vllm", model)


def _measure(parts: Parts, args: argparse.Namespace) -> None:
    loads = [load for load in LOADS if load.name in args.loads]
    if loads:
        parts.beside_peers(loads)
    if "start" not in args.skip:
        parts.start_and_memory(again=bool(loads))
    if "radix" not in args.skip:
        parts.radix_on_and_off(args.radix_rounds)


def _tell(session: Session, known: Floors, args: argparse.Namespace, about: page.About) -> None:
    """Print and store whatever has been measured so far."""
    tables = {client: rows(values, known) for client, values in session.values.items()}
    for client, found in tables.items():
        print(f"\nmeasured by {client}\n{text(found)}", flush=True)
    if len(session.values) == 2:
        print(f"\n{' over '.join(session.values)}")
        for load, metric, server, ratio in agreement(*session.values.values()):
            print(f"{load:14} {metric:9} {server:18} {ratio:.3f}", flush=True)
    if args.json:
        flat = {client: {"/".join(key): found for key, found in values.items()} for client, values in session.values.items()}
        args.json.write_text(json.dumps(flat, indent=1))
    if args.markdown:
        args.markdown.write_text(page.render(tables, about))


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True, help="folder of the peers' environments; made if missing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--radix-rounds", type=int, default=1, help="rounds of the long prefix with and without the cache")
    parser.add_argument(
        "--client", nargs="+", choices=[OWN, VLLM_BENCH], default=[OWN], help="load generators; with both, also their ratio"
    )
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
