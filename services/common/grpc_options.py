"""Message sizes and keepalive, chosen once and used by both ends of every link.

Sizes: Session frames stay under 256 KiB by contract; unary calls may carry a batch of long texts, hence 64 MiB.
Keepalive: the client pings an idle link every 30 s and gives up after 10 s, so a silently dead peer is noticed within
40 s; the server accepts pings every 10 s at any time, calls open or not, so no client of ours is ever told to go away.
Names: a name that has moved (a pod that was replaced) is looked up again within a second of the broken link.
"""

from __future__ import annotations

MAX_FRAME_BYTES = 256 * 1024
MAX_MESSAGE_BYTES = 64 * 1024 * 1024

_SIZES: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *_SIZES,
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
)

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *_SIZES,
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
