"""What a token costs on its way through the gateway, and what the gateway adds to the first one.

    python -m benchmarks.gateway --model-path MODEL_FOLDER [--router-python VENV/bin/python] [--streams 32 256] [--json FILE]

Stub workers stream a token every 10 ms; tokenizer, detokenizer and gateway are the real programs. CPU is that of the
gateway process alone, from /proc. Added first-token time is what the client sees less the delay that the stubs script.
With `--router-python` the Rust router of that environment (sglang-router) runs the same load in the same run, in front
of stubs that speak HTTP: it only passes bytes on, with neither tokenizer nor detokenizer. Rounds alternate. Neither gateway
limits how many requests run: what is measured is a stream's cost, not whom admission lets in. Beside the ratio stands what one
send over loopback costs any program with as many connections: a token cannot cost less than its send. The figure per token
holds a share of what a request costs once; two more loads of shorter and longer answers (`--fit`) tell the two apart.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import grpc

from benchmarks.programs import free_port, program, wait_grpc, wait_http
from benchmarks.send_floor import send_us
from protos.tokenizer.v1 import tokenizer_pb2, tokenizer_pb2_grpc

DELAY_MS, GAP_MS = 50.0, 10.0
TEXT = """time year people way day man thing woman life child world school state family student group country problem hand
part place case week company system program question work number night point home water room mother area money story fact
month lot right study book eye job word business issue side kind head house service friend father power hour game line
"""
WORDS = TEXT.split()
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Result:
    """One load through one gateway."""

    name: str
    streams: int
    cpu_us_per_token: float
    added_first_ms: float
    tokens_per_s: float
    failed: int


@dataclass(frozen=True)
class Fit:
    """What a request costs once and what each of its tokens adds, in µs of CPU, by two lengths of answers."""

    name: str
    streams: int
    us_per_request: float
    us_per_token: float


@dataclass(frozen=True)
class Target:
    """Something that answers chat requests: its port, its process, the model it serves."""

    name: str
    port: int
    pid: int
    model: str


def write_script(tokenizer_port: int, folder: Path) -> Path:
    """Ids the stubs send, made of real words, and the digest of the tokenizer that knows them."""
    with grpc.insecure_channel(f"127.0.0.1:{tokenizer_port}") as channel:
        stub = tokenizer_pb2_grpc.TokenizerStub(channel)  # type: ignore[no-untyped-call]
        digest = stub.GetTokenizerInfo(tokenizer_pb2.GetTokenizerInfoRequest()).tokenizer_digest
        text = " ".join(random.Random(5).choices(WORDS, k=400))
        encoded = stub.Encode(tokenizer_pb2.EncodeRequest(texts=[text]))
    ids = list(encoded.encodings[0].token_ids)
    path = folder / "script.json"
    path.write_text(json.dumps({"ids": ids, "model": "stub", "tokenizer_digest": digest}))
    return path


def write_prompts(folder: Path, words: int, count: int = 64) -> Path:
    """Different prompts of about as many tokens as words."""
    rng = random.Random(11)
    path = folder / "prompts.json"
    path.write_text(json.dumps([f"{rng.random()} " + " ".join(rng.choices(WORDS, k=words)) for _ in range(count)]))
    return path


@contextlib.contextmanager
def ours(model_path: str, folder: Path) -> Iterator[Target]:
    """Tokenizer, detokenizer, two stub workers and the gateway."""
    python = [sys.executable, "-m"]
    names = ("tokenizer", "detokenizer", "worker", "worker2", "gateway")
    ports = {name: free_port() for name in names}
    logs = {name: folder / f"{name}.log" for name in names}
    quiet = ["--metrics-port", "-2", "--log-level", "warning"]
    with contextlib.ExitStack() as stack:

        def run(name: str, *arguments: str) -> subprocess.Popen[bytes]:
            return stack.enter_context(program([*python, *arguments], logs[name]))

        for name in ("tokenizer", "detokenizer"):
            run(name, f"services.{name}", "--model-path", model_path, "--port", str(ports[name]), *quiet)
        wait_grpc(ports["tokenizer"])
        wait_grpc(ports["detokenizer"])
        time.sleep(2)
        script = write_script(ports["tokenizer"], folder)
        workers = [str(ports["worker"]), str(ports["worker2"])]
        stub = ["benchmarks.stub_workers", "--kind", "grpc", "--script", str(script), "--ports", *workers]
        run("worker", *stub, "--delay-ms", str(DELAY_MS), "--gap-ms", str(GAP_MS))
        for port in workers:
            wait_grpc(int(port))
        gateway = run(
            "gateway",
            "gateway",
            *("--port", str(ports["gateway"]), "--grpc-port", "0", "--max-concurrent-requests", "-1"),
            *("--tokenizer", f"127.0.0.1:{ports['tokenizer']}", "--detokenizer", f"127.0.0.1:{ports['detokenizer']}"),
            *("--workers", *(f"127.0.0.1:{port}" for port in workers)),
            *quiet,
        )
        wait_http(ports["gateway"], "/ready", gateway, logs["gateway"])
        yield Target("headrace", ports["gateway"], gateway.pid, "stub")


@contextlib.contextmanager
def rust(router_python: str, folder: Path) -> Iterator[Target]:
    """Two HTTP stub workers and the Rust router."""
    ports = [free_port(), free_port()]
    port, metrics = free_port(), free_port()
    stub = [sys.executable, "-m", "benchmarks.stub_workers", "--kind", "http", "--ports", *map(str, ports)]
    urls = [f"http://127.0.0.1:{p}" for p in ports]
    router = [router_python, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(port), "--worker-urls", *urls]
    router += ["--policy", "cache_aware", "--prometheus-port", str(metrics), "--log-level", "error"]
    delays = ["--delay-ms", str(DELAY_MS), "--gap-ms", str(GAP_MS)]
    with program([*stub, *delays], folder / "http.log"), program(router, folder / "router.log") as child:
        wait_http(port, "/health", child, folder / "router.log")
        time.sleep(2)
        yield Target("sglang-router", port, child.pid, "stub")


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of the children it has not waited for."""
    total = 0.0
    for stat in [Path(f"/proc/{pid}/stat"), *(p / "stat" for p in _children(pid))]:
        fields = stat.read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS
    return total


def _children(pid: int) -> list[Path]:
    listed = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [Path(f"/proc/{child}") for child in listed]


def load(target: Target, streams: int, tokens: int, rounds: int, prompts: Path) -> Result:
    """One load; CPU counted from its beginning to its end."""
    command = [sys.executable, "-m", "benchmarks.stream_client", "--port", str(target.port), "--model", target.model]
    command += ["--streams", str(streams), "--tokens", str(tokens), "--rounds", str(rounds), "--prompts", str(prompts)]
    before = cpu_seconds(target.pid)
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    used = cpu_seconds(target.pid) - before
    seen = json.loads(done.stdout)
    made = len(seen["first_ms"]) * tokens
    if not 0.8 * made <= seen["chunks"] <= made + 3 * len(seen["first_ms"]):
        seen["failed"].append(f"{seen['chunks']} chunks for {made} tokens")
    if seen["failed"]:
        print(f"{target.name}: {len(seen['failed'])} failed, first: {seen['failed'][0]}", file=sys.stderr)
    return Result(
        name=target.name,
        streams=streams,
        cpu_us_per_token=1e6 * used / max(1, made),
        added_first_ms=median(seen["first_ms"] or [0.0]) - DELAY_MS,
        tokens_per_s=made / seen["seconds"],
        failed=len(seen["failed"]),
    )


def best(results: list[Result]) -> Result:
    """The round with the least CPU per token, with the least added time of any round."""
    chosen = min(results, key=lambda result: result.cpu_us_per_token)
    added = min(result.added_first_ms for result in results)
    failed = sum(result.failed for result in results)
    return Result(chosen.name, chosen.streams, chosen.cpu_us_per_token, added, chosen.tokens_per_s, failed)


def fit(short: Result, short_tokens: int, long: Result, long_tokens: int) -> Fit:
    """The line through two loads that differ in the tokens of an answer only."""
    low, high = short.cpu_us_per_token * short_tokens, long.cpu_us_per_token * long_tokens
    per_token = (high - low) / (long_tokens - short_tokens)
    return Fit(short.name, short.streams, low - per_token * short_tokens, per_token)


def measure(targets: list[Target], streams: int, lengths: list[int], rounds: int, prompts: Path) -> list[list[Result]]:
    """For each target the best result at each length. Targets and lengths take turns."""
    seen: list[list[list[Result]]] = [[[] for _ in lengths] for _ in targets]
    for _ in range(rounds):
        for place, tokens in enumerate(lengths):
            for target, results in zip(targets, seen, strict=True):
                results[place].append(load(target, streams, tokens, 2 if streams < 100 else 1, prompts))
    return [[best(results) for results in by_length] for by_length in seen]


def main() -> None:
    """Run all loads and print a line for each gateway and number of streams, then the ratios."""
    parser = argparse.ArgumentParser(description="cost of a token in the gateway")
    parser.add_argument("--model-path", required=True, help="folder with tokenizer.json")
    parser.add_argument("--router-python", help="python of an environment with sglang-router 0.3.2")
    parser.add_argument("--streams", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--prompt-words", type=int, default=480)
    parser.add_argument("--rounds", type=int, default=3, help="times each load runs; the best counts")
    parser.add_argument("--fit", type=int, nargs="*", default=[100, 600], help="two other lengths; none: no fit")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if len(options.fit) not in (0, 2) or len(set(options.fit)) != len(options.fit):
        parser.error("--fit takes two different lengths, or none")
    results: list[Result] = []
    fits: list[Fit] = []
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        prompts = write_prompts(folder, options.prompt_words)
        targets = [stack.enter_context(ours(options.model_path, folder))]
        if options.router_python:
            targets.append(stack.enter_context(rust(options.router_python, folder)))
        for target in targets:
            load(target, 16, 50, 1, prompts)
        for streams in options.streams:
            for at_length in measure(targets, streams, [options.tokens, *options.fit], options.rounds, prompts):
                results.append(at_length[0])
                if options.fit:
                    fits.append(fit(at_length[1], options.fit[0], at_length[2], options.fit[1]))
    for result in results:
        print(
            f"{result.name:14} {result.streams:4} streams  {result.cpu_us_per_token:7.2f} us CPU/token  "
            f"{result.added_first_ms:+7.2f} ms first token  {result.tokens_per_s:9,.0f} tokens/s  {result.failed} failed"
        )
    for line in fits:
        print(f"{line.name:14} {line.streams:4} streams  {line.us_per_request:7,.0f} us CPU/request + {line.us_per_token:.2f} us CPU/token")
    for streams in options.streams:
        print(f"floor at {streams} streams: {send_us(streams):.2f} us CPU for one send over loopback")
        pair = [result for result in results if result.streams == streams]
        if len(pair) == 2:
            print(f"ratio at {streams} streams: {pair[0].cpu_us_per_token / pair[1].cpu_us_per_token:.2f} of the router's CPU per token")
    if options.json:
        options.json.write_text(json.dumps([vars(row) for row in (*results, *fits)]))


if __name__ == "__main__":
    main()
