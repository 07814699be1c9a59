"""h2 for a connection as a whole: its settings, pings, windows and farewells. What belongs to a stream is `Connection`'s."""

from __future__ import annotations

from h2.config import H2Configuration
from h2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine
from h2.events import Event
from h2.settings import SettingCodes, Settings

from gateway.clients.http2.frames import LARGEST_FRAME

WINDOW = 16 << 20
LARGEST_HEADERS = 64 << 10


class Protocol(H2Connection):
    """One connection's protocol state; begun as soon as it is made.

    h2 takes a GOAWAY for the connection's end (its issue 1181). RFC 9113, 6.8, lets the calls the peer has seen go on, and a
    gRPC server that drains relies on it.
    """

    def __init__(self) -> None:
        super().__init__(H2Configuration(client_side=True))
        self.state_machine = _Lingering()
        wanted = {
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
            SettingCodes.MAX_FRAME_SIZE: LARGEST_FRAME,
            SettingCodes.MAX_HEADER_LIST_SIZE: LARGEST_HEADERS,
        }
        self.local_settings = Settings(client=True, initial_values=wanted)
        self.max_inbound_frame_size = LARGEST_FRAME
        self.initiate_connection()
        self.increment_flow_control_window(WINDOW - self.inbound_flow_control_window)

    def clear_outbound_data_buffer(self) -> None:
        """What waits when a GOAWAY arrives still leaves."""


class _Lingering(H2ConnectionStateMachine):
    """A GOAWAY changes nothing; `Connection` begins no calls after it."""

    def process_input(self, input_: ConnectionInputs) -> list[Event]:
        return [] if input_ is ConnectionInputs.RECV_GOAWAY else super().process_input(input_)
