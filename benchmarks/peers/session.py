"""Servers that take turns, and the values they gave."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.peers.clients import Client, Figures
from benchmarks.peers.loads import Load
from benchmarks.peers.servers import MODEL_NAME, Recipe, Server
from benchmarks.peers.table import Values
from benchmarks.targets import MEMORY


class Session:
    """Collects values over rounds, by client; every server is stopped when `stack` ends.

    `seed` is the first of a series: each run of a load gets a new one, the same for all servers of that run.
    """

    def __init__(self, folder: Path, stack: ExitStack, clients: Sequence[Client], seed: int) -> None:
        self.values: dict[str, Values] = {client.name: defaultdict(dict) for client in clients}
        self._folder, self._stack, self._clients, self._seed = folder, stack, clients, seed
        self._runs = 0

    def start(self, recipe: Recipe) -> Server:
        """A server that has answered once, and is paused."""
        print(f"starting {recipe.name}", flush=True)
        server = Server(recipe, self._folder / f"{recipe.name.replace(' ', '-')}.log")
        self._stack.callback(server.stop)
        server.wait()
        print(f"  first answer after {server.first_answer_s:.1f} s", flush=True)
        server.settle()
        server.pause()
        return server

    def round(self, servers: Sequence[Server], load: Load, number: int) -> None:
        """Each server once with each client, in an order that rotates. A run in which a request failed gives no values."""
        self._runs += 1
        turn = self._runs % len(servers)
        for server in (*servers[turn:], *servers[:turn]):
            for i, client in enumerate(self._clients):
                found = self.run(server, load, client, self._seed + len(self._clients) * self._runs + i)
                if found.failed == 0:
                    for metric, value in found.named().items():
                        self.values[client.name][(load.name, metric, server.recipe.name)][number] = value

    def run(self, server: Server, load: Load, client: Client | None = None, seed: int | None = None) -> Figures:
        """One load on one server, which sleeps before and after. By default the first client's, with the first seed."""
        server.resume()
        recipe = server.recipe
        found = (client or self._clients[0]).run(server.url, MODEL_NAME, recipe.version, load, self._seed if seed is None else seed)
        server.pause()
        print(f"  {load.name:14} {recipe.name:18} {found.line}", flush=True)
        if found.failed:
            print(f"    the first failure: {found.why}", flush=True)
        return found

    def note(self, load: str, metric: str, server: Server, value: float) -> None:
        """Keep a value that no client measured and that there is once."""
        for values in self.values.values():
            values[(load, metric, server.recipe.name)][0] = value

    def weigh(self, server: Server, tokens: int) -> None:
        """Memory of all processes without the pages of the key-value pool; `tokens` have gone through it so far."""
        total, pool = server.pss_bytes(), server.resident_pool_bytes(tokens)
        print(f"  {server.recipe.name:18} PSS {total / 2**20:.0f} MiB, of which key-value pool {pool / 2**20:.0f}", flush=True)
        self.note(MEMORY, "PSS - KV", server, (total - pool) / 2**20)
