"""What the scheduler writes to the log, as values whose `str` is the line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PrefillLine:
    """One prefill step."""

    new_seq: int
    new_token: int
    cached_token: int
    token_usage: float
    running: int
    queue: int
    pending_token: int
    cuda_graph: bool
    input_throughput: float  # tokens per second since the last prefill line

    def __str__(self) -> str:
        return (
            f"Prefill batch, #new-seq: {self.new_seq}, #new-token: {self.new_token}, #cached-token: {self.cached_token}, "
            f"token usage: {self.token_usage:.2f}, #running-req: {self.running}, #queue-req: {self.queue}, "
            f"#pending-token: {self.pending_token}, cuda graph: {self.cuda_graph}, "
            f"input throughput (token/s): {self.input_throughput:.2f}"
        )


@dataclass(frozen=True, slots=True)
class DecodeLine:
    """The state after `decode_log_interval` decode steps."""

    running: int
    token: int
    token_usage: float
    cuda_graph: bool
    gen_throughput: float
    queue: int

    def __str__(self) -> str:
        return (
            f"Decode batch, #running-req: {self.running}, #token: {self.token}, token usage: {self.token_usage:.2f}, "
            f"cuda graph: {self.cuda_graph}, gen throughput (token/s): {self.gen_throughput:.2f}, #queue-req: {self.queue}"
        )


@dataclass(frozen=True, slots=True)
class RetractLine:
    """Running choices were sent back to the queue."""

    retracted: int
    aborted: int
    old_ratio: float
    new_ratio: float

    def __str__(self) -> str:
        return (
            f"KV cache pool is full. Retract requests. #retracted_reqs: {self.retracted}, #aborted_retracted_reqs: {self.aborted}, "
            f"#new_token_ratio: {self.old_ratio:.4f} -> {self.new_ratio:.4f}"
        )


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """A forward pass did not fit into device memory."""

    what: str
    old_bound: int
    new_bound: int

    def __str__(self) -> str:
        return f"Out of device memory in a forward pass; {self.what} shrinks from {self.old_bound} to {self.new_bound}."


@dataclass(frozen=True, slots=True)
class CacheLine:
    """Which prefix cache a worker has. `groups` names the kinds of state it keeps per token."""

    source: str  # where the choice came from: default, user, config
    impl: str
    policy: str
    groups: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"Tree cache initialized: source={self.source} impl={self.impl} hybrid_swa={'window' in self.groups} "
            f"hybrid_ssm={'recurrent' in self.groups} hicache_attached=False core=python policy={self.policy}"
        )


@dataclass(frozen=True, slots=True)
class GrowLine:
    """Steps have fitted into device memory for a while."""

    what: str
    old_bound: int
    new_bound: int

    def __str__(self) -> str:
        return f"Steps fit into device memory again; {self.what} grows from {self.old_bound} to {self.new_bound}."


LogLine = PrefillLine | DecodeLine | RetractLine | MemoryLine | GrowLine
