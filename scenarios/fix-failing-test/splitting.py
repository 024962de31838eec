"""Splitting a bill among people, in whole cents."""


def split_cents(total: int, people: int) -> list[int]:
    """Return one share per person. Shares differ by at most one cent, the larger ones first, and add up to ``total``.

    ``total`` may be negative (a refund). Raises ValueError where there is nobody to pay.
    """
    if people < 1:
        raise ValueError(f"people must be at least 1, got {people}")
    share = total // people
    return [share] * people
