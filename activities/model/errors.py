"""Provider failures, sorted once: nothing was billed, or it may have been.

The exception's class is looked at before its status: LiteLLM gives some local errors a status of 500.
"""

import email.utils
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from urllib.parse import urlsplit

from activities.model.port import AmbiguousCall
from schemas.base import clip
from schemas.errors import (
    ContentRefused,
    ContextExceeded,
    ModelAuth,
    ModelBadRequest,
    ModelQuota,
    ModelRateLimited,
    ModelUnreachable,
    SecretUnresolved,
    SurefootError,
)

MAX_RETRY_AFTER_SECONDS = 600.0  # a provider's wish must not put a run to sleep for days
NOTHING_SENT = {"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"}  # httpx's
LOCAL_REFUSALS = {"UnsupportedParamsError", "BudgetExceededError"}  # litellm's own, whatever status they carry
NO_CREDENTIALS = re.compile(r"missing credentials|api_key client option must be set", re.IGNORECASE)
QUOTA = re.compile(r"insufficient_quota|credit balance|billing hard limit|exceeded your current quota", re.IGNORECASE)
RETRY_HINT = re.compile(r"retry in|retry after|try again in", re.IGNORECASE)
CONTEXT = re.compile(
    r"context[ _]length|maximum context|context window|context size|prompt is too long|too many (input )?tokens"
    r"|exceeds the (maximum|available) context|reduce the length",
    re.IGNORECASE,
)
CONTENT = re.compile(
    r"content[ _]policy|content[ _]management|content[ _]filter|responsible ?ai|safety (system|policy)", re.IGNORECASE
)
KEY_SHAPES = re.compile(r"\b(sk|pk|rk|key|gsk|xai)-[\w*.-]{4,}|\bAIza[\w-]{10,}|Bearer\s+\S+")


def sorted_error(
    error: Exception, model: str, key: str | None, mask: Callable[[str], str], api_base: str | None = None
) -> SurefootError | AmbiguousCall:
    """Return what ``error`` means; a ``SurefootError`` only where nothing can have been billed.

    ``key`` is the secret that must not show in the text, not even its beginning; ``mask`` knows the others. Of
    ``api_base`` only host and port show.
    """
    text = masked(mask(str(error)), key)
    detail = clip(f"{model}: {text}", 400)
    names = {type(link).__name__ for link in _chain(error)}
    if names & NOTHING_SENT:
        check = "is the service there, and api_base right?" if api_base else "does this host reach the network?"
        return ModelUnreachable(clip(f"{model} at {host_of(api_base)}: no connection; {check} ({text})", 400))
    if NO_CREDENTIALS.search(text):
        return SecretUnresolved(clip(f"{model}: no key is set; name its variable as api_key_env ({text})", 400))
    if type(error).__name__ in LOCAL_REFUSALS:
        return ModelBadRequest(detail)
    return _by_status(error, text, detail, model)


def _by_status(error: Exception, text: str, detail: str, model: str) -> SurefootError | AmbiguousCall:
    status = getattr(error, "status_code", None)
    name = type(error).__name__
    if status == 429:
        retry_after = _retry_after_seconds(error)
        hinted = retry_after is not None or RETRY_HINT.search(text) is not None
        out_of_quota = "insufficient_quota" in _body(error) or (QUOTA.search(text) is not None and not hinted)
        return ModelQuota(detail) if out_of_quota else ModelRateLimited(model, retry_after)
    if not isinstance(status, int) or status in {408, 409} or not 400 <= status < 500:
        return AmbiguousCall(detail)
    if status in {401, 403}:
        return ModelAuth(detail)
    if status == 402 or QUOTA.search(text):
        return ModelQuota(detail)
    if name == "ContextWindowExceededError" or CONTEXT.search(text):
        return ContextExceeded(detail)
    if name == "ContentPolicyViolationError" or CONTENT.search(text + _body(error)):
        return ContentRefused(detail)
    return ModelBadRequest(detail)


def host_of(api_base: str | None) -> str:
    """Return host and port of a service, without what may stand around them: credentials, a path, a query."""
    if api_base is None:
        return "its provider's own address"
    try:
        return urlsplit(api_base).netloc.rpartition("@")[2] or "an address without a host"
    except ValueError:  # brackets that are no IPv6 address
        return "an address that is none"


def masked(text: str, key: str | None) -> str:
    """Return ``text`` in one line, without the key, without what looks like one, and without our own prefixes."""
    if key and len(key) >= 4:
        text = text.replace(key, "***")
        head = key[: max(8, len(key) // 3)]  # providers echo a key's beginning
        text = re.sub(re.escape(head) + r"\S*", "***", text)
    return " ".join(KEY_SHAPES.sub("***", text).split())


def _body(error: Exception) -> str:
    """The code and type of an OpenAI-style error body: LiteLLM's own text leaves them out."""
    for link in _chain(error):
        body = getattr(link, "body", None)
        if isinstance(body, dict):
            return f" {body.get('code')} {body.get('type')}"
    return ""


def _retry_after_seconds(error: Exception) -> float | None:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    value = headers.get("retry-after")
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (email.utils.parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(0.0, seconds), MAX_RETRY_AFTER_SECONDS) if seconds == seconds else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__
