"""Calls a model through a proxy with Google's client, as agents with Gemini's dialect do. Prints the results as JSON.

usage: google_genai.py BASE_URL
"""

import json
import sys

from google import genai
from google.genai import errors, types

MODEL = "tiny"
PROMPT = "def main(): return"
SHORT = {"temperature": 0, "max_output_tokens": 24}
SHELL = types.FunctionDeclaration(
    name="shell",
    description="Runs a command.",
    parameters=types.Schema(type="OBJECT", properties={"command": types.Schema(type="STRING")}, required=["command"]),
)


def parts_of(answers: list) -> dict:
    """Joins the chunks of an answer into its texts, calls, finish reason, token counts and model."""
    parts = [part for answer in answers for part in answer.candidates[0].content.parts or []]
    usage = answers[-1].usage_metadata
    return {
        "text": "".join(part.text or "" for part in parts if not part.thought),
        "thoughts": "".join(part.text or "" for part in parts if part.thought),
        "signed": any(part.thought_signature for part in parts),
        "calls": [{"name": part.function_call.name, "args": part.function_call.args} for part in parts if part.function_call],
        "finish_reason": answers[-1].candidates[0].finish_reason.name,
        # The sum of both counts: vLLM counts thoughts differently in a stream and in a whole answer.
        "tokens": [usage.prompt_token_count, (usage.thoughts_token_count or 0) + (usage.candidates_token_count or 0)],
        "model": answers[-1].model_version,
    }


def both(client, contents, **config) -> dict:
    config = types.GenerateContentConfig(**config)
    whole = client.models.generate_content(model=MODEL, contents=contents, config=config)
    stream = client.models.generate_content_stream(model=MODEL, contents=contents, config=config)
    return {"whole": parts_of([whole]), "streamed": parts_of(list(stream))}


def refused(client, contents, **config) -> dict:
    try:
        client.models.generate_content(model=MODEL, contents=contents, config=types.GenerateContentConfig(**config))
    except errors.ClientError as error:
        return {"code": error.code, "status": error.status, "message": error.message}
    return {}


def chat(client) -> int:
    """Streams two turns of a conversation whose history the client stores, and returns the number of user turns."""
    thinking = types.ThinkingConfig(include_thoughts=False)
    chat = client.chats.create(model=MODEL, config=types.GenerateContentConfig(**SHORT, thinking_config=thinking))
    for _ in range(2):
        for _ in chat.send_message_stream(PROMPT):
            pass
    return len([content for content in chat.get_history() if content.role == "user"])


def main(base_url: str) -> None:
    options = types.HttpOptions(base_url=base_url, retry_options=types.HttpRetryOptions(attempts=1))
    client = genai.Client(api_key="dummy", http_options=options)
    tools = {
        "tools": [types.Tool(function_declarations=[SHELL])],
        "tool_config": types.ToolConfig(function_calling_config=types.FunctionCallingConfig(mode="ANY")),
        "automatic_function_calling": types.AutomaticFunctionCallingConfig(disable=True),
    }
    search = [types.Tool(google_search=types.GoogleSearch())]
    schema = {"type": "OBJECT", "properties": {"yes": {"type": "BOOLEAN"}}, "required": ["yes"]}
    seen = {
        "thinking": both(client, PROMPT, **SHORT, thinking_config=types.ThinkingConfig(include_thoughts=True)),
        "plain": both(client, PROMPT, **SHORT, thinking_config=types.ThinkingConfig(thinking_budget=0)),
        "tools": both(client, PROMPT, temperature=0, seed=1, max_output_tokens=256, **tools),
        "json": both(
            client, PROMPT, temperature=0, max_output_tokens=256, response_mime_type="application/json",
            response_schema=schema, thinking_config=types.ThinkingConfig(thinking_budget=0),
        ),
        "counted": client.models.count_tokens(model=MODEL, contents=PROMPT).total_tokens,
        "turns": chat(client),
        "overflow": refused(client, "word " * 20000),
        "search": refused(client, PROMPT, tools=search),
    }
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
