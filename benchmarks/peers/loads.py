"""The traffic of the comparison, apart from who sends it."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.targets import EIGHT, LONG, MANY, ONE, SHARED


@dataclass(frozen=True, slots=True)
class Load:
    """`groups` of prompts begin with `shared` equal tokens and go on with `own`; without groups all are different."""

    name: str
    users: int
    prompts: int
    own: int = 512
    output: int = 128
    groups: int = 0
    shared: int = 0

    @property
    def tokens(self) -> int:
        """Prompts and answers of all requests, shared parts counted each time."""
        return self.prompts * (self.shared + self.own + self.output)


LOADS = (
    Load(ONE, users=1, prompts=4),
    Load(EIGHT, users=8, prompts=24),
    Load(MANY, users=32, prompts=64),
    Load(SHARED, users=16, prompts=64, own=64, output=32, groups=4, shared=1024),
)
LONG_PREFIX = Load(LONG, users=16, prompts=64, own=128, output=32, groups=4, shared=2048)
