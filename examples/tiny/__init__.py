"""A language model small enough to be made and trained on one CPU core, and the task it learns."""
