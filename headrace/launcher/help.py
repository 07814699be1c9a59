"""`headrace up --help`: the launcher's flags, then those it passes on to every worker."""

from __future__ import annotations

from headrace.launcher.config import UpConfig
from headrace.programs import PROGRAMS
from services.common.config import build_parser

_INTRO = """Start tokenizer, scheduler-worker(s), detokenizer and gateway on this machine.

Flags of the scheduler may be given as they are. Those of the other services take a prefix: --gateway.x,
--tokenizer.x, --detokenizer.x (see `headrace serve gateway --help` and the like). --config FILE reads any of them
from YAML or JSON; a section named after a service holds that service's settings."""


def help_text() -> str:
    """Both groups of flags, with defaults and units."""
    own = build_parser(UpConfig, prog="headrace up", description="")
    scheduler = build_parser(PROGRAMS["scheduler"].config(), prog="headrace up", description="")
    return "\n".join(
        (
            "usage: headrace up [flags] [scheduler flags] [--gateway.x ...] [--tokenizer.x ...] [--detokenizer.x ...]\n",
            _INTRO,
            "",
            _groups(own.format_help()),
            "\nPassed on to every scheduler-worker",
            "===================================",
            _groups(scheduler.format_help(), but="Network:"),  # those addresses are planned
        )
    )


def _groups(text: str, but: str = "options:") -> str:
    """The help without its usage line, the general options and one more group."""
    left_out = ("usage:", "options:", but)
    return "\n\n".join(section.strip("\n") for section in text.split("\n\n") if not section.startswith(left_out))
