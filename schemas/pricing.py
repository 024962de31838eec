"""Prices, usage and cost, in whole micro-dollars."""

from schemas.base import Count, MicroUsd, Row

TOKENS_PER_PRICE = 1_000_000


class Price(Row):
    """What a model costs, frozen into the run at submit. Unit: micro-dollars per million tokens."""

    input_microusd_per_mtok: MicroUsd
    """Uncached input."""
    output_microusd_per_mtok: MicroUsd
    """Output, reasoning included."""
    cached_input_microusd_per_mtok: MicroUsd | None = None
    """Input read from the provider's cache; the input price where it is not known."""
    cache_write_microusd_per_mtok: MicroUsd | None = None
    """Input written to the provider's cache; the input price where it is not known."""


class Usage(Row):
    """Tokens of one request as the provider counted them."""

    input_tokens: Count = 0
    """All input, cached and cache-written included."""
    cached_input_tokens: Count = 0
    """Part of the input that was read from the cache."""
    cache_write_tokens: Count = 0
    """Part of the input that was written to the cache."""
    output_tokens: Count = 0
    """All output, reasoning included."""
    reasoning_tokens: Count = 0
    """Part of the output that was reasoning."""


def cost_microusd(usage: Usage, price: Price) -> int:
    """Return the cost of ``usage``, rounded up once to a whole micro-dollar."""
    plain = max(0, usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens)
    total = (
        plain * price.input_microusd_per_mtok
        + usage.cached_input_tokens * _or_input(price.cached_input_microusd_per_mtok, price)
        + usage.cache_write_tokens * _or_input(price.cache_write_microusd_per_mtok, price)
        + usage.output_tokens * price.output_microusd_per_mtok
    )
    return -(-total // TOKENS_PER_PRICE)


def ceiling_microusd(input_tokens: int, output_tokens: int, price: Price) -> int:
    """Return the most that a request of this size can cost: every input token at its dearest meter."""
    dearest = max(price.input_microusd_per_mtok, _or_input(price.cache_write_microusd_per_mtok, price))
    total = input_tokens * dearest + output_tokens * price.output_microusd_per_mtok
    return -(-total // TOKENS_PER_PRICE)


def _or_input(meter: int | None, price: Price) -> int:
    return price.input_microusd_per_mtok if meter is None else meter
