"""Score golds and programs of families in the sandbox: `python -m tests.reasoning_gym_runner`; prints a JSON object."""

import asyncio
import json
import sys
import warnings

from pacs.runtime.config import SandboxSection
from services.verifier.checkers.reasoning_gym import EVALUATES_TEXT, ReasoningGymChecker

PROGRAM = "<answer>__import__('os').abort()</answer>"


async def score():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from reasoning_gym.factory import DATASETS
    checker = ReasoningGymChecker(workers=1, cpu_seconds=10.0, sandbox=SandboxSection(slots=1))
    statuses = {}
    for family in sorted(EVALUATES_TEXT):
        make, config = DATASETS[family]
        entry = json.loads(json.dumps(make(config=config(size=1, seed=11))[0]))
        row = {"family": family, "entry": entry}
        gold, program = await checker.check_gold(entry["answer"], row), await checker.check(PROGRAM, "", row)
        statuses[family] = [gold.status, program.status]
    isolation = checker._sandboxed._sandbox.isolation
    await checker.close()
    return {"isolation": isolation, "statuses": statuses}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(score())) + "\n")
