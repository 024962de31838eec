"""Asks the warehouse's service how many pieces of each article are there, and writes stock.json."""

import json
import sys
import urllib.request
from pathlib import Path

ADDRESS = "http://stock.internal:8090/pieces"

try:
    with urllib.request.urlopen(ADDRESS, timeout=5) as answer:
        Path("stock.json").write_text(json.dumps(json.load(answer), indent=2) + "\n")
except OSError as error:
    sys.exit(f"fetch_stock: {ADDRESS} does not answer: {error}")
