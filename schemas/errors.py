"""The errors that cross an activity's edge, sorted once.

SurefootError
├── Retryable: Temporal tries again, since nothing was billed and nothing was done
│   ├── ModelRateLimited, ModelUnreachable
│   └── WorkspaceUnavailable, LedgerUnavailable, StorageUnavailable
└── Final: trying again cannot help; an operator must act, or it is a bug
    ├── ModelUnanswered, ModelAuth, ModelQuota, ModelBadRequest, ContextExceeded, ContentRefused
    ├── RehearsalIncomplete
    ├── InputRefused, PayloadTooLarge, ArtifactMissing, SecretUnresolved, SandboxUnavailable, SeedInvalid, UnknownTool
    ├── WorkspaceLost
    └── Fenced, EffectMismatch, RequirementAlreadyMet

What a model or a tool can get wrong (an invalid reply, invalid arguments, a failed command, an ambiguous call, an
unknown effect) is data in a reply, never an error.
"""


class SurefootError(Exception):
    """The base of all; its class name is the error type that Temporal and the outcome show."""

    retryable = False


class Retryable(SurefootError):
    """Provably without effect: Temporal tries again within the activity's attempts."""

    retryable = True


class Final(SurefootError):
    """Trying again cannot help."""


class ModelRateLimited(Retryable):
    """The provider refused for now; nothing was billed."""

    def __init__(self, model: str, retry_after_seconds: float | None) -> None:
        """Keep the provider's wish for the next attempt's delay."""
        wait = f"; it asks to wait {retry_after_seconds:g} s" if retry_after_seconds is not None else ""
        super().__init__(f"{model}: rate limited{wait}")
        self.retry_after_seconds = retry_after_seconds


class ModelUnreachable(Retryable):
    """No connection to the provider could be opened; nothing was sent."""


class WorkspaceUnavailable(Retryable):
    """The workspace cannot be used at the moment: its volume is not there, or what ran in it does not end."""


class LedgerUnavailable(Retryable):
    """The database does not answer."""


class StorageUnavailable(Retryable):
    """A file of ours cannot be written or read: the disk is full, read-only, or the folder is not ours."""


class ModelUnanswered(Final):
    """Several requests in a row may have been billed, and none brought an answer."""


class ModelAuth(Final):
    """The provider refused the key."""


class ModelQuota(Final):
    """The account's quota is used up."""


class ModelBadRequest(Final):
    """The provider refused the request as malformed, or does not know the model."""


class ContextExceeded(Final):
    """The prompt is longer than the model's context."""


class ContentRefused(Final):
    """The provider's policy refused the content."""


class RehearsalIncomplete(Final):
    """The rehearsed model's script has no reply for what was asked."""


class InputRefused(Final):
    """A task's input is not one that this worker takes: malformed, or from a client that knows more than it."""


class PayloadTooLarge(Final):
    """A value is larger than any store of ours may take."""


class ArtifactMissing(Final):
    """A referenced text or blob is not in the artifact store."""


class SecretUnresolved(Final):
    """A named secret is not configured at this worker, has no value there, or one that cannot be masked."""


class SandboxUnavailable(Final):
    """The task asks for a sandbox, and none can be made on this worker's machine."""

    def __init__(self, reason: str) -> None:
        """Say why, and what to do about it."""
        super().__init__(
            f"no sandbox here: {reason}. Install bubblewrap and allow user namespaces (Debian and Ubuntu: "
            "apt-get install bubblewrap), or write `kind: local` under `workspace:` to run commands without isolation"
        )


class SeedInvalid(Final):
    """The files that a workspace should start with cannot be unpacked safely."""


class WorkspaceLost(Final):
    """The workspace is gone: its worker's folder of workspaces is there, and it is not in it."""


class UnknownTool(Final):
    """The task names a tool that this worker does not have."""


class Fenced(Final):
    """A later attempt owns the effect; this one must not act."""


class EffectMismatch(Final):
    """The effect id is known with another request: the same id never stands for two requests."""

    def __init__(self, effect_id: str, known_digest: str, digest: str) -> None:
        """Name the effect and both digests."""
        super().__init__(
            f"effect {effect_id} was recorded with request {known_digest[:12]}, now asked with {digest[:12]}"
        )


class RequirementAlreadyMet(Final):
    """A check declared ``before: must_fail`` passed before any work: it would prove nothing."""


UNBILLED = frozenset(
    error.__name__
    for error in (
        *(ModelRateLimited, ModelUnreachable, ModelAuth, ModelQuota, ModelBadRequest, ContextExceeded, ContentRefused),
        *(RehearsalIncomplete, SecretUnresolved, ArtifactMissing, EffectMismatch),
    )
)
"""Errors of a model's activity that prove that this effect was not billed; after any other one it may have been."""


def _subclasses(root: type[SurefootError]) -> list[type[SurefootError]]:
    return [found for child in root.__subclasses__() for found in (child, *_subclasses(child))]


def error_types() -> dict[str, type[SurefootError]]:
    """Return every concrete error by its name."""
    return {error.__name__: error for error in _subclasses(SurefootError) if not error.__subclasses__()}
