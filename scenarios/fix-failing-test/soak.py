"""A soak test: splits random bills for some seconds and reports how many came out wrong.

Usage: python3 soak.py [seconds]
"""

import random
import sys
import time

from splitting import split_cents


def wrong(total, people):
    """Say whether the shares of this bill break a promise."""
    shares = split_cents(total, people)
    fair = max(shares) - min(shares) <= 1 and shares == sorted(shares, reverse=True)
    return len(shares) != people or sum(shares) != total or not fair


def main():
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 6.0
    bills = random.Random(7)
    end = time.monotonic() + seconds
    done, bad, smallest = 0, 0, None
    while time.monotonic() < end:
        total, people = bills.randint(-5000, 5000), bills.randint(1, 12)
        done += 1
        if wrong(total, people):
            bad += 1
            if smallest is None or (abs(total), people) < (abs(smallest[0]), smallest[1]):
                smallest = (total, people)
    share = 100 * bad / done
    print(f"soak: {done:,} bills in {seconds:g} s, {share:.0f} % came out wrong")
    if smallest:
        print(f"soak: smallest wrong bill: {smallest[0]} cents among {smallest[1]}: {split_cents(*smallest)}")
        return 1
    print("soak: every bill came out right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
