"""Calls a model through a proxy with the official Anthropic client, as agents do. Prints the results as JSON.

usage: messages_client.py BASE_URL
"""

import json
import sys

from anthropic import Anthropic, BadRequestError

TOOL = {
    "name": "look",
    "description": "Looks somewhere",
    "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]},
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
ASKED = {"model": "tiny", "max_tokens": 60, "system": "Be brief.", "extra_body": {"temperature": 0}}
HELLO = [{"role": "user", "content": "def main(): return"}]
FORCED = {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "look"}, "thinking": {"type": "disabled"}}


def both(client: Anthropic, **request):
    """Returns the whole answer, the answer that the client assembles from the stream, and the types of its events."""
    whole = client.messages.create(**ASKED, **request)
    with client.messages.stream(**ASKED, **request) as stream:
        events = [event.type for event in stream]
        streamed = stream.get_final_message()
    return {"whole": whole.to_dict(), "streamed": streamed.to_dict(), "events": events}


def refused(client: Anthropic, **request) -> str:
    try:
        client.messages.create(**{**ASKED, **request})
    except BadRequestError as error:
        return error.body["error"]["message"]
    return "not refused"


def main(base_url: str) -> None:
    client = Anthropic(base_url=base_url, api_key="dummy", max_retries=0, timeout=60)
    called = both(client, messages=HELLO, **FORCED)
    result = {"type": "tool_result", "tool_use_id": called["whole"]["content"][0]["id"], "content": "blue"}
    turns = HELLO + [
        {"role": "assistant", "content": called["whole"]["content"]},
        {"role": "user", "content": [result, {"type": "text", "text": "and?"}]},
    ]
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    print(json.dumps({
        "thought": both(client, messages=HELLO, thinking={"type": "adaptive"}),
        "plain": both(client, messages=HELLO, thinking={"type": "disabled"}),
        "called": called,
        "answered": both(client, messages=turns, tools=[TOOL]),
        "counted": client.messages.count_tokens(
            model="tiny", system="Be brief.", messages=turns, tools=[TOOL]
        ).input_tokens,
        "image": refused(client, messages=[{"role": "user", "content": [image]}]),
        "long": refused(client, messages=[{"role": "user", "content": "def " * 9000}]),
        "greedy": refused(client, messages=HELLO, max_tokens=100_000),
        "search": refused(client, messages=HELLO, tools=[{"type": "web_search_20250305", "name": "web_search"}]),
    }))


if __name__ == "__main__":
    main(*sys.argv[1:])
