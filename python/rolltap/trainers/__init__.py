"""A module per trainer: an exported line becomes the trainer's own object, and an adapter plugs into its loop.

Each module imports its trainer, so import the one that you use.
"""
