"""For every alert: series that must make it fire, and healthy ones that must not. Promtool's notation, one value a minute."""

from __future__ import annotations

from dataclasses import dataclass

Series = dict[str, str]
_M = 'namespace="n",model_name="m"'
_W = f'{_M},instance="w1",job="headrace"'
_G = 'namespace="n",instance="g1",job="headrace"'


@dataclass(frozen=True, slots=True)
class Case:
    """`minutes`: when to look. `bad` fires the alert once, `good` does not."""

    bad: Series
    good: Series
    minutes: int = 30


def _histogram(name: str, labels: str, below: str, above: str, slow: bool) -> Series:
    """Ten observations a minute, all below the first bound or all above it and below the second."""
    fast = "0+0x60" if slow else "0+10x60"
    return {
        f'{name}_bucket{{{labels},le="{below}"}}': fast,
        f'{name}_bucket{{{labels},le="{above}"}}': "0+10x60",
        f'{name}_bucket{{{labels},le="+Inf"}}': "0+10x60",
    }


def _latency(name: str, labels: str, below: str, above: str) -> Case:
    return Case(_histogram(name, labels, below, above, True), _histogram(name, labels, below, above, False))


def _state(series: str, bad: float, good: float, minutes: int = 30) -> Case:
    return Case({series: f"{bad}x90"}, {series: f"{good}x90"}, minutes)


def _count(series: str, per_minute: float, minutes: int = 30) -> Case:
    return Case({series: f"0+{per_minute}x90"}, {series: "7x90"}, minutes)


def _outcomes(bad: str) -> Case:
    total = f'headrace_requests_total{{{_M},door="chat",outcome="ok"}}'
    failed = f'headrace_requests_total{{{_M},door="chat",outcome="{bad}"}}'
    return Case({total: "0+90x60", failed: "0+10x60"}, {total: "0+990x60", failed: "0+1x60"})


_COMPUTED = f'headrace_worker_prefill_tokens_total{{{_W},source="computed"}}'
_HIT = f'headrace_worker_prefill_tokens_total{{{_W},source="device_hit"}}'
_PREDICTED = f"headrace_routing_predicted_cached_tokens_total{{{_G}}}"
_FOUND = f"headrace_routing_found_cached_tokens_total{{{_G}}}"

_AGE = f'headrace_cache_event_age_seconds{{{_G},worker="w1"}}'
_ROUTED = f'headrace_routed_requests_total{{{_G},worker="w1"}}'

CASES: dict[str, Case] = {
    "HeadraceTimeToFirstTokenHigh": _latency("headrace_time_to_first_token_seconds", _M, "1.0", "60.0"),
    "HeadraceInterTokenLatencyHigh": _latency("headrace_inter_token_latency_seconds", _M, "0.1", "5.0"),
    "HeadraceQueueTimeHigh": _latency("headrace_worker_queue_time_seconds", _M, "1.0", "60.0"),
    "HeadraceRequestsWaiting": Case(
        {f"headrace_worker_waiting_requests{{{_W}}}": "3x60"}, {f"headrace_worker_waiting_requests{{{_W}}}": "3 9 0 3 9 0 3 9 0 3x1 0x60"}
    ),
    "HeadraceKvPoolFull": _state(f"headrace_worker_kv_usage_ratio{{{_W}}}", 0.99, 0.9),
    "HeadraceRetractions": _count(f"headrace_worker_retractions_total{{{_W}}}", 2),
    "HeadraceCacheHitRateFell": Case(
        {_HIT: "0+800x300 240000+10x200", _COMPUTED: "0+200x300 60000+990x200"},
        {_HIT: "0+800x500", _COMPUTED: "0+200x500"},
        360,
    ),
    "HeadraceNoReadyWorker": _state('headrace_workers{namespace="n",instance="g1",model_name="m",state="ready"}', 0, 1),
    "HeadraceTargetDown": _state('up{job="headrace-worker",instance="w1"}', 0, 1),
    "HeadraceFailedRequests": _outcomes("internal"),
    "HeadraceOverloaded": _outcomes("overloaded"),
    "HeadraceResumesFailed": _count(f'headrace_resumes_total{{{_G},outcome="failed"}}', 1),
    "HeadraceBreakerOpen": _state(f'headrace_breaker_state{{{_G},worker="w1"}}', 2, 1),
    "HeadracePanicRouting": _state(f"headrace_panic_routing{{{_G}}}", 1, 0),
    "HeadraceRetryBudgetSpent": _state(f"headrace_retry_budget_remaining_ratio{{{_G}}}", 0.0, 0.6),
    "HeadraceWorkerStuck": _state(f"headrace_worker_last_turn_age_seconds{{{_W}}}", 45, 0.2),
    "HeadraceWorkerOutOfMemory": _count(f"headrace_worker_out_of_memory_total{{{_W}}}", 0.5),
    "HeadraceBadLogits": _count(f"headrace_worker_bad_logits_total{{{_W}}}", 1),
    # In the good case the worker is silent because it has no requests.
    "HeadraceCacheStreamSilent": Case(
        {_AGE: "120x90", _ROUTED: "0+60x90"},
        {_AGE: "120x90", _ROUTED: "60x90"},
    ),
    "HeadraceCacheEventGaps": _count(f'headrace_cache_event_gaps_total{{{_G},worker="w1"}}', 20),
    "HeadraceRoutingBlind": Case({_PREDICTED: "0+60000x90", _FOUND: "0+6000x90"}, {_PREDICTED: "0+60000x90", _FOUND: "0+54000x90"}, 60),
    "HeadraceEventLoopLag": _latency("headrace_event_loop_lag_seconds", _G, "0.1", "5.0"),
    "HeadraceSlowClients": _count(f"headrace_slow_clients_total{{{_G}}}", 20),
    "HeadraceDrainLong": _state(f"headrace_draining{{{_W}}}", 1, 0, 60),
}
