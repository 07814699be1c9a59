"""h2's client end as the links need it: windows for large answers, and calls that outlive a GOAWAY."""

from __future__ import annotations

from h2.config import H2Configuration
from h2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine
from h2.events import Event
from h2.settings import SettingCodes, Settings

from gateway.clients.http2.headers import LiteralEncoder, RememberingDecoder

WINDOW = 16 << 20
LARGEST_FRAME = 1 << 20
_LARGEST_HEADERS = 64 << 10

# Headers that come and go are those of our own services, or of a proxy before them.
_CONFIG = H2Configuration(
    client_side=True,
    header_encoding="utf-8",
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
    validate_inbound_headers=False,
    normalize_inbound_headers=False,
)


class Protocol(H2Connection):
    """One connection's protocol state; begun as soon as it is made.

    h2 takes a GOAWAY for the connection's end (its issue 1181). RFC 9113, 6.8, lets the calls the peer has seen go on, and a
    gRPC server that drains relies on it.
    """

    def __init__(self) -> None:
        super().__init__(_CONFIG)
        self.state_machine = _Lingering()
        self.encoder, self.decoder = LiteralEncoder(), RememberingDecoder()
        self.decoder.max_header_list_size = self.DEFAULT_MAX_HEADER_LIST_SIZE
        wanted = {
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
            SettingCodes.MAX_FRAME_SIZE: LARGEST_FRAME,
            SettingCodes.MAX_HEADER_LIST_SIZE: _LARGEST_HEADERS,
        }
        self.local_settings = Settings(client=True, initial_values=wanted)
        self.max_inbound_frame_size = LARGEST_FRAME
        self.initiate_connection()
        self.increment_flow_control_window(WINDOW - self.inbound_flow_control_window)

    def room(self, stream: int) -> int:
        """The bytes of a stream that may leave now in one frame; not positive where flow control allows none."""
        found = self.streams.get(stream)
        if found is None or found.closed:
            return 0
        return min(self.outbound_flow_control_window, found.outbound_flow_control_window, self.max_outbound_frame_size)

    def spent(self, stream: int, size: int) -> None:
        """So many bytes of a stream that has `room` for them leave in a frame that was not made here."""
        self.outbound_flow_control_window -= size
        self.streams[stream].outbound_flow_control_window -= size

    def clear_outbound_data_buffer(self) -> None:
        """What waits when a GOAWAY arrives still leaves."""


class _Lingering(H2ConnectionStateMachine):
    """A GOAWAY changes nothing; `Connection` begins no calls after it."""

    def process_input(self, input_: ConnectionInputs) -> list[Event]:
        return [] if input_ is ConnectionInputs.RECV_GOAWAY else super().process_input(input_)
