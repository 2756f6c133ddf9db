"""Where problems come from: files and reasoning_gym families."""
