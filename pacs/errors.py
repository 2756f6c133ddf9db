"""Every error this project raises on purpose.

PacsError
├── BadInput (ValueError)      the user can mend it: settings, data, files, ports; exit code 2
├── ServiceFailed              a service of the run ended, or said that it cannot go on
├── DeadlineExceeded           a wait ran out; the text names what was waited for
├── PublicationFailed          weights could not be made live; carries phase, replica and the replica's own text
└── CheckpointDamaged          a checkpoint that claims to be complete cannot be read
"""

__all__ = ["BadInput", "CheckpointDamaged", "DeadlineExceeded", "PacsError", "PublicationFailed", "ServiceFailed"]


class PacsError(Exception):
    """Base of the tree above."""


class BadInput(PacsError, ValueError):
    """Something the user gave breaks a rule; the text states the rule, the values and what to do."""


class ServiceFailed(PacsError):
    """A service of the run ended or cannot go on."""


class DeadlineExceeded(PacsError):
    """A wait ran out of time.

    Args:
        waited_for: what did not happen, in words that finish "waited N s for …".
        seconds: how long the wait was.

    """

    def __init__(self, waited_for: str, seconds: float) -> None:
        super().__init__(waited_for, seconds)
        self.waited_for = waited_for
        self.seconds = seconds

    def __str__(self) -> str:
        return f"waited {self.seconds:g} s for {self.waited_for}, in vain"


class PublicationFailed(PacsError):
    """A policy version could not be made live on a replica.

    Args:
        phase: pause, connect, transfer, verify or resume.
        agent_id: the participant that failed.
        reason: that participant's own error text.

    """

    def __init__(self, phase: str, agent_id: str, reason: str) -> None:
        super().__init__(phase, agent_id, reason)
        self.phase = phase
        self.agent_id = agent_id
        self.reason = reason

    def __str__(self) -> str:
        return f"publication failed in phase {self.phase} at {self.agent_id}: {self.reason}"


class CheckpointDamaged(PacsError):
    """A checkpoint carries its commit marker but cannot be read."""
