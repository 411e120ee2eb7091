"""Runs an episode at a Harbor task with Gymnasium: `python gymnasium_terminal.py [TASK_DIR] [docker|local]`."""

import sys

import gymnasium

from rolltap.env import serve

task_dir = sys.argv[1] if len(sys.argv) > 1 else "../examples/tasks/hello-file"
environment = sys.argv[2] if len(sys.argv) > 2 else "docker"

with serve(["-e", environment]) as server:
    name = "rolltap.env.gymnasium_env:RolltapTerminal-v0"
    env = gymnasium.make(name, task_dir=task_dir, server=server, environment=environment)
    observation, info = env.reset()
    print(info["instruction"], observation, sep="\n")
    env.step({"keystrokes": "echo 'Hello, world!' > /app/hello.txt\n", "duration": 0.5})
    observation, reward, terminated, truncated, info = env.step({"commands": [], "task_complete": True})
    print(f"{observation}\nreward {reward}, all of {info['rewards']}")
    env.close()
