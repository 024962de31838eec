"""Identifiers: of tasks, of places in a plan, and of effects."""

import base64
import re

from pydantic import Field

from schemas.base import Count, Row


class CallKey(Row):
    """The identity of one effect: one model request or one mutating action.

    It survives retry, crash and replay. A reset, a continue-as-new or a workflow id used again has another
    ``run_id`` and so gets new keys.
    """

    workflow_id: str = Field(min_length=1, max_length=1000)
    """Temporal's workflow id, the task's id."""
    run_id: str = Field(min_length=1, max_length=100)
    """Temporal's run id of the run that decided the effect."""
    first_run_id: str = Field(min_length=1, max_length=100)
    """First run of the chain; not part of the identity, it groups the chain's spend."""
    seq: Count
    """The run's sequence number of this effect."""

    @property
    def effect_id(self) -> str:
        """The ledger's primary key, ``<workflow id>:<run id>:<seq>``."""
        return f"{self.workflow_id}:{self.run_id}:{self.seq}"


def plan_id(version: int) -> str:
    """Return the id of a plan version, as ``v2``."""
    return f"v{version}"


def step_id(version: int, step: int) -> str:
    """Return the id of a step, as ``v2.s3``; steps count from 1."""
    return f"v{version}.s{step}"


def iteration_id(step: str, iteration: int) -> str:
    """Return the id of an iteration of ``step``, as ``v2.s3.i1``."""
    return f"{step}.i{iteration}"


def action_id(iteration: str, action: int) -> str:
    """Return the id of an action of ``iteration``, as ``v2.s3.i1.a2``."""
    return f"{iteration}.a{action}"


def slug(text: str) -> str:
    """Return ``text`` as a short lower-case name of letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:40] or "task"


def task_id(name: str, entropy: bytes) -> str:
    """Return ``task-<slug>-<10 base32>``; ``entropy`` holds at least 7 random bytes."""
    return f"task-{slug(name)}-{base64.b32encode(entropy).decode().lower()[:10]}"
