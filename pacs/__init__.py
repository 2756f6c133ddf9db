"""PACS-RLVR: reinforcement learning with verifiable rewards, recast as supervised classification.

The library beneath the four services: `algo` (pure maths), `wire` (what is sent), `transport` (how it is sent),
`runtime` (how a process lives), `local` (a whole run on one machine) and `pb` (generated from `proto/`).
"""

__version__ = "0.1.0"
__all__ = ["__version__"]
