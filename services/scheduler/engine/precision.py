"""In what precision a model runs, and why."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

MOST_PERPLEXITY_RISE = 0.01
LEAST_TOP1_AGREEMENT = 0.97
MOST_MEAN_KL = 0.02
LEAST_TOKENS = 20_000
_SHIPPED = Path(__file__).parent / "quality"


@dataclass(frozen=True, slots=True)
class Precision:
    """`quantization` is none or int8; `reason` says how it was chosen."""

    dtype: torch.dtype
    quantization: str
    reason: str

    @property
    def dtype_name(self) -> str:
        return str(self.dtype).removeprefix("torch.")


class PrecisionError(ValueError):
    """The wanted dtype or quantization cannot be had on the chosen path."""


def choose(dtype: str, quantization: str, *, native: bool, digest: str, cache_dir: Path) -> Precision:
    """Resolve `--dtype` and `--quantization`. Raises PrecisionError for a combination that cannot run.

    `auto` takes int8 only for a model with a stored pass of the quality check, else bfloat16 on native kernels.
    """
    if quantization == "int8" and not native:
        raise PrecisionError("--quantization int8 needs the native kernels, which are not in use")
    if quantization == "int8" and dtype == "float32":
        raise PrecisionError("--quantization int8 computes in bfloat16; --dtype float32 contradicts it")
    chosen = DTYPES[dtype] if dtype != "auto" else torch.bfloat16 if native or quantization == "int8" else torch.float32
    if quantization != "auto":
        return Precision(chosen, quantization, "as asked")
    if not native or dtype not in ("auto", "bfloat16"):
        return Precision(chosen, "none", "int8 is considered on native kernels with dtype auto or bfloat16")
    passed, why = stored_verdict(digest, cache_dir)
    return Precision(torch.bfloat16, "int8" if passed else "none", why)


def stored_verdict(digest: str, cache_dir: Path) -> tuple[bool, str]:
    """Whether int8 passed its quality check for this model, and in what words to say so."""
    for file in (cache_dir / "quality" / f"{digest}.json", _SHIPPED / f"{digest}.json"):
        try:
            found = json.loads(file.read_text())
            return judge(found["perplexity_ratio"], found["top1_agreement"], found["mean_kl"], found["tokens"])
        except OSError:
            continue
        except (ValueError, KeyError, TypeError) as error:
            return False, f"the stored quality check {file} cannot be read: {error!r}"
    return False, "int8 has no stored quality check for this model; run `headrace model check`"


def judge(perplexity_ratio: float, top1_agreement: float, mean_kl: float, tokens: int) -> tuple[bool, str]:
    """Compare measured figures with the bounds; `perplexity_ratio` is int8 over float32."""
    figures = f"perplexity {100 * (perplexity_ratio - 1):+.2f} %, top-1 {100 * top1_agreement:.1f} %, KL {mean_kl:.4f}, {tokens} tokens"
    good = (
        perplexity_ratio <= 1 + MOST_PERPLEXITY_RISE
        and top1_agreement >= LEAST_TOP1_AGREEMENT
        and mean_kl <= MOST_MEAN_KL
        and tokens >= LEAST_TOKENS
    )
    return good, f"int8 {'passed' if good else 'failed'} its quality check: {figures}"
