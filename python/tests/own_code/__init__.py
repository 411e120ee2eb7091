"""Runs the trainers' own code in the process of the tests. Each module is for one trainer.

The modules have what several tests share. Code that one test alone runs is in its file.
"""
