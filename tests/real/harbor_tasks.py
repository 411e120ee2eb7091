"""Prints the verdict of Harbor's own code about each task of a corpus: `ok`, or the class of the exception."""

import json
import logging
import sys
import tempfile
from pathlib import Path

from harbor.models.task.task import Task

TRAJECTORY = '{"schema_version": "ATIF-v1.8", "steps": [{}]}'


def make(root: Path, toml: str, files: list[str]) -> None:
    (root / "task.toml").write_text(toml)
    for entry in files:
        kind, _, file = entry.rpartition(" ")
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link-out":
            path.symlink_to("/etc/hostname")
        elif kind == "link":
            path.symlink_to("test.sh")
        else:
            path.write_text(TRAJECTORY if file == "trajectory.json" else "x\n")


def verdict(toml: str, files: list[str]) -> str:
    with tempfile.TemporaryDirectory() as root:
        make(Path(root), toml, files)
        try:
            Task(root)
        except Exception as error:
            return type(error).__name__
        return "ok"


logging.disable(logging.CRITICAL)
corpus = json.loads(Path(sys.argv[1]).read_text())
tasks = corpus["shapes"] + corpus["odd"]
print(json.dumps([verdict(task["toml"], task["files"]) for task in tasks]))
