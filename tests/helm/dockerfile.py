"""Reading a Dockerfile: its stages and their instructions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = {
    "gateway": ROOT / "gateway/Dockerfile",
    "tokenizer": ROOT / "services/tokenizer/Dockerfile",
    "detokenizer": ROOT / "services/detokenizer/Dockerfile",
    "scheduler": ROOT / "services/scheduler/Dockerfile",
}


@dataclass(slots=True)
class Stage:
    """A FROM and the instructions after it, as (word, rest)."""

    base: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, word: str) -> list[str]:
        """The rests of all instructions of one kind."""
        return [rest for step, rest in self.steps if step == word]

    def exec_form(self, word: str) -> list[str]:
        """The words of the last ENTRYPOINT or CMD. Raises ValueError if it is not a JSON list."""
        words: list[str] = json.loads(self.all(word)[-1])
        return words


def stages(file: Path) -> list[Stage]:
    """The stages of a Dockerfile, in order."""
    text = re.sub(r"\\\n", " ", "".join(line for line in file.read_text().splitlines(True) if not line.startswith("#")))
    found: list[Stage] = []
    for line in filter(str.strip, text.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            base, _, name = rest.partition(" AS ")
            found.append(Stage(base, name))
        else:
            found[-1].steps.append((word, rest.strip()))
    return found
