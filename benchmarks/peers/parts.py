"""The parts of the comparison: loads side by side, the second start with memory, and the prefix cache."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.peers.loads import LOADS, LONG_PREFIX, Load
from benchmarks.peers.servers import Recipe, headrace, llama_cpp, vllm
from benchmarks.peers.session import Session
from benchmarks.targets import BF16, INT8, LLAMA, MANY, NO_RADIX, ONE, RADIX, START

# Below the ports that a system gives to outgoing connections.
_PORTS = {"vLLM": 21000, LLAMA: 21500, INT8: 22000, BF16: 24000, RADIX: 26000, NO_RADIX: 28000}
_POOL_TOKENS = 65_536
_TOKEN_BYTES = 2 * 30 * 3 * 64 * 2  # keys and values of a token of the embedded model


class Parts:
    """What can be run, and which servers take part."""

    def __init__(self, session: Session, peers: Path, model: Path, gguf: Path, rounds: int, skip: Collection[str]) -> None:
        self._session, self._rounds, self._model = session, rounds, model
        self._vllm = vllm(peers / "vllm", model, _PORTS["vLLM"])
        self._llama = [] if LLAMA in skip else [llama_cpp(peers / "llamacpp", gguf, _PORTS[LLAMA])]
        kinds = (("int8", INT8, "int8"), ("bf16", BF16, "none"))
        self._ours = [self._headrace(name, "--quantization", how) for kind, name, how in kinds if kind not in skip]

    def beside_peers(self, loads: Sequence[Load]) -> None:
        """Every load on every server, in turns. llama.cpp is here for one user only."""
        llama = self._llama if any(load.name == ONE for load in loads) else []
        servers = [self._session.start(recipe) for recipe in (self._vllm, *llama, *self._ours)]
        for number in range(self._rounds):
            print(f"round {number + 1} of {self._rounds}", flush=True)
            for load in loads:
                self._session.round([s for s in servers if s.recipe.name != LLAMA or load.name == ONE], load, number)
        for server in servers:
            server.stop()

    def start_and_memory(self, *, again: bool) -> None:
        """A start with warm caches, the load of many users, and memory after it; each server alone on the machine.

        Without `again` a start before it fills the caches.
        """
        load = replace(next(load for load in LOADS if load.name == MANY), prompts=32)
        for recipe in (self._vllm, *self._ours):
            if not again:
                self._session.start(recipe).stop()
            server = self._session.start(recipe)
            self._session.note(START, "seconds", server, server.first_answer_s)
            self._session.run(server, load)
            self._session.weigh(server, load.tokens + load.own + load.output)  # one request of the same size was to warm up
            server.stop()

    def radix_on_and_off(self, rounds: int) -> None:
        """What the prefix cache gives the same server. A round takes minutes: without a cache it computes 139,264 tokens."""
        recipes = (self._headrace(RADIX), self._headrace(NO_RADIX, "--disable-radix-cache"))
        on, off = (self._session.start(recipe) for recipe in recipes)
        for number in range(rounds):
            self._session.round([on, off], LONG_PREFIX, number)
        on.stop()
        off.stop()

    def _headrace(self, name: str, *flags: str) -> Recipe:
        return headrace(name, self._model, _PORTS[name], *flags, pool_tokens=_POOL_TOKENS, token_bytes=_TOKEN_BYTES)
