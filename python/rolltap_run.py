"""The id under which verifiers finds the harness that runs whole trials."""

from rolltap.trainers.verifiers_run import RunHarness

__all__ = ["RunHarness"]
