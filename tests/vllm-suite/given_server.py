"""A pytest plugin: vLLM's tests talk to a server that runs already, instead of starting their own.

Their servers have models from the hub and want a GPU. What a test asks for (model, arguments) is
dropped; the one server that is given answers to every model name. It also writes down how each
test ended, in one word and with the line of the test that failed, for compare.py.

Reads from the environment: SUITE_URL (the server's, without /v1), SUITE_MODEL (the directory of
the served model), SUITE_OUTCOMES (the JSON file to write).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

URL = os.environ["SUITE_URL"]
MODEL = os.environ["SUITE_MODEL"]
OUTCOMES = Path(os.environ["SUITE_OUTCOMES"])

outcomes: dict[str, str] = {}
messages: dict[str, str] = {}


# Before the files named conftest.py are read, which import the class by its name.
@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    give_server()
    give_model()


def give_server() -> None:
    import tests.utils

    class GivenServer(tests.utils.RemoteOpenAIServer):
        """Has the addresses and clients of vLLM's class, and no process."""

        uds = None
        show_hidden_metrics = False

        def __init__(self, *_: Any, **__: Any) -> None:
            pass

        def __exit__(self, *_: object) -> None:
            pass

        @property
        def url_root(self) -> str:
            return URL

    tests.utils.RemoteOpenAIServer = GivenServer
    tests.utils.RemoteLaunchRenderServer = GivenServer


def give_model() -> None:
    """Tokenizers, weights and adapters of the tests' models are the served model's own."""
    import transformers
    import vllm.model_executor.model_loader.weight_utils as weights
    import vllm.tokenizers
    from huggingface_hub import HfApi

    get_tokenizer = vllm.tokenizers.get_tokenizer
    vllm.tokenizers.get_tokenizer = lambda *_, **__: get_tokenizer(MODEL)
    HfApi.snapshot_download = lambda *_, **__: MODEL
    weights.download_weights_from_hf = lambda *_, **__: MODEL
    for kind in (
        transformers.AutoTokenizer,
        transformers.AutoConfig,
        transformers.AutoModelForCausalLM,
    ):
        load = kind.from_pretrained
        # A classmethod: `load` is bound to its class already.
        kind.from_pretrained = lambda _name, *_, load=load, **kw: load(MODEL, **kw)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    name = item.nodeid.removeprefix("tests/entrypoints/")
    if report.skipped:
        outcomes[name] = "skipped"
    elif report.failed:
        outcomes[name] = how_it_failed(item, call)
        messages[name] = str(call.excinfo.value)[:600] if call.excinfo else ""
    elif report.when == "call":
        outcomes[name] = "passed"
    return report


def how_it_failed(item: pytest.Item, call: pytest.CallInfo[None]) -> str:
    """The exception's name, and the last line of the test's file that it passed through."""
    if call.excinfo is None:
        return call.when
    where = ""
    for entry in call.excinfo.traceback:
        if Path(entry.path) == item.path:
            where = f" at line {entry.lineno + 1}"
    stage = "" if call.when == "call" else f" in {call.when}"
    return call.excinfo.typename + stage + where


def pytest_sessionfinish() -> None:
    # Tests are known by name: a file that cannot be imported has none, and says so here.
    OUTCOMES.write_text(json.dumps({"outcomes": outcomes, "messages": messages}, indent=1))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        print(f"given_server: {report.nodeid} cannot be collected", file=sys.stderr)
        outcomes[report.nodeid.removeprefix("tests/entrypoints/")] = "not collected"
