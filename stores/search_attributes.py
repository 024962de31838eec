"""The search attributes of runs, as Temporal knows them; apart from the client, which takes longer to import."""

from typing import Any

from temporalio.common import SearchAttributeKey

from schemas.contract import SearchAttribute

SEARCH_ATTRIBUTES: tuple[SearchAttributeKey[Any], ...] = (
    SearchAttributeKey.for_keyword(SearchAttribute.STATUS.value),
    SearchAttributeKey.for_keyword(SearchAttribute.OUTCOME.value),
    SearchAttributeKey.for_keyword(SearchAttribute.REASON.value),
    SearchAttributeKey.for_keyword(SearchAttribute.TASK_TYPE.value),
    SearchAttributeKey.for_keyword(SearchAttribute.SITE.value),
    SearchAttributeKey.for_keyword(SearchAttribute.POLICY.value),
    SearchAttributeKey.for_bool(SearchAttribute.WAITING.value),
    SearchAttributeKey.for_float(SearchAttribute.SPEND_USD.value),
)
