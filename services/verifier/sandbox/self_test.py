"""The self-test at the start: no program is run behind a wall that does not hold."""

import asyncio
from dataclasses import replace

from pacs.errors import BadInput
from services.verifier.sandbox.probes import PROBES, Probe
from services.verifier.sandbox.runs import RunLimits, RunResult
from services.verifier.sandbox.zygote_link import ZygoteLink

__all__ = ["self_test"]

PROBE_USER = 1000  # beyond every slot
PROBE_CPU_SECONDS = 1.0
PROBE_OUTPUT_BYTES = 1 << 16


async def self_test(link: ZygoteLink, limits: RunLimits) -> None:
    """Run every probe of the link's mode.

    Args:
        link: a zygote that serves nobody else yet.
        limits: memory and threads as configured; the probes' own are smaller otherwise.

    Raises:
        BadInput: a probe ended otherwise than it must.
        RunLost: the sandbox failed to run one.

    """
    probes = [probe for probe in PROBES if link.isolation in probe.modes]
    results = await asyncio.gather(*(_run(link, probe, place, limits) for place, probe in enumerate(probes)))
    for probe, result in zip(probes, results, strict=True):
        held = result.stdout.split(b"\n")[0].strip() == b"held"
        if result.status != probe.status or not held:
            raise BadInput(
                f"the sandbox's self-test must hold in mode {link.isolation}, but the probe {probe.name!r} did not: "
                f"status {result.status} (must be {probe.status}), output {result.stdout[:200]!r}, "
                f"errors {result.stderr[-200:]!r}; no program is run."
            )


async def _run(link: ZygoteLink, probe: Probe, place: int, limits: RunLimits) -> RunResult:
    own = replace(
        limits,
        cpu_seconds=PROBE_CPU_SECONDS,
        wall_seconds=probe.wall_seconds,
        output_bytes=PROBE_OUTPUT_BYTES,
    )
    run = link.begin(probe.program, b"hello\n", "program", own, PROBE_USER + place)
    try:
        return await run.result()
    finally:
        run.close()
