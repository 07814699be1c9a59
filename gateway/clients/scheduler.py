"""The Session to one worker: submits out, tokens in, one message per engine step."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from gateway.clients import scheduler_convert as convert
from gateway.clients.gaps import Gaps
from gateway.clients.link import SessionLink
from gateway.clients.logprobs import add_output_logprobs, add_prompt_logprobs
from gateway.clients.token_column import TokenColumn
from gateway.flight.choice import Choice
from gateway.flight.flight import Flight, Interruption
from gateway.flight.result import Finish, Reason
from gateway.workers.worker import LoadReport, ModelIdentity, WorkerInfo
from protos.scheduler.v1 import scheduler_pb2 as pb
from services.common.channel import open_channel
from services.common.errors import Cancelled, Internal, Unavailable
from services.common.instruments import Counter, Histogram
from services.common.server_config import ServerConfig
from services.common.version import PROTOCOL

log = logging.getLogger(__name__)

_PATH = "/headrace.scheduler.v1.Scheduler/Session"


class TextStage(Protocol):
    """Where tokens become text."""

    def open(self, choice: Choice) -> None: ...
    def tokens(self, choice: Choice, first: int, ids: list[int]) -> None: ...
    def end(self, choice: Choice) -> None: ...
    def flush(self) -> None: ...


class WorkerSession(SessionLink):
    """Requests in flight on one worker, by handle. `on_change` hears of connects, losses and drains; `channel` is for control calls."""

    def __init__(
        self, address: str, text: TextStage, *, client_id: str, trust: ServerConfig | None, on_change: Callable[[WorkerSession], None]
    ) -> None:
        super().__init__(address, trust, path=_PATH, parse=pb.FromWorker.FromString)
        self.channel = open_channel(address, trust)
        self.welcome: pb.Welcome | None = None
        self.draining = False
        self.incompatible = False
        self._text = text
        self._client_id = client_id
        self._on_change = on_change
        self._rows: dict[int, Choice] = {}
        self._next_handle = 1
        self._frames: list[pb.ToWorker] = []
        self._cancels: list[pb.Cancel] = []
        self._last_turn_age_s = 0.0
        self.load: LoadReport | None = None
        self.gaps: Histogram | None = None
        self.tokens: Counter | None = None
        self._stalled = self._was_up = False
        self.lost_at: float | None = None

    @property
    def identity(self) -> ModelIdentity:
        """What the worker serves. Only while connected."""
        assert self.welcome is not None
        w = self.welcome
        return ModelIdentity(w.model, w.model_digest, w.tokenizer_digest, w.weight_version)

    @property
    def info(self) -> WorkerInfo:
        """What the registry keeps of the worker. Only while connected."""
        assert self.welcome is not None
        w = self.welcome
        return WorkerInfo(
            self.identity, w.boot_id, w.block_size or 16, w.context_tokens, w.pool_tokens, w.vocab_size, w.batch_invariant, w.quantization
        )

    @property
    def in_flight(self) -> int:
        """Choices running there."""
        return len(self._rows)

    @property
    def choices(self) -> list[Choice]:
        """Those that run there now."""
        return list(self._rows.values())

    async def close(self) -> None:
        """See SessionLink; control calls end too."""
        await super().close()
        await self.channel.close(None)

    def submit(self, flight: Flight) -> None:
        """Send the request's unfinished choices. Raises Unavailable where there is no Session."""
        if not self.connected:
            why = self.last_error or "connecting"
            raise Unavailable(f"worker {self.address} is not connected: {why}", code="not_connected")
        if not self._rows:
            self.last_frame_at = time.monotonic()  # an idle worker owes no word: its silence begins now
        choices = flight.running()
        base = self._next_handle
        self._next_handle += len(choices)
        for offset, choice in enumerate(choices):
            choice.worker_handle = base + offset
            choice.accepted = choice.started = False
            choice.awaiting = True
            self._rows[choice.worker_handle] = choice
        waited = int((time.monotonic() - flight.created) * 1000)
        self._frames.extend(convert.submit_frames(flight, choices, base, waited))
        self.wake()

    def cancel(self, flight: Flight, cause: str) -> None:
        """Ask for the end of what still runs of a request; its finals follow. `cause` names a CancelCause."""
        self._cancel([c for c in flight.choices if self._rows.get(c.worker_handle) is c], cause)

    def drop(self, flight: Flight, cause: str) -> None:
        """Cancel and hear no more of it."""
        mine = [c for c in flight.choices if self._rows.get(c.worker_handle) is c]
        self._cancel(mine, cause)
        for choice in mine:
            del self._rows[choice.worker_handle]

    def end_choice(self, choice: Choice) -> None:
        """The door has enough of this choice; its final follows."""
        if self._rows.get(choice.worker_handle) is choice:
            self._cancel([choice], "SATISFIED")

    def _cancel(self, choices: list[Choice], cause: str) -> None:
        name = f"CANCEL_CAUSE_{cause}"
        self._cancels.extend(pb.Cancel(handle=c.worker_handle, cause=name, by=self._client_id) for c in choices)
        if choices:
            self.wake()

    def silent_s(self) -> float:
        """Seconds since the worker said anything, 0 if it owes nothing: with requests it should speak twice a second."""
        return time.monotonic() - self.last_frame_at if self._rows and self.connected else 0.0

    def check_pulse(self, silence_limit_s: float) -> None:
        """Give the Session up if the worker owes us tokens and says nothing, or its engine has not turned, for too long."""
        if not self._rows or not self.connected:
            return
        silent = time.monotonic() - self.last_frame_at
        if max(silent, self._last_turn_age_s) > silence_limit_s:
            self._stalled = True
            self.cut(f"worker stalled: silent for {silent:.1f} s, last turn {self._last_turn_age_s:.1f} s ago")

    def _hello(self) -> pb.ToWorker:
        return pb.ToWorker(hello=pb.Hello(protocol=PROTOCOL, client_id=self._client_id, instance=self._client_id))

    def _welcomed(self, frame: pb.FromWorker) -> None:
        if not frame.HasField("welcome"):
            raise Internal(f"worker {self.address} spoke before its welcome")
        self.incompatible = frame.welcome.protocol != PROTOCOL
        if self.incompatible:
            raise Internal(f"worker {self.address} speaks protocol {frame.welcome.protocol}, this gateway {PROTOCOL}")
        self.welcome = frame.welcome
        self.draining = False
        self._was_up = self.connected = True
        self._last_turn_age_s = 0.0
        self._on_change(self)

    def _due(self) -> Iterator[pb.ToWorker]:
        frames, self._frames = self._frames, []
        cancels, self._cancels = self._cancels, []
        yield from frames
        if cancels:
            yield pb.ToWorker(cancel=cancels)

    def _lost(self, message: str) -> None:
        rows, self._rows = self._rows, {}
        self._frames.clear()
        self._cancels.clear()
        code = "draining" if self.draining else "stalled" if self._stalled else "connection_lost"
        self._stalled = False
        if rows or self._was_up:
            self.lost_at = time.monotonic()
        self._was_up = False
        for flight in {id(c.flight): c.flight for c in rows.values()}.values():
            flight.interrupt(Interruption(f"worker {self.address} was lost: {message}", code))
        self._on_change(self)

    def _received(self, frame: pb.FromWorker) -> None:
        for accepted in frame.accepted:
            choice = self._rows.get(accepted.handle)
            if choice is not None:
                choice.accepted = True
                self._text.open(choice)
                if choice.flight.spec.constraint is None:
                    choice.flight.mark_accepted()
        for started in frame.started:
            self._on_started(started)
        for part in frame.prompt_logprobs:
            choice = self._rows.get(part.handle)
            if choice is not None and choice.index == 0:
                add_prompt_logprobs(choice.flight, part)
        if frame.HasField("step"):
            for final in frame.final:
                self._trim(final)
            self._on_step(frame.step)
        for final in frame.final:
            self._on_final(final)
        if frame.HasField("load"):
            self._last_turn_age_s = frame.load.last_turn_age_ms / 1000
            self.load = convert.load(frame.load)
            self._on_change(self)
        if frame.HasField("notice"):
            self._on_notice(frame.notice)
        self._text.flush()

    def _on_started(self, started: pb.Started) -> None:
        choice = self._rows.get(started.handle)
        if choice is None:
            return
        choice.started = True
        choice.flight.mark_accepted()
        choice.queue_s = started.queue_ns / 1e9
        if choice.cached is None:
            choice.cached = convert.cached(started.cached)
        lease = choice.flight.lease
        if lease is not None and choice.index == 0:
            lease.started(started.prompt_tokens, convert.cached(started.cached).total)

    def _trim(self, final: pb.Final) -> None:
        """The stop token a choice ends with comes in this frame: it is no text."""
        choice = self._rows.get(final.handle)
        if choice is not None and final.WhichOneof("matched") == "token_id" and not choice.flight.spec.stops.keep_stop:
            choice.trimmed = int(final.end_position > len(choice.output_ids))

    def _on_step(self, step: pb.Step) -> None:
        """The hot path. Slices make lists of the columns at once, where an iterator would convert cell by cell."""
        rows, now, end = self._rows, time.monotonic(), 0
        ids = step.token_ids[:]
        gaps = Gaps(self.gaps, now)
        column, before, alike = TokenColumn(), now, 0
        handles, positions, tokens = column.handles, column.positions, column.tokens
        for handle, first, count in zip(step.handle[:], step.first_position[:], step.count[:], strict=True):
            end += count
            choice = rows.get(handle)
            if choice is None:
                continue
            out, sink = choice.output_ids, choice.sink
            if count == 1 and first == len(out) and sink is not None and not choice.awaiting and not choice.trimmed:
                token = ids[end - 1]
                out.append(token)
                if sink is not column.sink:
                    column.turn_to(sink)
                handles.append(choice.text_handle)
                positions.append(first)
                tokens.append(token)
                if choice.last_token_at != before:
                    gaps.add_alike(before, alike)
                    before, alike = choice.last_token_at, 0
                alike += 1
                choice.last_token_at = now
            elif count:
                column.turn_to(None)
                self._on_row(choice, first, ids[end - count : end], gaps)
        column.turn_to(None)
        gaps.add_alike(before, alike)
        gaps.flush()
        if self.tokens is not None:
            self.tokens.inc(end)
        if step.HasField("logprobs"):
            add_output_logprobs(step, rows)

    def _on_row(self, choice: Choice, first: int, ids: list[int], gaps: Gaps) -> None:
        """Any row: the first of a choice, several tokens, some of them known already, or a stop token that is no text."""
        out = choice.output_ids
        known = len(out)
        if first > known:
            choice.flight.interrupt(Interruption(f"worker {self.address} skipped tokens {known}..{first}"))
            return
        new = ids[known - first :]
        if not new:
            return
        if choice.awaiting:
            self._first_token(choice, gaps.now)
        else:
            gaps.add(choice.last_token_at, len(new))
        choice.last_token_at = gaps.now
        out.extend(new)
        self._text.tokens(choice, known, new[: len(new) - choice.trimmed] if choice.trimmed else new)

    def _first_token(self, choice: Choice, now: float) -> None:
        choice.started, choice.awaiting = True, False
        choice.first_token_at = choice.first_token_at or now
        flight = choice.flight
        flight.mark_begun(now)
        if flight.lease is not None:
            flight.lease.first_token()
        if flight.on_first_token is not None:
            flight.on_first_token()
            flight.on_first_token = None

    def _on_final(self, final: pb.Final) -> None:
        choice = self._rows.pop(final.handle, None)
        if choice is None:
            return
        try:
            self._end(choice, final)
        except Exception as error:
            log.exception("a final failed", extra={"request_id": choice.flight.spec.request_id})
            choice.flight.fail(Internal(f"{type(error).__name__} while ending the answer"))

    def _end(self, choice: Choice, final: pb.Final) -> None:
        flight = choice.flight
        finish = convert.finish(final, flight.spec)
        if choice.satisfied and finish.reason is Reason.ABORT:
            finish = replace(finish, reason=Reason.STOP)
        choice.retractions = finish.retractions
        problem = self._problem(choice, finish)
        if problem is not None:
            flight.interrupt(problem)
            return
        choice.finish = finish
        flight.mark_accepted()
        self._text.end(choice)

    def _problem(self, choice: Choice, finish: Finish) -> Interruption | None:
        """Why a final is not the choice's end, if it is not. Somebody's cancel is one: an abort may come through another gateway."""
        if finish.reason is Reason.INTERRUPTED:
            return Interruption(f"worker {self.address} gave the request up: {finish.message}")
        was_asked = choice.satisfied or choice.flight.abort_requested or isinstance(finish.error, Cancelled)
        if finish.reason is Reason.ABORT and finish.error is not None and not was_asked:
            return Interruption(finish.error.message, error=finish.error)
        if finish.reason is Reason.ERROR:
            error = finish.error or Internal("the worker failed without saying why")
            return Interruption(error.message, error=error)
        if finish.completion_tokens != len(choice.output_ids):
            said, have = finish.completion_tokens, len(choice.output_ids)
            return Interruption(f"worker {self.address} ended at token {said}, {have} have arrived")
        return None

    def _on_notice(self, notice: pb.Notice) -> None:
        kind = notice.WhichOneof("kind")
        if kind == "draining":
            self.draining = True
            self._on_change(self)
        elif kind == "heartbeat":
            self._last_turn_age_s = notice.heartbeat.last_turn_age_ms / 1000
        elif kind == "weights_changed" and self.welcome is not None:
            self.welcome.weight_version = notice.weights_changed.weight_version
            self._on_change(self)
