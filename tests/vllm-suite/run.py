"""Runs vLLM's server tests against vLLM and through rolltap, and compares how they ended.

usage: python run.py --program ROLLTAP --suite FOLDER --long-model FOLDER [GROUP…]

FOLDER of --suite has vLLM's `tests`, pytest (`packages`) and the talking `model`. FOLDER of --long-model
is the testbed's model. scripts/vllm-suite runs this program, with the testbed's Python.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from compare import Comparison, Ends, expected_differences, show_surprises, show_table

HERE = Path(__file__).resolve().parent
VLLM = HERE.parent.parent / "scripts" / "vllm"
TEST_SECONDS = 60
# Tests with an unexpected end run again: the result of some depends on sampling or on time.
ATTEMPTS = 3


@contextlib.contextmanager
def vllm(group: dict[str, Any], common: dict[str, Any], model: Path) -> Iterator[str]:
    parsers = [] if group["parsers"] else ["--no-parsers"]
    arguments = ["--", f"--model={model}", *common["arguments"], *group["arguments"]]
    arguments += ["--served-model-name", *common["models"], str(model)]
    start = [VLLM, "start", "--port", "0", "--model", "long", *parsers, *arguments]
    environment = os.environ | common["environment"]
    started = subprocess.run(start, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    url = started.stdout.strip()
    try:
        yield url
    finally:
        subprocess.run([VLLM, "stop", "--port", url.rsplit(":", 1)[1]], check=True)


@contextlib.contextmanager
def proxy(program: Path, upstream: str) -> Iterator[str]:
    """Runs a proxy in front of `upstream` and yields the URL of its admin plane."""
    with tempfile.TemporaryDirectory() as data:
        log = Path(data) / "log"
        command = [program, "proxy", "--upstream", upstream, "--data", f"{data}/captures"]
        command += ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        with (
            log.open("w") as out,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=out, text=True) as running,
        ):
            assert running.stdout
            try:
                for line in running.stdout:
                    if listens := re.match(r"admin plane listens on (\S+)", line):
                        yield listens[1]
                        break
                else:
                    sys.exit(f"vllm-suite: rolltap did not start:\n{log.read_text()}")
            finally:
                running.terminate()


def open_trial(admin: str) -> str:
    """Opens a trial and returns its base URL without /v1, which the tests use instead of vLLM's URL."""
    request = urllib.request.Request(
        f"{admin}/v1/trials", b'{"task_id": "vllm-suite"}', {"content-type": "application/json"}
    )
    # Ignore the environment's proxy variables: both programs run on this machine.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return json.load(answer)["base_urls"]["openai"].removesuffix("/v1")


def run_tests(tests: list[str], url: str, model: Path, options: argparse.Namespace, name: str) -> Ends:
    outcomes = options.suite / "outcomes" / f"{name}.json"
    outcomes.parent.mkdir(exist_ok=True)
    outcomes.unlink(missing_ok=True)
    environment = os.environ | {
        "SUITE_URL": url,
        "SUITE_MODEL": str(model),
        "SUITE_OUTCOMES": str(outcomes),
        "PYTHONPATH": f"{options.suite}/packages:{options.suite}:{HERE}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "NO_PROXY": "127.0.0.1,localhost",
        "no_proxy": "127.0.0.1,localhost",
    }
    command = [sys.executable, "-m", "pytest", "-p", "given_server", "-p", "no:cacheprovider"]
    command += ["-c", os.devnull, "--rootdir", str(options.suite), "-o", "asyncio_mode=auto"]
    # Use Python's own traceback: pytest's formatter fails on sources that it cannot parse this deep in a call.
    command += ["-q", "-W", "ignore", "--tb=native", "--timeout", str(TEST_SECONDS)]
    for test in options.left_out:
        command += ["--deselect", f"tests/entrypoints/{test}"]
    command += [f"tests/entrypoints/{test}" for test in tests]
    log = outcomes.with_suffix(".log")
    with log.open("w") as out:
        # The exit status only shows that tests failed, and some fail on both sides.
        subprocess.run(command, cwd=options.suite, env=environment, stdout=out, stderr=out, check=False)
    if not outcomes.exists():
        sys.exit(f"vllm-suite: pytest broke off:\n{''.join(log.read_text()[-4000:])}")
    read = json.loads(outcomes.read_text())
    return Ends(read["outcomes"], read["messages"])


def run_group(name: str, suite: dict[str, Any], options: argparse.Namespace) -> Comparison:
    group = suite["groups"][name]
    expected = {
        test: ends for test, ends in options.expected.items() if test.split("::")[0] in group["files"]
    }
    say(f"group {name}: {len(group['files'])} files of vLLM's tests")
    model = options.suite / "model" if group["model"] == "talking" else options.long_model
    with vllm(group, suite["common"], model) as url, proxy(options.program, url) as admin:
        comparison = Comparison(group["files"], expected)
        tests = group["files"]
        for attempt in range(1, ATTEMPTS + 1):
            direct = run_tests(tests, url, model, options, f"{name}-{attempt}-direct")
            proxied = run_tests(tests, open_trial(admin), model, options, f"{name}-{attempt}-proxied")
            comparison.add(direct, proxied)
            tests = comparison.surprises()
            if not tests:
                break
            say(f"group {name}: {len(tests)} tests ended unexpectedly, attempt {attempt}")
    show_surprises(comparison)
    return comparison


def say(text: str) -> None:
    print(f"vllm-suite: {text}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", type=Path, required=True)
    parser.add_argument("--suite", type=Path, required=True)
    parser.add_argument("--long-model", type=Path, required=True)
    parser.add_argument("groups", nargs="*")
    options = parser.parse_args()
    options.program = options.program.resolve()
    suite = tomllib.loads((HERE / "suite.toml").read_text())
    if unknown := set(options.groups) - set(suite["groups"]):
        sys.exit(f"vllm-suite: no group {', '.join(sorted(unknown))}; there are {', '.join(suite['groups'])}")
    options.left_out = suite["left_out"]
    options.expected = expected_differences(HERE / "expected-differences.toml")
    # SIGTERM raises SystemExit, so that the context managers stop the servers.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    comparisons = [run_group(name, suite, options) for name in options.groups or suite["groups"]]
    show_table(comparisons)
    return 0 if all(comparison.holds() for comparison in comparisons) else 1


if __name__ == "__main__":
    sys.exit(main())
