"""The learner: labelled groups in, optimizer steps, checkpoints and published weights out."""
