"""Every request field of the OpenAI chat and completions APIs, and the ones of ours beside them.

A field is honoured, refused by name, or without effect on the answer. `docs/openai-fields.md` is made of these tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from gateway.api.schema.sampling import REFUSED

_SAMPLING: Mapping[str, str] = {
    "temperature": "0 to 2; 0 is greedy; default from the model or 1",
    "top_p": "above 0, up to 1",
    "frequency_penalty": "-2 to 2",
    "presence_penalty": "-2 to 2",
    "logit_bias": "token id to -100…100, at most 1,024 entries",
    "seed": "64 bit; same seed, same answer",
    "stop": "a string or up to 32 that are not empty",
    "n": "1 to 128 choices, also at temperature 0",
    "stream": "server-sent events, ended by [DONE]",
    "stream_options": "include_usage, continuous_usage_stats; 400 without stream",
    "model": "a served model, 404 otherwise; may be left out",
    "response_format": "text, json_object, json_schema, structural_tag",
    "prompt_cache_key": "used as routing key",
}

_EXTENSIONS: Mapping[str, str] = {
    "top_k": "-1 or at least 1",
    "min_p": "0 to 1",
    "repetition_penalty": "above 0, up to 2",
    "min_tokens": "least number of new tokens",
    "stop_token_ids": "ids that end the answer",
    "stop_regex": "up to 32 expressions in RE2 syntax, 256 characters each",
    "ignore_eos": "only the model's own end ids are ignored",
    "no_stop_trim": "keep the matched stop text",
    "include_stop_str_in_output": "the same",
    "skip_special_tokens": "default true",
    "spaces_between_special_tokens": "default false",
    "json_schema": "grammar",
    "regex": "grammar",
    "ebnf": "grammar",
    "structural_tag": "grammar",
    "guided_json": "same as json_schema",
    "guided_regex": "same as regex",
    "guided_grammar": "same as ebnf",
    "guided_choice": "one of the given strings, bare",
    "structured_outputs": "one of json, json_object, regex, choice, grammar, structural_tag",
    "custom_logit_processor": "name of a logit processor of the worker (--enable-custom-logit-processor); 400 where it is off or unknown",
    "custom_params": "JSON object for it, at most 16 KiB",
    "schema_check": "before (default): a schema that is not enforced in full is refused; after: its answer is checked",
    "rid": "request id",
    "priority": "higher goes first",
    "extra_key": "part of the cache namespace",
    "cache_salt": "part of the cache namespace",
    "routing_key": "for sticky policies",
    "timeout": "seconds until the request ends with 504",
    "stream_interval": "tokens per chunk after the first",
}

CHAT_HONOURED: Mapping[str, str] = {
    "messages": "roles system, developer, user, assistant, tool; text parts",
    **_SAMPLING,
    "max_completion_tokens": "at least 1; wins over max_tokens; 400 if it does not fit the context",
    "max_tokens": "at least 1; the older name",
    "logprobs": "true or false",
    "top_logprobs": "0 to 20; 400 without logprobs",
    "tools": "up to 128 functions",
    "tool_choice": "none, auto, required, a function, or allowed_tools",
    "parallel_tool_calls": "false: at most one call",
    **_EXTENSIONS,
    "chat_template": "only where the tokenizer service allows it",
    "chat_template_kwargs": "variables for the chat template",
    "add_generation_prompt": "default true",
    "continue_final_message": "go on with the last assistant message",
    "separate_reasoning": "default true: reasoning_content apart from content",
    "include_reasoning": "default true; false: thoughts are counted, but not sent",
    "stream_reasoning": "default true; false: a thought comes in one piece when it has ended",
    "sampling_seed": "same as seed",
}

COMPLETION_HONOURED: Mapping[str, str] = {
    "prompt": "string, strings, token ids, or arrays of token ids",
    **_SAMPLING,
    "max_tokens": "at least 1; default 16; 400 if it does not fit the context",
    "logprobs": "0 to 20 alternatives",
    "echo": "the prompt comes first in the text",
    "add_special_tokens": "whether a text gets the tokenizer's special ones; default: what the model is configured for",
    "best_of": "only equal to n",
    **_EXTENSIONS,
    "sampling_seed": "same as seed",
}

_WITHOUT_EFFECT: Mapping[str, str] = {
    "user": "for the operator's own logs; never sent on",
    "metadata": "not stored",
    "service_tier": "there is one tier",
    "safety_identifier": "not used",
    "prompt_cache_retention": "the cache keeps what it can",
    "prompt_cache_options": "the cache keeps what it can",
}

CHAT_WITHOUT_EFFECT: Mapping[str, str] = {
    **_WITHOUT_EFFECT,
    "store": "false; true is refused, answers are not stored",
    "modalities": '["text"]; others are refused',
    "prediction": "a hint for speed; the answer is the same",
}

COMPLETION_WITHOUT_EFFECT: Mapping[str, str] = dict(_WITHOUT_EFFECT)

_REFUSED: Mapping[str, str] = {name: why for name, why in REFUSED.items() if name != "best_of"}

CHAT_REFUSED: Mapping[str, str] = {
    **REFUSED,
    "audio": "only text is served",
    "functions": "use tools",
    "function_call": "use tool_choice",
    "reasoning_effort": "use chat_template_kwargs, if the model's template knows such a setting",
    "verbosity": "no model here knows it",
    "web_search_options": "there is no web search",
    "moderation": "there is no moderation",
    "echo": "only completions echo",
    "prompt_logprobs": "use /generate or completions with echo",
    "documents": "use chat_template_kwargs",
    "add_special_tokens": "a chat template writes its own",
}

COMPLETION_REFUSED: Mapping[str, str] = {
    **_REFUSED,
    "suffix": "text is generated at the end only",
    "prompt_logprobs": "use echo with logprobs",
    "tools": "only chat completions call tools",
    "messages": "use /v1/chat/completions",
}
