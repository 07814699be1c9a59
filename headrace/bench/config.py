"""Flags of `headrace bench serve`, under the names other serving benchmarks use."""

from __future__ import annotations

import json
from dataclasses import dataclass

from services.common.config import at_least, option

BACKENDS = ("native", "openai", "openai-chat", "grpc")
DATASETS = ("random", "random-ids", "shared-prefix", "conversations", "sharegpt", "custom", "trace")


def _json_object(value: str | None) -> str | None:
    try:
        return None if value is None or isinstance(json.loads(value), dict) else "must be a JSON object"
    except ValueError as error:
        return f"is not JSON: {error}"


def _ratio(value: float) -> str | None:
    return None if 0 <= value <= 1 else "must be between 0 and 1"


def _id_range(value: str) -> str | None:
    low, colon, high = value.partition(":")
    good = colon and low.isdigit() and high.isdigit() and int(low) < int(high)
    return None if good else "must be LOW:HIGH with LOW below HIGH"


@dataclass(frozen=True)
class Target:
    """Whom to load, and how to speak to it."""

    backend: str = option("native", "door to use", group="Server", choices=BACKENDS)
    base_url: str = option("", "address with scheme; else made of --host and --port (for grpc: host:port)", group="Server")
    host: str = option("127.0.0.1", "host of the server", group="Server")
    port: int = option(30000, "port of the server; the gRPC door is the next one", group="Server")
    model: str = option("", "model name to ask for; else the first the server lists", group="Server")
    api_key: str = option("", "key sent as bearer token", group="Server", secret=True)
    server_version: str = option("", "version to state where the server does not tell it", group="Server")
    extra_request_body: str | None = option(None, "JSON object merged into every request", group="Server", check=_json_object)
    ready_check_timeout_sec: float = option(60.0, "time to wait for the server", unit="s", group="Server", check=at_least(0))
    timeout: float = option(600.0, "longest a request may take", unit="s", group="Server", check=at_least(1))
    tokenizer: str = option("", "folder with tokenizer.json, for text prompts and a second count of the output", group="Server")


@dataclass(frozen=True)
class Workload(Target):
    """What is asked."""

    dataset_name: str = option("random", "where prompts come from", group="Dataset", choices=DATASETS)
    dataset_path: str = option("", "file of sharegpt, custom or trace", group="Dataset")
    num_prompts: int = option(100, "requests to send (shared-prefix: groups times prompts per group)", group="Dataset", check=at_least(1))
    seed: int = option(42, "seed of prompts and arrivals; use a new one for every run, or the prefix cache answers", group="Dataset")
    random_input_len: int = option(512, "longest prompt of random", unit="tokens", group="Dataset", check=at_least(1))
    random_output_len: int = option(128, "longest output of random", unit="tokens", group="Dataset", check=at_least(1))
    random_range_ratio: float = option(
        1.0,
        "shortest length as a share of the longest; 1 makes all equal (elsewhere often 0, which halves the mean)",
        group="Dataset",
        check=_ratio,
    )
    random_id_range: str = option("1000:30000", "token ids that prompts are drawn from", group="Dataset", check=_id_range)
    gsp_num_groups: int = option(64, "groups that share a prefix", group="Dataset", check=at_least(1))
    gsp_prompts_per_group: int = option(16, "prompts per group", group="Dataset", check=at_least(1))
    gsp_system_prompt_len: int = option(2048, "shared tokens", unit="tokens", group="Dataset", check=at_least(1))
    gsp_question_len: int = option(128, "own tokens", unit="tokens", group="Dataset", check=at_least(1))
    gsp_output_len: int = option(256, "output of shared-prefix", unit="tokens", group="Dataset", check=at_least(1))
    gsp_range_ratio: float = option(1.0, "shortest own part and output as a share of the longest", group="Dataset", check=_ratio)
    gsp_ordered: bool = option(False, "send group after group instead of shuffled", group="Dataset")
    turns: int = option(4, "turns of each conversation", group="Dataset", check=at_least(1))
    turn_input_len: int = option(64, "words a user adds per turn", unit="words", group="Dataset", check=at_least(1))
    sharegpt_output_len: int | None = option(None, "output of every sharegpt prompt; else as long as the recorded answer", group="Dataset")


@dataclass(frozen=True)
class BenchConfig(Workload):
    """How fast it is asked, and what is reported."""

    request_rate: float = option(float("inf"), "requests per second; inf sends all at once", group="Traffic", check=at_least(0.001))
    burstiness: float = option(1.0, "1 is a Poisson process, below burstier, above steadier", group="Traffic", check=at_least(0.01))
    max_concurrency: int | None = option(None, "most requests in flight", group="Traffic", check=at_least(1))
    use_trace_timestamps: bool = option(True, "send a trace's requests at its times", group="Traffic")
    warmup_requests: int = option(1, "requests sent first and thrown away", group="Traffic", check=at_least(0))
    flush_cache: bool = option(False, "empty the server's prefix cache before the run", group="Traffic")
    disable_ignore_eos: bool = option(False, "let answers end by themselves", group="Traffic")
    temperature: float = option(0.0, "sampling temperature", group="Traffic", check=at_least(0))
    goodput: tuple[str, ...] = option((), "targets such as ttft:500 tpot:50 e2e:3000 itl:200 (ms)", group="Report")
    output: str = option("", "append JSON lines to this file: one for the run, then one per request", group="Report")
    output_file: str = option("", "append one JSON line per run to this file", group="Report")
    output_details: bool = option(False, "with every request's lengths, times, errors and text in --output-file", group="Report")
    quiet: bool = option(False, "print the headline and the flags only", group="Report")
