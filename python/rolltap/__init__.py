"""Rollouts of unmodified agents, from a rolltap proxy to a trainer.

`Client` and `AsyncClient` speak the proxy's admin plane, `run_trial` runs an agent as a trial, and each module of
`rolltap.trainers` turns what comes out into one trainer's own objects. None of those is imported here, so that no
trainer needs to be installed.
"""

from rolltap.client import AsyncClient, Client, OpenedTrial
from rolltap.errors import RolltapError
from rolltap.lines import read_lines
from rolltap.row import CallSpan, Row, Trial, loss_mask
from rolltap.trial import Agent, Outcome, run_trial

__all__ = [
    "Agent",
    "AsyncClient",
    "CallSpan",
    "Client",
    "OpenedTrial",
    "Outcome",
    "RolltapError",
    "Row",
    "Trial",
    "loss_mask",
    "read_lines",
    "run_trial",
]
