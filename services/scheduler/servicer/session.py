"""One Session: takes frames apart, puts frames together. Knows nothing of how they travel."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from protos.scheduler.v1 import scheduler_pb2 as pb
from services.common.errors import HeadraceError, Internal, InvalidRequest, Unavailable
from services.common.instruments import Counter
from services.common.version import PROTOCOL
from services.scheduler.convert.frames import error_final, frames
from services.scheduler.convert.submit import SubmitConverter, prompt_tokens
from services.scheduler.core.messages import TurnOutput
from services.scheduler.delivery import Update
from services.scheduler.hub import HANDLE_BITS, Hub
from services.scheduler.outbox import Outbox

log = logging.getLogger(__name__)

PULSE_S = 0.25  # with work pending something is said at least this often
_LOAD_EVERY_S = 0.2


@dataclass(slots=True)
class _Partial:
    """A submit whose prompt is still arriving."""

    submit: pb.Submit
    ids: npt.NDArray[np.int64]
    filled: int


@dataclass(frozen=True, slots=True)
class SessionDeps:
    """What every Session of a worker shares."""

    hub: Hub
    converter: SubmitConverter
    welcome: pb.Welcome
    load: Callable[[], pb.Load]
    turn_age_s: Callable[[], float]
    merged_frames: Counter


class Session:
    """Between frames of the contract and the hub. `receive` never blocks; `due` waits until there is something to say."""

    def __init__(self, deps: SessionDeps, *, greet: bool = True) -> None:
        self._deps = deps
        self._number = deps.hub.open(self)
        self._outbox = Outbox()
        self._notices: list[pb.FromWorker] = []
        self._refusals: list[pb.Final] = []
        self._partial: dict[int, _Partial] = {}
        self._settling: dict[int, asyncio.Task[None]] = {}
        self._tempered: dict[int, bool] = {}
        self._live: set[int] = set()
        self._greeted = not greet
        self._wake = asyncio.Event()
        self._seq = 0
        self._last_sent = time.monotonic()
        self._last_load = 0.0
        self._merged = 0
        self._closed = self._broken = False
        self._timer = asyncio.get_running_loop().call_later(PULSE_S, self._pulse)

    @property
    def has_work(self) -> bool:
        """Whether something of this Session is unfinished or unsaid."""
        return bool(self._live or self._partial or self._outbox or self._refusals or self._notices)

    # ------------------------------------------------------------------ from the peer

    def receive(self, frame: pb.ToWorker) -> None:
        """Take one frame. Raises InvalidRequest where the peer breaks the protocol; wrong requests get a final instead."""
        if not self._greeted:
            self._greet(frame)
        for submit in frame.submit:
            self._begin(submit)
        for part in frame.prompt:
            self._add_part(part)
        for cancel in frame.cancel:
            self._cancel(cancel)
        for update in frame.update:
            self._update(update)
        if self._refusals:
            self._wake.set()

    def _greet(self, frame: pb.ToWorker) -> None:
        if not frame.HasField("hello"):
            raise InvalidRequest("a Session begins with hello", field="hello")
        if frame.hello.protocol != PROTOCOL:
            raise InvalidRequest(f"protocol {frame.hello.protocol} is not spoken here, {PROTOCOL} is", field="hello.protocol")
        self._greeted = True
        self._notices.append(pb.FromWorker(welcome=self._deps.welcome, load=self._deps.load()))
        self._wake.set()

    def _begin(self, submit: pb.Submit) -> None:
        base, count = submit.handle_base, len(submit.choices)
        if base + count > 1 << HANDLE_BITS or any(self._is_taken(handle) for handle in range(base, base + count)):
            raise InvalidRequest(f"handle {base} is in use or out of range", field="submit.handle_base")
        try:
            self._deps.converter.check_early(submit)
        except HeadraceError as error:
            self._refuse(submit, error)
            return
        partial = _Partial(submit, np.empty(prompt_tokens(submit), np.int64), 0)
        self._partial[base] = partial
        self._fill(base, partial, 0, submit.prompt.token_ids)

    def _is_taken(self, handle: int) -> bool:
        arriving = (range(base, base + len(partial.submit.choices)) for base, partial in self._partial.items())
        return handle in self._live or any(handle in handles for handles in arriving)

    def _add_part(self, part: pb.PromptPart) -> None:
        partial = self._partial.get(part.handle_base)
        if partial is not None:  # else refused or cancelled while parts were under way
            self._fill(part.handle_base, partial, part.offset, part.token_ids)

    def _fill(self, base: int, partial: _Partial, offset: int, ids: object) -> None:
        values = np.array(ids, np.int64)
        end = offset + values.size
        if offset != partial.filled or end > partial.ids.size:
            del self._partial[base]
            wrong = InvalidRequest(
                f"prompt part at {offset}, {partial.filled} of {partial.ids.size} tokens are here", field="prompt.offset"
            )
            self._refuse(partial.submit, wrong)
            return
        partial.ids[offset:end] = values
        partial.filled = end
        if end == partial.ids.size and partial.submit.HasField("constraint"):
            self._settling[base] = asyncio.create_task(self._settle(base, partial))
        elif end == partial.ids.size:
            del self._partial[base]
            self._submit(partial)

    async def _settle(self, base: int, partial: _Partial) -> None:
        """Submit once the constraint is known not to be wrong at first sight, unless cancelled meanwhile."""
        try:
            await self._deps.converter.settle(partial.submit)
        except Exception as error:
            if not isinstance(error, HeadraceError):
                log.exception("a constraint could not be checked", extra={"request_id": partial.submit.request_id})
            if self._partial.pop(base, None) is not None:
                self._refuse(partial.submit, error if isinstance(error, HeadraceError) else Internal("the constraint could not be checked"))
            return
        finally:
            del self._settling[base]
        if self._partial.pop(base, None) is not None:
            self._submit(partial)
            self._wake.set()

    def _submit(self, partial: _Partial) -> None:
        submit = partial.submit
        base = self._global(submit.handle_base)
        try:
            request = self._deps.converter.convert(submit, partial.ids, base, time.monotonic_ns())
        except HeadraceError as error:
            self._refuse(submit, error)
            return
        log.debug("submitted", extra={"request_id": submit.request_id, "prompt_tokens": partial.filled, "choices": len(request.choices)})
        for choice in request.choices:
            self._live.add(choice.handle & ((1 << HANDLE_BITS) - 1))
            if request.sampling.scaled_logprobs:
                self._tempered[choice.handle] = True
        self._deps.hub.submit(request)

    def _cancel(self, cancel: pb.Cancel) -> None:
        for base, partial in list(self._partial.items()):
            if base <= cancel.handle < base + len(partial.submit.choices):
                del self._partial[base]
                finals = (pb.Final(handle=base + i, reason=pb.FINISH_REASON_ABORT) for i in range(len(partial.submit.choices)))
                self._refusals.extend(finals)
        self._deps.hub.cancel(self._global(cancel.handle), int(cancel.cause))

    def _update(self, update: pb.Update) -> None:
        deadline = time.monotonic_ns() + update.deadline_ms * 1_000_000 if update.HasField("deadline_ms") else None
        priority = update.priority if update.HasField("priority") else None
        self._deps.hub.update(Update(self._global(update.handle), priority, deadline))

    def _refuse(self, submit: pb.Submit, error: HeadraceError) -> None:
        log.debug("refused", extra={"request_id": submit.request_id, "field": error.field, "reason": error.message})
        count = max(1, len(submit.choices))
        self._refusals.extend(error_final(submit.handle_base + index, error) for index in range(count))
        self._wake.set()

    def _global(self, handle: int) -> int:
        return self._number << HANDLE_BITS | handle

    # ------------------------------------------------------------------ from the hub

    def deliver(self, output: TurnOutput) -> None:
        self._outbox.add(output)
        for final in output.finals:
            self._live.discard(final.handle & ((1 << HANDLE_BITS) - 1))
        self._wake.set()

    def notify_draining(self, remaining_ms: int) -> None:
        self._notices.append(pb.FromWorker(notice=pb.Notice(draining=pb.Draining(remaining_ms=remaining_ms))))
        self._wake.set()

    # ------------------------------------------------------------------ to the peer

    async def due(self) -> list[pb.FromWorker]:
        """Wait until something is to be said, and return it. Empty once the Session is closed."""
        while not self._closed:
            await self._wake.wait()
            self._wake.clear()
            if self._broken:
                raise Unavailable("the engine of this worker has failed", code="engine_failed")
            found = self._collect()
            if found:
                return found
        return []

    def _collect(self) -> list[pb.FromWorker]:
        found, self._notices = self._notices, []
        output = self._outbox.take()
        if output is not None:
            found += frames(output, self._tempered)
            for final in output.finals:
                self._tempered.pop(final.handle, None)
        if self._refusals:
            found.append(pb.FromWorker(final=self._refusals))
            self._refusals = []
        self._count_merged()
        now = time.monotonic()
        if found:
            self._last_sent = now
            if now - self._last_load >= _LOAD_EVERY_S:
                self._last_load = now
                found[-1].load.CopyFrom(self._deps.load())
            for frame in found:
                self._seq += 1
                frame.seq = self._seq
        return found

    def _count_merged(self) -> None:
        merged = self._outbox.merged_steps
        if merged != self._merged:
            self._deps.merged_frames.inc(merged - self._merged)
            self._merged = merged

    def _pulse(self) -> None:
        """Say something if work is pending and nothing was said for a while."""
        self._timer = asyncio.get_running_loop().call_later(PULSE_S, self._pulse)
        if self._live and time.monotonic() - self._last_sent >= PULSE_S and not self._notices:
            age = int(self._deps.turn_age_s() * 1000)
            self._notices.append(pb.FromWorker(notice=pb.Notice(heartbeat=pb.Heartbeat(last_turn_age_ms=age)), load=self._deps.load()))
            self._wake.set()

    def break_off(self) -> None:
        self._broken = True
        self._wake.set()

    def close(self, cause: int) -> None:
        """End: whatever still runs is cancelled."""
        if not self._closed:
            self._closed = True
            self._timer.cancel()
            for task in self._settling.values():
                task.cancel()
            self._deps.hub.close(self._number, cause)
            self._wake.set()
