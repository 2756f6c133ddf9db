"""Whether a checker process and the sandbox work here, for `pacs doctor`: `python -m services.verifier.probe CONFIG`.

Last line of standard output: a JSON object with `math`, the status of a check that needs a worker, and `sandbox`, the
isolation the sandbox reached.
"""

import asyncio
import json
import sys
from pathlib import Path

from pacs.runtime.config_file import load_config
from pacs.runtime.process import configure_logging, exit_code_of

COMPLETION, GOLD = r"\boxed{2\sqrt{2}}", r"\sqrt{8}"  # equal, but not by their text nor as fractions


async def main(config_path: Path) -> dict[str, str]:
    """Judge one answer in a worker, start the sandbox with its self-test, stop both."""
    from services.verifier.checkers.math import MathChecker
    from services.verifier.sandbox.sandbox import Sandbox

    settings = load_config(config_path).verifier
    walls = settings.sandbox.isolation != "weak"
    checker, sandbox = MathChecker(1, settings.check_cpu_seconds, walls=walls), Sandbox(settings.sandbox)
    try:
        judgement = await checker.check(COMPLETION, GOLD, {})
        await sandbox.start()
        return {"math": judgement.status, "sandbox": sandbox.isolation}
    finally:
        await checker.close()
        await sandbox.close()


def _print_answer() -> None:
    sys.stdout.write("\n" + json.dumps(asyncio.run(main(Path(sys.argv[1])))) + "\n")


if __name__ == "__main__":
    configure_logging("verifier.probe")
    raise SystemExit(exit_code_of(_print_answer))
