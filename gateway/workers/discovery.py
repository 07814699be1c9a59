"""All sources of workers that this gateway was told to use."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gateway.workers.dns_discovery import follow_dns
from gateway.workers.membership import Membership
from gateway.workers.registry import Registry


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """dns: names (host:port) that resolve to all workers. selector: labels of EndpointSlices; empty is no Kubernetes.

    grace_s: how long a worker that is no longer listed keeps the streams it has.
    """

    workers: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    dns_interval_s: float = 5.0
    selector: str = ""
    namespace: str = "default"
    port: int | None = None
    port_name: str = "grpc"
    grace_s: float = 180.0


class Discovery:
    """Runs the sources; `memberships` count what they have seen."""

    def __init__(self, registry: Registry, settings: DiscoverySettings) -> None:
        self._registry = registry
        self._settings = settings
        self._dns = [Membership(registry, f"dns {name}", grace_s=settings.grace_s) for name in settings.dns]
        self._kubernetes = Membership(registry, "kubernetes", grace_s=settings.grace_s) if settings.selector else None

    @property
    def memberships(self) -> list[Membership]:
        return [*self._dns, *([self._kubernetes] if self._kubernetes is not None else [])]

    def start(self) -> None:
        """Add the workers that the configuration names. Raises InvalidRequest for a bad address, Conflict for a repeated one."""
        for address in self._settings.workers:
            self._registry.add(address)

    async def run(self) -> None:
        """Follow the sources until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                for name, membership in zip(self._settings.dns, self._dns, strict=True):
                    group.create_task(follow_dns(membership, name, interval_s=self._settings.dns_interval_s))
                if self._kubernetes is not None:
                    group.create_task(self._follow_kubernetes(self._kubernetes))
        finally:
            await asyncio.gather(*(membership.close() for membership in self.memberships))

    async def _follow_kubernetes(self, membership: Membership) -> None:
        from gateway.workers.kubernetes_discovery import KubernetesSettings, connect, follow_kubernetes

        settings = self._settings
        wanted = KubernetesSettings(settings.namespace, settings.selector, settings.port_name, settings.port)
        api = await connect()
        try:
            await follow_kubernetes(membership, api, wanted)
        finally:
            await api.close()
