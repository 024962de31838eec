"""A workflow that moves big values and looks at its own sandbox."""

from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy

from schemas.base import Frozen
from schemas.texts import TextRef

# the schema that is a class of this very module is imported anew by each sandbox, the one from schemas is not
HOST_IDENTITY = str(id(TextRef))


class BigReply(Frozen):
    """A reply of any size."""

    text: str
    """The text."""


@activity.defn
async def big_reply(size: int) -> BigReply:
    """Return ``size`` characters."""
    return BigReply(text="x" * size)


@workflow.defn(name="Probe")
class Probe:
    """Asks for a big reply and returns its length and the identity of a schema in the sandbox."""

    @workflow.run
    async def run(self, size: int) -> tuple[int, str]:
        """Return length and identity."""
        reply = await workflow.execute_activity(
            big_reply,
            size,
            start_to_close_timeout=timedelta(seconds=20),
            retry_policy=RetryPolicy(maximum_attempts=3, initial_interval=timedelta(milliseconds=100)),
        )
        return len(reply.text), str(id(TextRef))
