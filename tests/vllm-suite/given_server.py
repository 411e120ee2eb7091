"""Is a pytest plugin that gives vLLM's tests a running server, instead of servers that they start.

The tests' own servers have models from the hub and need a GPU. The plugin ignores the model and the
arguments that a test requests: the given server accepts every model name. For compare.py the plugin
writes how each test ended, and for a failure its exception and the line of the test.

It reads from the environment: SUITE_URL (the URL of the server, without /v1), SUITE_MODEL (the
directory of the served model), SUITE_OUTCOMES (the JSON file to write).
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


# Runs before pytest loads the conftest.py files, since they import the server class by name.
@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    give_server()
    give_model()


def give_server() -> None:
    import tests.utils

    class GivenServer(tests.utils.RemoteOpenAIServer):
        """Has the URLs and clients of vLLM's class, but starts no process."""

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
    """Replaces the tokenizers, weights and adapters that tests load with those of the served model."""
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
        # `from_pretrained` is a classmethod, so `load` is already bound to its class.
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
    """Returns the name of the exception, and the last line of the test's file in its traceback.

    Adds the stage if the failure was in set-up or tear-down.
    """
    if call.excinfo is None:
        return call.when
    where = ""
    for entry in call.excinfo.traceback:
        if Path(entry.path) == item.path:
            where = f" at line {entry.lineno + 1}"
    stage = "" if call.when == "call" else f" in {call.when}"
    return call.excinfo.typename + stage + where


def pytest_sessionfinish() -> None:
    OUTCOMES.write_text(json.dumps({"outcomes": outcomes, "messages": messages}, indent=1))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    # A file that cannot be imported has no tests to report, so it gets an outcome of its own.
    if report.failed:
        print(f"given_server: {report.nodeid} cannot be collected", file=sys.stderr)
        outcomes[report.nodeid.removeprefix("tests/entrypoints/")] = "not collected"
