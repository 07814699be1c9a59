"""Several tokenizers, detokenizers and gateways."""

from __future__ import annotations

import asyncio

from gateway.clients.text_stage import TextPool
from tests.fakes.detokenizer_server import DetokenizerServer
from tests.fakes.fake_tokenizer import FakeTokenizer
from tests.fakes.stack import running, until


async def test_each_replica_does_its_share_also_after_a_restart() -> None:
    tokenizers = [FakeTokenizer() for _ in range(3)]
    detokenizers = [DetokenizerServer() for _ in range(3)]
    addresses = [await one.start() for one in tokenizers], [await one.start() for one in detokenizers]
    async with running(tokenizer=tuple(addresses[0]), detokenizer=tuple(addresses[1])) as stack:
        sessions = stack.app.parts.text.sessions
        await until(lambda: all(session.connected for session in sessions))
        stack.worker.pace_s = 0.005

        async def load() -> None:
            asks = [stack.post("/v1/completions", {"prompt": "x", "max_tokens": 4}) for _ in range(90)]
            assert {status for status, _ in await asyncio.gather(*asks)} == {200}

        before = [one.calls for one in tokenizers]
        await load()
        assert all(one.calls - earlier >= 18 for one, earlier in zip(tokenizers, before, strict=True))
        await detokenizers[0].stop()
        await until(lambda: not sessions[0].connected)
        await load()
        await detokenizers[0].start()
        await until(lambda: sessions[0].connected)
        stack.worker.pace_s = 0.1
        asks = [asyncio.create_task(stack.post("/v1/completions", {"prompt": "x", "max_tokens": 4})) for _ in range(30)]
        await until(lambda: sum(session.open_texts for session in sessions) == 30)
        assert [session.open_texts for session in sessions] == [10, 10, 10]
        await asyncio.gather(*asks)
    await asyncio.gather(*(one.stop() for one in tokenizers), *(one.stop() for one in detokenizers))


async def test_a_draining_detokenizer_loses_its_texts_to_another() -> None:
    first, second = DetokenizerServer(), DetokenizerServer()
    async with running(detokenizer=(await first.start(), await second.start())) as stack:
        sessions = stack.app.parts.text.sessions
        await until(lambda: all(session.connected for session in sessions))
        stack.worker.pace_s = 0.02
        asks = [asyncio.create_task(stack.post("/v1/completions", {"prompt": "x", "max_tokens": 40})) for _ in range(4)]
        await until(lambda: all(session.open_texts == 2 for session in sessions))
        assert first.servicer is not None
        draining = asyncio.create_task(first.servicer.drain())
        await until(lambda: sessions[1].open_texts == 4)
        answers = await asyncio.gather(*asks)
        assert len({answer["choices"][0]["text"] for _, answer in answers}) == 1
        assert all(len(answer["choices"][0]["text"]) == 40 for _, answer in answers)
        draining.cancel()
    await first.stop()
    await second.stop()


async def test_a_name_stands_for_all_its_addresses() -> None:
    server = DetokenizerServer()
    address = await server.start()
    pool = TextPool([f"dns:///localhost:{address.rpartition(':')[2]}"], client_id="x", trust=None)
    pool.start()
    await until(lambda: pool.ready)
    assert "127.0.0.1" in {session.address.rpartition(":")[0] for session in pool.sessions if session.connected}
    await pool.close()
    await server.stop()


async def test_two_gateways_share_a_port() -> None:
    async with running(shared_port=True) as one, running(shared_port=True, port=one.app.port, grpc_port=one.app.host.port) as two:
        assert (one.app.port, one.app.host.port) == (two.app.port, two.app.host.port)
        status, answer = await two.post("/workers", {"url": "127.0.0.1:1"})
        assert (status, answer["error"]["code"]) == (409, "shared_port")
        status, answer = await two.post(f"/workers/{two.worker.address}/drain", {})
        assert (status, answer["error"]["code"]) == (409, "shared_port"), "only one of the processes would know"
