"""Lets verifiers find the harness that runs whole trials, by the id `rolltap_run`."""

from rolltap.trainers.verifiers_run import RunHarness

__all__ = ["RunHarness"]
