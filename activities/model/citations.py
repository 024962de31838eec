"""A yes counts only with words that code finds where the judge says they stand."""

from collections.abc import Mapping, Sequence

from schemas.answers import CitationAnswer, VerdictAnswer
from schemas.base import clip
from schemas.calls import Citation, Verdict

MIN_QUOTE = 4  # characters that are not white space; shorter ones stand in every text
WRAPPINGS = " \t\r\n[]()<>`'\""


def checked_verdict(answer: VerdictAnswer, evidence: Mapping[str, Sequence[str]]) -> Verdict:
    """Return the verdict: a yes whose quote is not in the cited text of this prompt is a no, with the claim kept.

    ``evidence`` holds the texts of this very prompt by the label that they were shown under.
    """
    found = answer.citation is not None and citation_found(answer.citation, evidence)
    reason = answer.reason
    if answer.result and not found:
        why = "it cites nothing" if answer.citation is None else "its citation was not found in the cited text"
        reason = clip(f"not accepted, {why}: {answer.reason}")
    return Verdict(
        result=answer.result and found,
        claimed=answer.result,
        reason=reason,
        citation=None
        if answer.citation is None
        else Citation(source=answer.citation.source.strip(WRAPPINGS)[:40], quote=answer.citation.quote[:500]),
        citation_found=found,
    )


def citation_found(citation: CitationAnswer, evidence: Mapping[str, Sequence[str]]) -> bool:
    """Whether the quote, white space aside, stands in a text with that label; too short a quote never does."""
    quote = _collapsed(citation.quote)
    if len(quote.replace(" ", "")) < MIN_QUOTE:
        return False
    return any(quote in _collapsed(text) for text in evidence.get(citation.source.strip(WRAPPINGS), ()))


def _collapsed(text: str) -> str:
    return " ".join(text.split())
