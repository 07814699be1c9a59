"""The model's chat template: found, compiled once, rendered within bounds."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError

from services.common.errors import InvalidRequest
from services.common.text.errors import TokenizerUnavailable
from services.common.text.tokenizer_files import TokenizerFiles
from services.tokenizer.messages import Message
from services.tokenizer.template_sandbox import TICK, TemplateRefusal, make_environment, ticker

_SPECIAL_ROLES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
_RESERVED = ("messages", "tools", "add_generation_prompt", TICK)


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """Bounds of one rendering."""

    seconds: float
    text_bytes: int


@dataclass(frozen=True, slots=True)
class ChatInput:
    """What a template is given."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    add_generation_prompt: bool = True
    continue_final_message: bool = False


class ChatTemplate:
    """One compiled template with the model's special tokens as variables. Usable from several threads at once."""

    def __init__(self, source: str, special_tokens: Mapping[str, str], *, origin: str) -> None:
        """Raises TemplateError if the source is not a template; `origin` says where it came from."""
        self.origin = origin
        self.knows_developer = "developer" in source
        self._template: Template = make_environment().from_string(source)
        self._special_tokens = dict(special_tokens)

    def render(self, chat: ChatInput, limits: RenderLimits) -> str:
        """The prompt's text. Raises InvalidRequest with the template's own words if it refuses the messages."""
        for name in chat.variables:
            if name in _RESERVED:
                raise InvalidRequest(f"chat_template_kwargs.{name}: this name is reserved", field=f"chat_template_kwargs.{name}")
        if not chat.continue_final_message:
            return self._render(chat, chat.messages, chat.add_generation_prompt, limits)
        return self._continue(chat, limits)

    def _continue(self, chat: ChatInput, limits: RenderLimits) -> str:
        last = chat.messages[-1]
        if last["role"] != "assistant":
            raise InvalidRequest("continue_final_message: the last message must be the assistant's", field="continue_final_message")
        if chat.add_generation_prompt:
            raise InvalidRequest("continue_final_message excludes add_generation_prompt", field="continue_final_message")
        mark = f"<{secrets.token_hex(16)}>"
        text = self._render(chat, [*chat.messages[:-1], {**last, "content": last["content"] + mark}], False, limits)
        kept, found, _ = text.rpartition(mark)
        if not found:
            raise InvalidRequest("continue_final_message: the chat template does not show the last message", field="continue_final_message")
        return kept

    def _render(self, chat: ChatInput, messages: list[Message], add_generation_prompt: bool, limits: RenderLimits) -> str:
        variables = {
            **self._special_tokens,
            **chat.variables,
            "messages": messages,
            "tools": chat.tools,
            "documents": chat.variables.get("documents"),
            "add_generation_prompt": add_generation_prompt,
            TICK: ticker(limits.seconds),
        }
        parts: list[str] = []
        room = limits.text_bytes
        try:
            for part in self._template.generate(variables):
                parts.append(part)
                room -= len(part)
                if room < 0:
                    limit = f"{limits.text_bytes} bytes (--max-text-bytes)"
                    raise InvalidRequest(f"messages: the rendered chat exceeds {limit}", field="messages")
        except TemplateRefusal as refusal:
            raise InvalidRequest(f"the chat template refuses these messages: {refusal.message}", field="messages") from refusal
        except InvalidRequest:
            raise
        except Exception as error:  # a template runs code of its author, anything can go wrong in it
            what = str(error) or type(error).__name__
            raise InvalidRequest(f"the chat template cannot render these messages: {what}", field="messages") from error
        return "".join(parts)


@dataclass(frozen=True, slots=True)
class ChatTemplates:
    """The templates of a model: the usual one, and one for chats with tools if the model has such."""

    default: ChatTemplate | None
    tool_use: ChatTemplate | None
    special_tokens: dict[str, str]

    def choose(self, has_tools: bool) -> ChatTemplate:
        """The template for a chat. Raises InvalidRequest if the model has none."""
        chosen = self.tool_use if has_tools and self.tool_use is not None else self.default
        if chosen is None:
            raise InvalidRequest("this model has no chat template; send text, or give the tokenizer a --chat-template", field="messages")
        return chosen


def load_templates(files: TokenizerFiles, override: str | None = None) -> ChatTemplates:
    """The templates of a model folder, or the one in the file `override`. Raises TokenizerUnavailable."""
    special = {role: text for role in _SPECIAL_ROLES if (text := files.special_text(role)) is not None}
    sources = _sources(files) if override is None else {"default": (_read(Path(override)), override)}
    compiled = {name: _compile(source, special, origin) for name, (source, origin) in sources.items() if name in ("default", "tool_use")}
    return ChatTemplates(compiled.get("default"), compiled.get("tool_use"), special)


def _compile(source: str, special: Mapping[str, str], origin: str) -> ChatTemplate:
    try:
        return ChatTemplate(source, special, origin=origin)
    except TemplateError as error:
        raise TokenizerUnavailable(f"the chat template of {origin} cannot be compiled: {error}") from error


def _sources(files: TokenizerFiles) -> dict[str, tuple[str, str]]:
    """Name -> (source, where from). A file of its own wins over the tokenizer's configuration."""
    found: dict[str, tuple[str, str]] = {}
    for name in ("tokenizer_config.json", "chat_template.json"):
        entry = files.config(name).get("chat_template")
        if isinstance(entry, str):
            found["default"] = entry, str(files.folder / name)
        elif isinstance(entry, list):
            found.update({one["name"]: (one["template"], str(files.folder / name)) for one in entry})
    own = files.folder / "chat_template.jinja"
    if own.is_file():
        found["default"] = _read(own), str(own)
    for path in sorted((files.folder / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = _read(path), str(path)
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenizerUnavailable(f"cannot read chat template {path}: {error}") from error
