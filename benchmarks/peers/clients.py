"""Load generators: our own, and vLLM's as an independent one. Both speak to the OpenAI door of any server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.peers.loads import Load
from headrace.bench.config import BenchConfig
from headrace.bench.measure import measure
from headrace.bench.report import headline

OWN, VLLM_BENCH = "headrace-bench", "vllm-bench"


@dataclass(frozen=True, slots=True)
class Figures:
    """What a run showed: medians and a 99th percentile in ms, tokens per second, seconds. `line` is for people."""

    tpot: float
    ttft: float
    rate: float
    itl_p99: float
    duration: float
    failed: int
    line: str
    why: str = ""  # the first failure

    def named(self) -> dict[str, float]:
        """Under the names of the table."""
        return {"TPOT": self.tpot, "TTFT": self.ttft, "tok/s": self.rate, "p99 ITL": self.itl_p99, "duration": self.duration}


class Client(Protocol):
    """One run of a load against the server at `url`; prompts are a function of the seed. Temperature 0, lengths exact."""

    name: str

    def run(self, url: str, model: str, version: str, load: Load, seed: int) -> Figures: ...


class OwnClient:
    """`headrace bench serve`, in this process."""

    name = OWN

    def run(self, url: str, model: str, version: str, load: Load, seed: int) -> Figures:
        done = asyncio.run(measure(self._config(url, model, version, load, seed)))
        found = done.summary
        return Figures(
            tpot=1e3 * found.tpot.median,
            ttft=1e3 * found.ttft.median,
            rate=found.output_rate,
            itl_p99=1e3 * found.itl.p99,
            duration=found.duration,
            failed=found.requests - found.succeeded,
            line=headline(found, done.about),
            why=next((f"{o.error}: {o.detail}" for o in done.outcomes if not o.ok), ""),
        )

    def _config(self, url: str, model: str, version: str, load: Load, seed: int) -> BenchConfig:
        shape: dict[str, Any] = {"num_prompts": load.prompts, "random_input_len": load.own, "random_output_len": load.output}
        if load.groups:
            shape = {
                "dataset_name": "shared-prefix",
                "gsp_num_groups": load.groups,
                "gsp_prompts_per_group": load.prompts // load.groups,
                "gsp_system_prompt_len": load.shared,
                "gsp_question_len": load.own,
                "gsp_output_len": load.output,
            }
        return BenchConfig(
            backend="openai", base_url=url, model=model, server_version=version, seed=seed, max_concurrency=load.users, **shape
        )


class VllmBench:
    """`vllm bench serve` from the peer's environment. It sends text, so the server tokenizes every prompt."""

    name = VLLM_BENCH

    def __init__(self, environment: Path, tokenizer: Path) -> None:
        self._program, self._tokenizer = environment / "bin" / "vllm", tokenizer

    def run(self, url: str, model: str, version: str, load: Load, seed: int) -> Figures:
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder) / "result.json"
            command = [
                *self._command(url, model, load, seed),
                "--save-result",
                "--save-detailed",
                "--result-dir",
                folder,
                "--result-filename",
                result.name,
            ]
            done = subprocess.run(command, env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, check=False)
            if not result.exists():
                raise RuntimeError(f"vllm bench serve ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
            found = json.loads(result.read_text())
        return figures(found, load, version, seed)

    def _command(self, url: str, model: str, load: Load, seed: int) -> list[str]:
        words = [str(self._program), "bench", "serve", "--backend", "openai", "--base-url", url]
        words += ["--model", model, "--tokenizer", str(self._tokenizer), "--seed", str(seed)]
        words += ["--num-prompts", str(load.prompts), "--max-concurrency", str(load.users)]
        words += ["--ignore-eos", "--temperature", "0", "--percentile-metrics", "ttft,tpot,itl"]
        if not load.groups:
            lengths = ["--random-input-len", str(load.own), "--random-output-len", str(load.output)]
            return [*words, "--dataset-name", "random", *lengths, "--random-range-ratio", "0"]  # 0 is: all of equal length
        sizes = {"num-prefixes": load.groups, "prefix-len": load.shared, "suffix-len": load.own, "output-len": load.output}
        return [*words, "--dataset-name", "prefix_repetition", *(w for k, v in sizes.items() for w in (f"--prefix-repetition-{k}", str(v)))]


def figures(found: dict[str, Any], load: Load, version: str, seed: int) -> Figures:
    """From the file that vLLM's load generator writes."""
    failed = load.prompts - int(found["completed"])
    return Figures(
        tpot=found["median_tpot_ms"],
        ttft=found["median_ttft_ms"],
        rate=found["output_throughput"],
        itl_p99=found["p99_itl_ms"],
        duration=found["duration"],
        failed=failed,
        why=next((str(error).strip().splitlines()[-1] for error in found.get("errors", ()) if error), ""),
        line=(
            f"{found['output_throughput']:.1f} output tok/s at a cap of {load.users}: median TTFT {found['median_ttft_ms']:.0f} ms; "
            f"median TPOT {found['median_tpot_ms']:.1f} ms; p99 ITL {found['p99_itl_ms']:.0f} ms ({version}, "
            f"{found['total_input_tokens']} tokens in, {found['total_output_tokens']} out, seed {seed}"
            f"{f', {failed} failed' if failed else ''}), measured by vllm bench serve"
        ),
    )
