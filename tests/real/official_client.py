"""Calls a model through a proxy with the official OpenAI client, as agents do. Prints the results as JSON.

usage: official_client.py PATH_BASE_URL HEADER_BASE_URL KEY
"""

import json
import sys

from openai import APIStatusError, OpenAI


def main(path_base_url: str, header_base_url: str, key: str) -> None:
    by_path = OpenAI(base_url=path_base_url, api_key="dummy", max_retries=0)
    by_header = OpenAI(base_url=header_base_url, api_key=key, max_retries=0)
    request = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "def main(): return"}],
        "max_tokens": 24,
        "temperature": 0,
        "extra_body": {"chat_template_kwargs": {"enable_thinking": False}},
    }
    whole = by_path.chat.completions.create(**request)
    streamed = {"content": "", "finish_reason": None, "usage": None}
    with by_header.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                streamed["content"] += choice.delta.content or ""
                streamed["finish_reason"] = choice.finish_reason or streamed["finish_reason"]
            if chunk.usage:
                streamed["usage"] = chunk.usage.completion_tokens
    refused = None
    try:
        OpenAI(base_url=header_base_url, api_key="dummy", max_retries=0).chat.completions.create(**request)
    except APIStatusError as error:
        refused = {"type": type(error).__name__, "message": error.message}
    print(json.dumps({
        "models": [model.id for model in by_path.models.list()],
        "whole": {
            "content": whole.choices[0].message.content,
            "finish_reason": whole.choices[0].finish_reason,
            "usage": whole.usage.completion_tokens if whole.usage else None,
            "extras": {key: whole.model_extra.get(key) for key in ("prompt_token_ids",)} if whole.model_extra else {},
            "logprobs": whole.choices[0].logprobs,
        },
        "streamed": streamed,
        "refused": refused,
    }))


if __name__ == "__main__":
    main(*sys.argv[1:])
