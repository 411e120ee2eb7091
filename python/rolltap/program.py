"""Finds the program `rolltap`, and runs it as a server that ends no later than this process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping, Sequence
from pathlib import Path

TAIL_LINES = 20
"""The number of lines of a log that an error quotes."""

TAIL_BYTES = 8192
"""The number of bytes at the end of a log in which these lines are looked for."""


def find_program(program: str | os.PathLike[str] | None = None) -> str:
    """Returns the path of the program: `program`, else the value of ROLLTAP_PROGRAM, else `rolltap`.

    A name without a directory is looked up in the directories into which pip installs programs, then on PATH. Raises
    RuntimeError with the places if none has the program.
    """
    given = (os.environ.get("ROLLTAP_PROGRAM") or "rolltap") if program is None else os.fspath(program)
    places = [*_directories_of_pip(), *os.get_exec_path()] if os.path.dirname(given) == "" else []
    found = shutil.which(given, path=os.pathsep.join(places))
    if found is None:
        raise RuntimeError(_not_found(given, places))
    return found


def _directories_of_pip() -> list[str]:
    """Returns the directories for programs of an environment, of `pip install --user` and of `pip install --target`."""
    user = sysconfig.get_path("scripts", sysconfig.get_preferred_scheme("user"))
    target = Path(__file__).parent.parent / "bin"
    return [sysconfig.get_path("scripts"), user, str(target)]


def _not_found(given: str, places: Sequence[str]) -> str:
    where = f"in {', '.join(dict.fromkeys(places))}" if places else "at this path"
    return (
        f"there is no executable program {given!r} {where}: `pip install` of the package rolltap installs it, "
        "or set ROLLTAP_PROGRAM to its path"
    )


class Server:
    """A process of the program that has printed its addresses, and stops with this process.

    Its standard output and its log are files, so that it never waits for a reader. Its standard input is a pipe of
    this process, and `command` makes the program stop at the end of the pipe. A child that this process forks without
    executing another program holds the pipe too, so the program may last as long as that child.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], output: Path, log: Path) -> None:
        """Starts the process. Raises OSError if the program cannot be executed, or the files cannot be written."""
        self._name = " ".join(command[:2])
        self._output = output
        self._log = log
        with output.open("wb") as out, log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, **env},
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=errors,
                # Ctrl-C in a terminal reaches the whole process group. The program stops when this process is done.
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def address(self, before: str) -> str | None:
        """Returns the address of the first line that has the text `before` it. None if there is no such line yet.

        Raises RuntimeError with the end of the log if the process has ended.
        """
        # The process may print the line and end at once, so its end is looked at first.
        ended = self._process.poll()
        for line in self._output.read_text(errors="replace").splitlines(keepends=True):
            if before in line and line.endswith("\n"):
                return line.split(before, 1)[1].split()[0]
        if ended is not None:
            raise RuntimeError(f"`{self._name}` ended with {ended} before it listened:\n{self.tail()}")
        return None

    def tail(self) -> str:
        """Returns the last lines of the log."""
        with self._log.open("rb") as log:
            log.seek(max(0, self._log.stat().st_size - TAIL_BYTES))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-TAIL_LINES:])

    def ended(self) -> int | None:
        """Returns the exit status. None while the process runs."""
        return self._process.poll()

    def terminate(self) -> None:
        """Asks the process to stop."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends the process at once if it still runs, and releases its pipe."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
