"""Numbers of the doors and of the links to the services, read when they are scraped."""

from __future__ import annotations

from gateway.api.sse import StreamKeeper
from gateway.clients.text_stage import TextPool
from gateway.clients.tokenizer import TokenizerClient
from gateway.clients.worker_pool import WorkerPool
from gateway.models import ModelCatalog
from gateway.pipeline import Pipeline
from services.common.metrics import Metrics


def publish_doors(metrics: Metrics, pipeline: Pipeline, models: ModelCatalog, keeper: StreamKeeper) -> None:
    """Requests in the air, also where there are none, and clients that were cut off."""

    def in_flight() -> list[tuple[tuple[str], float]]:
        active = pipeline.active_by_model()
        return [((model,), float(active[model])) for model in dict.fromkeys([*models.names(), *active])]

    metrics.rows("headrace_requests_in_flight", in_flight)
    metrics.counter("headrace_slow_clients_total").read(lambda: keeper.slow_clients)


def publish_links(metrics: Metrics, pool: WorkerPool, text: TextPool, tokenizer: TokenizerClient) -> None:
    """Which services are there, and how often one was lost or not found."""

    def links() -> list[tuple[tuple[str], float]]:
        workers = sum(session.connected for session in pool.sessions())
        texts = sum(session.connected for session in text.sessions)
        return [(("scheduler",), workers), (("detokenizer",), texts), (("tokenizer",), float(tokenizer.reached))]

    def failures() -> list[tuple[tuple[str], float]]:
        workers = sum(session.failures for session in pool.sessions())
        texts = sum(session.failures for session in text.sessions)
        return [(("scheduler",), workers), (("detokenizer",), texts), (("tokenizer",), tokenizer.failures)]

    metrics.rows("headrace_links", links)
    metrics.rows("headrace_link_failures_total", failures)
