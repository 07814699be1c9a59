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
    """Collects values over rounds; every server is stopped when `stack` ends.

    `seed` is the first of a series: each run of a load gets a new one, the same for all servers of that run.
    """

    def __init__(self, folder: Path, stack: ExitStack, client: Client, seed: int) -> None:
        self.values: Values = defaultdict(dict)
        self._folder, self._stack, self._client, self._seed = folder, stack, client, seed
        self._runs = 0

    def start(self, recipe: Recipe) -> Server:
        """A server that has answered once, and is paused."""
        print(f"starting {recipe.name}", flush=True)
        server = Server(recipe, self._folder / f"{recipe.name.replace(' ', '-')}.log")
        self._stack.callback(server.stop)
        server.wait()
        print(f"  first answer after {server.first_answer_s:.1f} s", flush=True)
        server.pause()
        return server

    def round(self, servers: Sequence[Server], load: Load, number: int) -> None:
        """Each server once, in an order that rotates. A run in which a request failed gives no values."""
        self._runs += 1
        turn = self._runs % len(servers)
        for server in (*servers[turn:], *servers[:turn]):
            found = self.run(server, load)
            if found.failed == 0:
                for metric, value in found.named().items():
                    self.note(load.name, metric, server, number, value)

    def run(self, server: Server, load: Load) -> Figures:
        """One load on one server, which sleeps before and after."""
        server.resume()
        recipe = server.recipe
        found = self._client.run(server.url, MODEL_NAME, recipe.version, load, self._seed + self._runs)
        server.pause()
        print(f"  {load.name:14} {recipe.name:18} {found.line}", flush=True)
        return found

    def note(self, load: str, metric: str, server: Server, number: int, value: float) -> None:
        """Keep a value of a round."""
        self.values[(load, metric, server.recipe.name)][number] = value

    def weigh(self, server: Server, number: int) -> None:
        """Memory of all processes without the pages of the key-value pool."""
        total, pool = server.pss_bytes(), server.resident_pool_bytes()
        print(f"  {server.recipe.name:18} PSS {total / 2**20:.0f} MiB, of which key-value pool {pool / 2**20:.0f}", flush=True)
        self.note(MEMORY, "PSS - KV", server, number, (total - pool) / 2**20)
