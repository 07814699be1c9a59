"""What is said of routes that are not here; those of the OpenAI interface by what they are for."""

from __future__ import annotations

_GENERATION = "use /v1/chat/completions or /v1/completions"
_OPENAI = {
    "responses": f"the Responses interface is not offered: {_GENERATION}",
    "assistants": f"assistants are not offered: {_GENERATION}",
    "threads": f"assistants are not offered: {_GENERATION}",
    "messages": f"the Messages interface is not offered: {_GENERATION}",
    "embeddings": "embeddings are not offered: the models served here generate text",
    "rerank": "reranking is not offered: the models served here generate text",
    "score": "scoring is not offered; completions with echo and logprobs tell the logprobs of a given text",
    "moderations": "moderations are not offered: the models served here generate text",
    "audio": "audio is not offered: only text is served",
    "images": "images are not offered: only text is served",
    "videos": "videos are not offered: only text is served",
    "realtime": "the realtime interface is not offered: only text over HTTP is served",
    "files": "files are not stored here",
    "uploads": "files are not stored here",
    "vector_stores": "files are not stored here",
    "batches": "batches are not offered: /v1/completions takes several prompts at once, and requests with a lower priority wait",
    "fine_tuning": "models are not trained here",
}


def no_route(path: str) -> str:
    """The message of a 404."""
    parts = path.strip("/").split("/")
    said = _OPENAI.get(parts[1] if len(parts) > 1 and parts[0] == "v1" else "")
    return f"there is no such route: {said}" if said else "there is no such route"
