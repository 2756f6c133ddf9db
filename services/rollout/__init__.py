"""The rollout: prompts in, groups of sampled completions out."""
