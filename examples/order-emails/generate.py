"""Writes tasks.jsonl: the same 180 tasks every time. Run it in this folder: python generate.py

Five senders write about orders, each in a form of its own. Which messages there are depends on the
seed alone.
"""

import json
import random
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from pathlib import Path

SEED = 20_261
SIZES = {"train": 40, "val": 40, "test": 100}
ASK = (
    "Read the order number, the date and the total out of the message below. Answer with a JSON "
    "object that has the keys order (digits), date (YYYY-MM-DD) and total (such as 1204.50), "
    "all as texts."
)

Facts = tuple[str, date, str]
"""Order number, date, total with a dot and two decimals."""


def shop(facts: Facts, customer: int) -> str:
    """A web shop, whose form the skill knows from the beginning."""
    order, day, total = facts
    return (
        f"Customer {customer}\n\nWe have your order.\n\nOrder no. {order}\nDate: {day}\n"
        f"Total: {total} EUR\n"
    )


def invoice(facts: Facts, customer: int) -> str:
    """An invoice with dots in its date and commas in its amounts."""
    order, day, total = facts
    return (
        f"INVOICE\nCustomer {customer}\nInvoice for order PO-{order}\nInvoice date {day:%d.%m.%Y}\n"
        f"Net {float(total) / 1.2:,.2f}\nAmount due: EUR {float(total):,.2f}\n"
    )


def receipt(facts: Facts, customer: int) -> str:
    """One sentence, the way shops in the United States write it."""
    order, day, total = facts
    return (
        f"Hi customer {customer}! Your purchase #{order} on {day:%m/%d/%Y} came to "
        f"${float(total):,.2f}. Thank you!\n"
    )


def delivery(facts: Facts, customer: int) -> str:
    """A delivery note."""
    order, day, total = facts
    return (
        f"Delivery note for {customer}\nRef: {order}\nShipped: {day:%Y/%m/%d}\n"
        f"Goods worth {total} (EUR)\n"
    )


def change(facts: Facts, customer: int) -> str:
    """A changed order, which names the old one and a subtotal before what counts."""
    order, day, total = facts
    return (
        f"Customer {customer}\nThis replaces order {int(order) - 7}.\n\nOrder no. {order}\n"
        f"Date: {day}\nSubtotal: {float(total) - 4.9:.2f}\nShipping: 4.90\nTotal: {total} EUR\n"
    )


SENDERS: tuple[tuple[Callable[[Facts, int], str], int], ...] = (
    (shop, 6),
    (invoice, 5),
    (receipt, 4),
    (delivery, 2),
    (change, 3),
)
"""Who writes, and how many of twenty messages."""


def tasks() -> Iterator[dict[str, object]]:
    """Yields the records of all tasks, in the order of the splits."""
    chance = random.Random(SEED)
    turns = [sender for sender, share in SENDERS for _ in range(share)]
    for split, size in SIZES.items():
        for number in range(size):
            sender = turns[number % len(turns)]
            order = str(chance.randrange(10_000, 99_999))
            day = date(2025, 1, 1) + timedelta(days=chance.randrange(700))
            total = f"{chance.randrange(500, 400_000) / 100:.2f}"
            message = sender((order, day, total), chance.randrange(1_000, 9_999))
            yield {
                "id": f"{split}-{number + 1:03}-{sender.__name__}",
                "prompt": f"{ASK}\n\n{message}",
                "category": sender.__name__,
                "split": split,
                "scorer": {"type": "json_subset"},
                "expected": {"order": order, "date": day.isoformat(), "total": total},
                "source": "synthetic",
            }


if __name__ == "__main__":
    lines = [json.dumps(task) for task in tasks()]
    Path(__file__).with_name("tasks.jsonl").write_text(
        "\n".join(lines) + "\n", encoding="utf-8", newline="\n"
    )
