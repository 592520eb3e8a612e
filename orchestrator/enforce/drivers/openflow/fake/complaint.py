"""Refusals of the fake switch, by the OpenFlow standard's error numbers."""

from __future__ import annotations

import enum


class Complaint(Exception):
    """Ends the handling of one message; becomes an error message."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.name)
        self.reason = reason


class Reason(enum.Enum):
    """Error type and code."""

    BAD_VERSION = (1, 0)
    UNKNOWN_MESSAGE = (1, 1)
    UNKNOWN_MULTIPART = (1, 2)
    NOT_PERMITTED = (1, 5)
    BAD_LENGTH = (1, 6)
    NO_SUCH_TABLE = (1, 9)
    IS_SLAVE = (1, 10)
    UNKNOWN_ACTION = (2, 0)
    BAD_ACTION_LENGTH = (2, 1)
    BAD_EXPERIMENTER = (2, 2)
    BAD_EXPERIMENTER_TYPE = (2, 3)
    BAD_OUT_PORT = (2, 4)
    BAD_ARGUMENT = (2, 5)
    BAD_OUT_GROUP = (2, 9)
    ACTION_CONTRADICTS_MATCH = (2, 10)
    BAD_SET_TYPE = (2, 13)
    BAD_SET_LENGTH = (2, 14)
    BAD_SET_ARGUMENT = (2, 15)
    UNKNOWN_INSTRUCTION = (3, 0)
    UNSUPPORTED_INSTRUCTION = (3, 1)
    BAD_GOTO = (3, 2)
    UNKNOWN_EXPERIMENTER_INSTRUCTION = (3, 5)
    BAD_INSTRUCTION_LENGTH = (3, 7)
    DUPLICATE_INSTRUCTION = (3, 9)
    BAD_MATCH_TYPE = (4, 0)
    BAD_MATCH_LENGTH = (4, 1)
    BAD_WILDCARDS = (4, 5)
    BAD_FIELD = (4, 6)
    BAD_VALUE = (4, 7)
    BAD_MASK = (4, 8)
    BAD_PREREQUISITE = (4, 9)
    DUPLICATE_FIELD = (4, 10)
    TABLE_FULL = (5, 1)
    BAD_TABLE = (5, 2)
    BAD_COMMAND = (5, 6)
    GROUP_EXISTS = (6, 0)
    INVALID_GROUP = (6, 1)
    UNKNOWN_GROUP = (6, 8)
    BAD_GROUP_TYPE = (6, 10)
    BAD_GROUP_COMMAND = (6, 11)
    BAD_BUCKET = (6, 12)
    BUCKET_EXISTS = (6, 16)
    STALE_GENERATION = (11, 0)
    BAD_ROLE = (11, 2)
    METER_EXISTS = (12, 1)
    UNKNOWN_METER = (12, 3)
    BAD_METER_COMMAND = (12, 4)
    UNKNOWN_BUNDLE = (17, 2)
    BUNDLE_EXISTS = (17, 3)
    BAD_BUNDLE_TYPE = (17, 6)
    BAD_BUNDLE_FLAGS = (17, 7)
    BAD_BUNDLED_XID = (17, 9)
    UNBUNDLED_TYPE = (17, 10)
    BUNDLED_FAILED = (17, 13)
    BAD_CONJUNCTION = (0xFFFF, 15)
    """One of Nicira's own errors."""
