"""The checkers: one file a task, over one interface.

Left without imports on purpose: the worker processes import this package, and they start with as little as they can.
"""
