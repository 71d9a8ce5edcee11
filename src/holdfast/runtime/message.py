"""One message between two agents."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one agent says to another."""

    id: str
    sender: str
    to: str
    body: Any
    sent_at: datetime
    expects_answer: bool = False
    answer_to: str = ""
    """The message that this one answers, if it does."""
