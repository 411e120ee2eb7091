"""Renders a corpus of chat requests with vLLM's own code. A test compares the texts and ids with the proxy's renderer.

usage: python golden_renderings.py CORPUS MODEL[=TEMPLATE]...

CORPUS is a JSON list of {name, request}. MODEL is a directory with a tokenizer, TEMPLATE a file to use instead of
the model's own template. Prints one JSON object per line for each model, request and value of add_generation_prompt:
the `text` and `ids`, or the `error` with which vLLM rejects the request.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

logging.disable(logging.CRITICAL)  # vLLM logs each rejected request

from transformers import AutoTokenizer, PreTrainedTokenizerBase  # noqa: E402
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest  # noqa: E402
from vllm.renderers.chat_utils import parse_chat_messages  # noqa: E402
from vllm.renderers.hf import resolve_chat_template_content_format, safe_apply_chat_template  # noqa: E402

# Has the fields of a server's configuration that the renderer reads, for a text-only model.
MODEL_CONFIG = SimpleNamespace(
    enable_prompt_embeds=False,
    multimodal_config=None,
    revision=None,
    tokenizer_revision=None,
    code_revision=None,
    trust_remote_code=False,
    model="",
    tokenizer="",
    hf_config=SimpleNamespace(model_type=""),
)


def render(tokenizer: PreTrainedTokenizerBase, template: str | None, body: dict[str, Any]) -> str:
    """Renders a request to text as the chat endpoint does (`OnlineRenderer.preprocess_chat`)."""
    request = ChatCompletionRequest.model_validate(body)
    tools = [tool.model_dump() for tool in request.tools] if request.tools is not None else None
    params = request.build_chat_params(template, "auto")
    params = params.with_defaults({"tokenize": False} | ({"tools": tools} if tools is not None else {}))
    arguments = params.get_apply_chat_template_kwargs()
    content_format = resolve_chat_template_content_format(
        chat_template=params.chat_template,
        tools=params.chat_template_kwargs.get("tools"),
        given_format="auto",
        tokenizer=tokenizer,
        model_config=MODEL_CONFIG,
    )
    conversation, _, _ = parse_chat_messages(request.messages, MODEL_CONFIG, content_format)
    return safe_apply_chat_template(MODEL_CONFIG, tokenizer, conversation, **arguments)


def renderings(corpus: list[dict[str, Any]], which: str) -> Iterator[dict[str, Any]]:
    directory, _, path = which.partition("=")
    tokenizer = AutoTokenizer.from_pretrained(directory)
    template = Path(path).read_text() if path else None
    for case in corpus:
        for prompts in (True, False):
            # Each rendering gets a copy, since vLLM changes the messages that it reads.
            body = json.loads(json.dumps(case["request"])) | {"model": "m", "add_generation_prompt": prompts}
            about = {"model": directory, "template": path, "name": case["name"], "add_generation_prompt": prompts}
            try:
                text = render(tokenizer, template, body)
            except Exception as error:  # noqa: BLE001 - the server answers any error with 400
                yield about | {"error": str(error)}
            else:
                yield about | {"text": text, "ids": tokenizer.encode(text, add_special_tokens=False)}


def main(corpus: Path, models: list[str]) -> None:
    cases = json.loads(corpus.read_text())
    for which in models:
        for rendering in renderings(cases, which):
            print(json.dumps(rendering))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), sys.argv[2:])
