"""The id under which verifiers finds Harbor tasks and the harness that types: it takes names of modules without a dot."""

from rolltap.trainers.verifiers_terminal import HarborTaskset, TerminalHarness

__all__ = ["HarborTaskset", "TerminalHarness"]
