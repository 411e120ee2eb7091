"""One module per trainer. It converts exported lines to the trainer's own objects, and may adapt agents to its loop.

Each module imports its trainer, so import only the module that you use.
"""
