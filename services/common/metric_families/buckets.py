"""Bucket bounds that are fine enough for a GPU and reach far enough for a laptop. Upper bounds, +Inf is implied."""

from __future__ import annotations

# Seconds to a first token: 5 ms (small model, cached prompt) to 5 minutes (long prompt on two cores).
FIRST_TOKEN = (
    0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0,
    15.0, 20.0, 30.0, 60.0, 120.0, 300.0,
)  # fmt: skip
# Seconds between tokens: 1 ms to 10 s.
TOKEN_GAP = (
    0.001, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05, 0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.5,
    0.75, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip
# Seconds of a whole request: 50 ms to an hour.
REQUEST = (
    0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0,
    180.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0,
)  # fmt: skip
# Seconds of waiting: 1 ms to 10 minutes.
QUEUE = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0,
)  # fmt: skip
# Seconds of a small piece of work, such as encoding a text or one call: 0.1 ms to 30 s.
WORK = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
# Tokens of a prompt or an answer.
TOKENS = (
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0, 32768.0, 65536.0, 131072.0,
    262144.0,
)  # fmt: skip
# Rows of a batch.
ROWS = (1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0, 192.0, 256.0, 384.0, 512.0)
