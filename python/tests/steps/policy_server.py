"""Serves a model of transformers in the shape of vLLM's chat completions, as far as the proxy reads it.

The text of a sampled token is its id in angle brackets, and the server reads such text as the token. So the second
turn of a conversation begins with the tokens of the first, also for a random model, whose tokens do not survive text.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

TOKEN = re.compile(r"<(\d+)>")


class Policy:
    """Samples from a model at temperature 1, the same tokens for the same seed and the same calls."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, seed: int) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._generator = torch.Generator().manual_seed(seed)
        self._one_at_a_time = threading.Lock()

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Returns vLLM's answer to a chat completion that asks for token ids and logprobs."""
        prompt = self._prompt(asked["messages"])
        with self._one_at_a_time:
            tokens, logprobs = self._sample(prompt, asked["max_tokens"])
        content = [{"token": f"token_id:{one}", "logprob": lp, "top_logprobs": []} for one, lp in zip(tokens, logprobs)]
        message = {"role": "assistant", "content": "".join(f"<{one}>" for one in tokens)}
        choice = {
            **{"index": 0, "message": message, "finish_reason": "length", "stop_reason": None},
            **{"token_ids": tokens, "logprobs": {"content": content}},
        }
        return {
            **{"id": "chatcmpl-1", "object": "chat.completion", "created": 0, "model": asked["model"]},
            **{"choices": [choice], "prompt_token_ids": prompt},
            "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(tokens)},
        }

    def _prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        ids = []
        for message in messages:
            ids += self._ids(f"<|im_start|>{message['role']}\n")
            ids += [int(one) for one in TOKEN.findall(message["content"])] or self._ids(message["content"])
            ids += self._ids("<|im_end|>\n")
        return ids + self._ids("<|im_start|>assistant\n")

    def _ids(self, text: str) -> list[int]:
        return self._tokenizer(text, add_special_tokens=False)["input_ids"]

    @torch.no_grad()
    def _sample(self, prompt: list[int], limit: int) -> tuple[list[int], list[float]]:
        tokens: list[int] = []
        logprobs: list[float] = []
        for _ in range(limit):
            logits = self._model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0, -1]
            all_logprobs = torch.log_softmax(logits.float(), dim=-1)
            tokens.append(int(torch.multinomial(all_logprobs.exp(), 1, generator=self._generator)))
            logprobs.append(float(all_logprobs[tokens[-1]]))
        return tokens, logprobs


@contextmanager
def served(policy: Policy) -> Iterator[str]:
    """Serves the policy, and yields the URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._send(200, {"object": "list", "data": []})

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path == "/v1/chat/completions":
                self._send(200, policy.answer(asked))
            else:
                self._send(404, {"error": {"message": f"{self.path} is not served", "code": 404}})

        def _send(self, status: int, body: dict[str, Any]) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Writes nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
