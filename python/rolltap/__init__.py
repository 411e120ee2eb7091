"""Brings rollouts of unmodified agents from a rolltap proxy to a trainer.

`Proxy` runs a proxy for the time of a `with` block. `Client` and `AsyncClient` are clients of its admin plane, and
`run_trial` runs an agent as a trial. Each module of `rolltap.trainers` converts rollouts to one trainer's own objects.
This package does not import these modules, so that no trainer needs to be installed.
"""

from rolltap.client import AsyncClient, Client, OpenedTrial
from rolltap.errors import RolltapError
from rolltap.lines import read_lines
from rolltap.prepare import Prepare, earned, prepared_rows
from rolltap.proxy import Proxy
from rolltap.row import CallSpan, Prepared, PreparedRow, Row, Trial
from rolltap.submissions import Submission, SubmissionRequest, SubmissionState, SubmittedGroup
from rolltap.trial import Agent, Outcome, run_trial

__all__ = [
    "Agent",
    "AsyncClient",
    "CallSpan",
    "Client",
    "OpenedTrial",
    "Outcome",
    "Prepare",
    "Prepared",
    "PreparedRow",
    "Proxy",
    "RolltapError",
    "Row",
    "Submission",
    "SubmissionRequest",
    "SubmissionState",
    "SubmittedGroup",
    "Trial",
    "earned",
    "prepared_rows",
    "read_lines",
    "run_trial",
]
