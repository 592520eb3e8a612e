"""Logs: events with fields, ours and the libraries', on standard error."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from orchestrator.settings import Settings


def configure_logging(settings: Settings) -> None:
    """Write all events, ours and the libraries', to standard error as the settings say."""
    level = getattr(logging, settings.log_level.upper())
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if settings.log_format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(),
            exception_formatter=structlog.dev.plain_traceback,  # the pretty ones show variables, and so secrets
        )
    )
    failures = [structlog.processors.format_exc_info] if settings.log_format == "json" else []
    structlog.configure(
        processors=[*shared, *failures, last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
    )
    handler = logging.StreamHandler(sys.stderr)
    forget = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=[forget, *failures, last], foreign_pre_chain=shared)
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


@contextmanager
def log_errors_alone() -> Iterator[None]:
    """Write our errors alone, to standard error, during the block."""
    before = structlog.get_config()
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=lambda *_: structlog.WriteLogger(sys.stderr),
    )
    try:
        yield
    finally:
        structlog.configure(**before)
