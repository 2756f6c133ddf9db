"""Control: run state, prompt admission, policy versions, membership, evaluation."""
