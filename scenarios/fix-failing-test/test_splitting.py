"""What split_cents promises."""

import unittest

from splitting import split_cents


class SplitCents(unittest.TestCase):
    def test_even_bill(self):
        self.assertEqual(split_cents(900, 3), [300, 300, 300])

    def test_no_cent_gets_lost(self):
        self.assertEqual(sum(split_cents(1000, 3)), 1000)

    def test_the_first_ones_pay_the_odd_cents(self):
        self.assertEqual(split_cents(101, 2), [51, 50])

    def test_nobody_to_pay(self):
        with self.assertRaises(ValueError):
            split_cents(100, 0)


if __name__ == "__main__":
    unittest.main()
