"""Trains a small language model at terminal tasks by reinforcement learning on this machine's CPU, with real parts
only.

Imitation first teaches a model of half a million weights to write like a terminal agent and to fail three times in
four. vLLM serves the model, and the unmodified terminal agent works at Harbor tasks in rolltap's service. The captured tokens
train the model, step by step, until it succeeds. docs/tutorials/a-policy-learns.md is the tutorial.

    examples/learn/learn --out runs/first
    examples/learn/learn --out runs/first            (resumes where it was interrupted)
    examples/learn/learn --out runs/permuted --control permuted --taught runs/first/taught
    examples/learn/learn --out runs/ahead --ahead 2
    examples/learn/learn --out runs/mini --agent mini-swe-agent
"""

from __future__ import annotations

import argparse
import fcntl
import json
import time
from pathlib import Path

import agent_formats
import corruptions
import launch
import report
import teach
import teacher
import torch
from job import copy_tasks
from loop import Sampling, learn
from processes import Processes, Say, Stopped
from rollouts import MAX_STALENESS
from trainer import Settings, Trainer, last_reward

TEACHER_TURNS = 10
TEACHER_TRIALS = 12
"""Trials of the teacher at once, at most."""


def arguments() -> argparse.ArgumentParser:
    """Returns the parser of the flags."""
    parser = launch.parser("examples/learn/learn", __doc__, steps=25)
    parser.add_argument("--discount", type=float, default=0.93, help="what a turn more leaves of a reward's worth")
    parser.add_argument("--penalty", type=float, default=0.03, help="on the divergence from the policy at the start, per token")
    ahead = range(MAX_STALENESS + 1)
    parser.add_argument("--ahead", type=int, choices=ahead, default=0, help="steps that are sampled before their turn")
    parser.add_argument("--control", choices=list(corruptions.KINDS), default="none", help="damage what is trained on")
    teaching = parser.add_argument_group("the model to begin with")
    teaching.add_argument("--taught", type=Path, help="where the taught model is, or is made if it is not; OUT/taught unless said")
    teaching.add_argument("--teach-only", action="store_true", help="make it, and stop there")
    teaching.add_argument("--transcripts", type=int, default=500, help="of the teacher")
    teaching.add_argument("--teaching-steps", type=int, default=900)
    return parser


def run(flags: argparse.Namespace, say: Say) -> None:
    """Runs all remaining steps, beginning with the first step that is not done."""
    remember_flags(flags)
    torch.manual_seed(flags.seed)
    processes = Processes(flags.out)
    processes.end_leftovers(say)
    tasks = flags.out / "tasks"
    groups = copy_tasks(tasks, flags.base_image, flags.tasks, flags.groups)
    taught = teach_one(flags, tasks, say)
    if flags.teach_only:
        return
    settings = Settings(flags.learning_rate, flags.steps, flags.discount, flags.penalty, flags.control, flags.seed, flags.program)
    trainer = Trainer(taught, flags.out, settings, say)
    if trainer.state.step < flags.steps:
        go_on(flags, trainer, tasks, groups, processes, say)
    rows = trainer.state.table
    if rows:
        report.write(flags.out, trainer.state)
        say(
            f"reward {last_reward(rows[:1], 1):.2f} at first, {last_reward(rows):.2f} in the last three steps; "
            f"table and plot in {flags.out}"
        )


def go_on(
    flags: argparse.Namespace, trainer: Trainer, tasks: Path, groups: list[str], processes: Processes, say: Say
) -> None:
    """Starts the servers and trains from the current step to the last one."""
    if trainer.state.step:
        say(f"resuming after step {trainer.state.step - 1}, with {len(trainer.state.trained)} trials trained")
    services = launch.servers(flags, tasks, trainer.policy_folder, processes, say, flags.ahead)
    sampling = Sampling(services, groups, flags.group_size, trainer.state.step, flags.steps)
    try:
        services.start(trainer.state.step)
        learn(trainer, services, sampling, flags.out, steps=flags.steps, ahead=flags.ahead, say=say)
    finally:
        services.stop()
        processes.end_leftovers(lambda _: None)


def teach_one(flags: argparse.Namespace, tasks: Path, say: Say) -> Path:
    """Makes a model that imitates the teacher's transcripts, and returns its folder. A lock ensures that two runs
    with the same folder make the model once."""
    folder: Path = flags.taught or flags.out / "taught"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (folder / "config.json").exists():
            return folder
        begin = time.monotonic()
        agent = agent_formats.AGENTS[flags.agent]
        say(f"teaching: {flags.transcripts} transcripts of the teacher with {agent.name}")
        samples = flags.transcripts // (flags.groups * len(flags.tasks))
        job = teacher.transcribe(
            agent,
            flags.program,
            tasks,
            flags.out / "teacher",
            samples=samples,
            turns=TEACHER_TURNS,
            concurrency=min(flags.concurrency, TEACHER_TRIALS),
            seed=flags.seed,
        )
        # The rename makes the folder appear only when the model is complete.
        aside = folder.with_name(f"{folder.name}.new")
        teach.teach(
            agent_formats.transcripts(agent, job),
            aside,
            shows_prompt=agent.shows_prompt,
            seed=flags.seed,
            steps=flags.teaching_steps,
            say=say,
        )
        aside.replace(folder)
        say(f"teaching took {time.monotonic() - begin:.0f} s")
    return folder


def remember_flags(flags: argparse.Namespace) -> None:
    """Writes the flags of the run to flags.json. Flags that determine the result must not change when a run resumes."""
    file = flags.out / "flags.json"
    fixed = ("groups", "group_size", "tasks", "discount", "penalty", "learning_rate", "max_turns", "seed", "env", "agent", "control", "ahead")
    now = {name: getattr(flags, name) for name in fixed}
    if file.exists() and (before := json.loads(file.read_text())) != now:
        changed = ", ".join(f"{name} was {before.get(name)}" for name in fixed if before.get(name) != now[name])
        raise Stopped(f"{flags.out} is a run with other settings ({changed}); choose another --out")
    file.write_text(json.dumps(now, indent=2))


if __name__ == "__main__":
    launch.launch(arguments(), run, "all finished steps are saved; the same command resumes after them")
