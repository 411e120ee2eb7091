"""Provides what all trainers of this example share: flags, the log, and the servers of a run."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from agent_formats import AGENTS
from engine import Engine
from job import BASE, write_job
from processes import Processes, Say, Stopped, free_ports
from services import Services
from transformers.utils.logging import disable_progress_bar

LEARNING_RATE = 3e-4


def parser(command: str, description: str | None, *, steps: int) -> argparse.ArgumentParser:
    """Returns a parser with the flags for sampling and for the programs that a run uses."""
    made = argparse.ArgumentParser(
        prog=command, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--out", type=Path, required=True, help="folder of the run")
    made.add_argument("--steps", type=positive, default=steps)
    made.add_argument("--groups", type=positive, default=4, help="of each task in a step")
    made.add_argument("--group-size", type=positive, default=8, help="samples that are weighed against each other")
    made.add_argument("--tasks", nargs="+", default=["web"], help="of examples/learn/tasks")
    made.add_argument("--agent", choices=list(AGENTS), default="terminal", help="the agent that works at the tasks")
    made.add_argument("--learning-rate", type=float, default=LEARNING_RATE, help="of the first step")
    made.add_argument("--max-turns", type=positive, default=10, help="answers of one episode")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("-e", "--env", choices=["docker", "local"], default="docker", help="where trials run")
    made.add_argument("-n", "--concurrency", type=positive, default=24, help="trials at once")
    programs = made.add_argument_group("programs")
    programs.add_argument("--program", default="rolltap", help="rolltap")
    programs.add_argument("--vllm-python", default=sys.executable, help="the Python that has vLLM")
    programs.add_argument("--base-image", default=BASE, help="what the tasks' images are built on")
    return made


def parser_of_another(trainer: str, description: str | None) -> argparse.ArgumentParser:
    """Returns the parser of a run in which another trainer replaces the example's own."""
    made = parser(f"examples/learn/learn --with {trainer}", description, steps=3)
    made.add_argument("--taught", type=model_folder, required=True, help="the model to begin with (OUT/taught of another run)")
    return made


def positive(text: str) -> int:
    """Parses a flag that is a whole number above 0."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text} is no whole number above 0")
    return int(text)


def model_folder(text: str) -> Path:
    """Parses a flag that is the folder of a model."""
    if not (Path(text) / "config.json").is_file():
        raise argparse.ArgumentTypeError(f"{text} holds no model")
    return Path(text)


def launch(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace, Say], None], how_to_go_on: str) -> NoReturn:
    """Calls `run` with the flags of the command line and exits. If the run ends early, logs the reason and
    `how_to_go_on`."""
    flags = parser.parse_args()
    # Without this check the run would fail only after vLLM has started if `rolltap` is not installed.
    if shutil.which(flags.program) is None:
        parser.error(f"there is no program {flags.program}; name rolltap's with --program")
    disable_progress_bar()
    # SIGTERM ends the servers too, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    flags.out.mkdir(parents=True, exist_ok=True)
    say = sayer(flags.out / "learn.log")
    try:
        run(flags, say)
    except Stopped as why:
        say(f"stopped: {why}")
        say(how_to_go_on)
        sys.exit(1)
    except KeyboardInterrupt:
        say(f"interrupted; {how_to_go_on}")
        sys.exit(130)
    sys.exit(0)


def servers(
    flags: argparse.Namespace, tasks: Path, policy: Path, processes: Processes, say: Say, ahead: int | None = None
) -> Services:
    """Returns vLLM on the policy's folder, and the service for the tasks. Starts none of them.

    The service samples at most `ahead` steps ahead of the trainer. `None` means without a limit.
    """
    served, admin = free_ports(2)
    agent = AGENTS[flags.agent]
    engine = Engine(flags.vllm_python, policy, served, flags.seed, agent.vllm_flags, processes, say)
    file = flags.out.absolute() / "job.json"
    write_job(
        file,
        tasks,
        engine.url,
        agent=agent,
        environment=flags.env,
        concurrency=flags.concurrency,
        max_turns=flags.max_turns,
    )
    command = [flags.program, "serve", "-c", str(file), "--admin", f"127.0.0.1:{admin}"]
    if ahead is not None:
        groups = flags.groups * len(flags.tasks)
        command += ["--max-staleness", str(ahead), "--groups-per-step", str(groups)]
    return Services(command, f"http://127.0.0.1:{admin}", engine, processes, say)


def sayer(log: Path) -> Say:
    """Returns a function that writes lines with the time to standard error and to `log`."""

    def say(what: str) -> None:
        line = f"{time.strftime('%H:%M:%S')} {what}"
        print(line, file=sys.stderr, flush=True)
        with log.open("a") as out:
            print(line, file=out)

    return say
