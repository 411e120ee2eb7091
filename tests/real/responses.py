"""Requests responses of every kind with the official OpenAI client, as agents do. Prints the results as JSON.

usage: responses.py BASE_URL
"""

import json
import sys
from typing import Literal

from openai import APIStatusError, OpenAI
from pydantic import BaseModel

NO_THINKING = {"chat_template_kwargs": {"enable_thinking": False}}
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
PATCH = {"type": "custom", "name": "patch", "description": "Edits a file."}


class Number(BaseModel):
    number: Literal[7, 42]


def says(regex: str) -> dict:
    """Returns the extra body that makes the random model answer in this form and then stop."""
    return {**NO_THINKING, "structured_outputs": {"regex": regex}}


def calls(name: str, arguments: str) -> dict:
    """Returns the extra body that makes the random model call a tool, in the form of vLLM's tool-call parser."""
    return says(r'<tool_call>\n\{"name": "%s", "arguments": \{%s\}\}\n</tool_call>' % (name, arguments))


def refused(ask) -> APIStatusError:
    try:
        ask()
    except APIStatusError as error:
        return error
    raise AssertionError("it was not refused")


def main(base_url: str) -> None:
    client = OpenAI(base_url=base_url, api_key="dummy", max_retries=0)
    seen = {}

    def ask(**request):
        seen["answers"] = seen.get("answers", 0) + 1
        return client.responses.create(**{"model": "tiny", "input": "Hello", "max_output_tokens": 64, **request})

    def stream(**request):
        seen["answers"] += 1
        with client.responses.stream(**{"model": "tiny", "input": "Hello", "max_output_tokens": 64, **request}) as events:
            numbers = [event.sequence_number for event in events]
            assert numbers == sorted(numbers)
            return events.get_final_response()

    greedy = {"temperature": 0, "extra_body": says("[a-z]{4} [a-z]{4}")}
    whole = ask(**greedy)
    seen["whole"], seen["streamed"] = whole.output_text, stream(**greedy).output_text
    assert whole.output_text and whole.usage.output_tokens, whole
    more = ask(input="And then?", previous_response_id=whole.id, **greedy)
    assert more.previous_response_id == whole.id and more.usage.input_tokens > whole.usage.input_tokens
    seen["reasoned"] = [item.type for item in ask(max_output_tokens=8, include=["reasoning.encrypted_content"]).output]

    choice = {"tools": [WEATHER], "extra_body": calls("weather", '"city": "(Rome|Oslo)"')}
    called = ask(**choice)
    seen["called"] = [[item.type, item.name] for item in called.output]
    assert json.loads(called.output[0].arguments)["city"] in ("Rome", "Oslo")
    result = {"type": "function_call_output", "call_id": called.output[0].call_id, "output": "sunny"}
    assert ask(input=[result], previous_response_id=called.id, tools=[WEATHER], extra_body=says("[a-z]{4}")).output_text
    seen["called_stream"] = [[item.type, item.name] for item in stream(**choice).output]

    custom = ask(tools=[PATCH], extra_body=calls("patch", '"input": "[a-z]{5}"')).output[-1]
    seen["custom"] = [custom.type, custom.name, len(custom.input) == 5]

    seen["answers"] += 1
    parsed = client.responses.parse(model="tiny", input="Hello", text_format=Number, temperature=0, max_output_tokens=200, extra_body=NO_THINKING)
    seen["parsed"] = parsed.output_parsed.number
    cut = ask(max_output_tokens=4)
    seen["cut"] = [cut.status, cut.incomplete_details.reason]

    unknown = refused(lambda: client.responses.create(model="tiny", input="x", previous_response_id="resp_none"))
    seen["unknown"] = [type(unknown).__name__, unknown.param]
    overflow = refused(lambda: client.responses.create(model="tiny", input="many words " * 5000))
    seen["overflow"] = [type(overflow).__name__, overflow.code]
    print(json.dumps(seen))


if __name__ == "__main__":
    main(*sys.argv[1:])
