"""Calls a model through a proxy with LiteLLM, as many agents do. Prints the results as JSON.

usage: litellm_client.py BASE_URL
"""

import json
import sys

import litellm

TOOL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Runs a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string", "enum": ["ls"]}}, "required": ["command"]},
    },
}


def call(base_url: str, **more):
    return litellm.completion(
        model="openai/tiny",
        api_base=base_url,
        api_key="dummy",
        messages=[{"role": "user", "content": "def main(): return"}],
        temperature=0,
        num_retries=0,
        # Without thinking, 24 tokens are enough for some text of the answer.
        extra_body={"chat_template_kwargs": {"enable_thinking": False}},
        **more,
    )


def main(base_url: str) -> None:
    whole = call(base_url, max_tokens=24)
    chunks = list(call(base_url, max_tokens=24, stream=True, stream_options={"include_usage": True}))
    streamed = litellm.stream_chunk_builder(chunks)
    tools = call(base_url, max_tokens=256, tools=[TOOL], tool_choice={"type": "function", "function": {"name": "shell"}})
    overflow = None
    try:
        long = [{"role": "user", "content": "word " * 20000}]
        litellm.completion(model="openai/tiny", api_base=base_url, api_key="dummy", messages=long, num_retries=0)
    except litellm.ContextWindowExceededError as error:
        overflow = type(error).__name__
    print(json.dumps({
        "whole": whole.choices[0].message.content,
        "streamed": streamed.choices[0].message.content,
        "usage": [whole.usage.completion_tokens, streamed.usage.completion_tokens, tools.usage.completion_tokens],
        "called": [tool_call.function.name for tool_call in tools.choices[0].message.tool_calls or []],
        "overflow": overflow,
    }))


if __name__ == "__main__":
    main(*sys.argv[1:])
