"""Workers from Kubernetes EndpointSlices, listed and then watched.

Whatever goes wrong with the watch, the answer is to list again. While the API server cannot be heard the workers known so
far stay: they are watched by their own health.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import Any

from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException

from gateway.workers.endpoint_slices import EndpointSlices
from gateway.workers.membership import Membership

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
_LIST_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """selector: labels of the EndpointSlices, such as `kubernetes.io/service-name=workers`. port: beats port_name.

    watch_s: how long one watch lasts; silence_s: how long a watch may say nothing before it is given up.
    """

    namespace: str
    selector: str
    port_name: str = "grpc"
    port: int | None = None
    watch_s: int = 300
    silence_s: float = 60.0


async def connect() -> client.ApiClient:
    """The API of the cluster this process runs in, or that the kubeconfig names."""
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except config.ConfigException:
        await config.load_kube_config()
    return client.ApiClient()


async def follow_kubernetes(membership: Membership, api: client.ApiClient, settings: KubernetesSettings) -> None:
    """Runs until cancelled."""
    slices = EndpointSlices(port_name=settings.port_name, port=settings.port)
    follower = _Follower(membership, client.DiscoveryV1Api(api), settings, slices)
    loop, pause_s = asyncio.get_running_loop(), _FIRST_PAUSE_S
    while True:
        began = loop.time()
        try:
            await follower.watch(await follower.list())
        except (ApiException, OSError, TimeoutError, ValueError, KeyError, client.exceptions.OpenApiException) as error:
            log.warning("kubernetes discovery begins again", extra={"reason": _reason(error)})
            pause_s = _FIRST_PAUSE_S if loop.time() - began > _LONGEST_PAUSE_S else min(2 * pause_s, _LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)


class _Follower:
    def __init__(self, membership: Membership, api: client.DiscoveryV1Api, settings: KubernetesSettings, slices: EndpointSlices) -> None:
        self._membership = membership
        self._api = api
        self._settings = settings
        self._slices = slices

    async def list(self) -> str:
        """Take over a full listing; returns its resource version."""
        async with asyncio.timeout(_LIST_TIMEOUT_S):
            response: Any = await self._api.list_namespaced_endpoint_slice(
                self._settings.namespace, label_selector=self._settings.selector, _preload_content=False
            )
            body = json.loads(await response.read())
        if response.status >= 400:
            raise ApiException(status=response.status, reason=str(body.get("message", "")))
        self._slices.listed(body.get("items") or ())
        self._membership.apply(self._slices.endpoints())
        return str(body["metadata"]["resourceVersion"])

    async def watch(self, version: str) -> None:
        """Follow changes from `version` until the watch ends, fails or falls silent."""
        watcher = watch.Watch(return_type="object")
        async with watcher:
            stream = watcher.stream(
                self._api.list_namespaced_endpoint_slice,
                self._settings.namespace,
                label_selector=self._settings.selector,
                resource_version=version,
                allow_watch_bookmarks=True,
                timeout_seconds=self._settings.watch_s,
            )
            while True:
                try:
                    async with asyncio.timeout(self._settings.silence_s):
                        event = await anext(stream)
                except StopAsyncIteration:
                    return
                if event["type"] != "BOOKMARK":
                    self._slices.changed(event["type"], event["raw_object"])
                    self._membership.apply(self._slices.endpoints())


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {getattr(error, 'reason', None) or error}"
