"""The only import of the OpenFlow library: os-ken, else ryu, its parent.

The two share their API; what differs is settled here, so that every other module is written once. Importing this module
under ryu turns the process over to eventlet's green threads: import it before anything starts a thread there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Handler = TypeVar("Handler", bound=Callable[..., None])

try:
    # The application manager comes before the controller: they import each other.
    from os_ken import cfg
    from os_ken.base import app_manager
    from os_ken.base.app_manager import OSKenApp as App
    from os_ken.controller import ofp_event
    from os_ken.controller.controller import Datapath
    from os_ken.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
    from os_ken.controller.ofp_handler import OFPHandler
    from os_ken.lib import hub
    from os_ken.ofproto import ofproto_parser, ofproto_v1_5, ofproto_v1_5_parser

    PROJECT = "os_ken"
except ModuleNotFoundError as missing:
    if missing.name != "os_ken":
        raise
    import eventlet
    import eventlet.wsgi

    # ryu asks eventlet for a name that eventlet dropped; the value is only ever compared with.
    eventlet.wsgi.ALREADY_HANDLED = getattr(eventlet.wsgi, "ALREADY_HANDLED", object())
    eventlet.monkey_patch()

    from ryu import cfg
    from ryu.base import app_manager
    from ryu.base.app_manager import RyuApp as App
    from ryu.controller import ofp_event
    from ryu.controller.controller import Datapath
    from ryu.controller.handler import DEAD_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
    from ryu.controller.ofp_handler import OFPHandler
    from ryu.lib import hub
    from ryu.ofproto import ofproto_parser, ofproto_v1_5, ofproto_v1_5_parser

    PROJECT = "ryu"

NATIVE_THREADS: bool = getattr(hub, "HUB_TYPE", "eventlet") == "native"
"""Whether threads are the system's own. Otherwise eventlet's green ones stand in for `threading` everywhere."""


def on(event: Any, *states: str) -> Callable[[Handler], Handler]:
    """Declare a method as the handler of an event in some connection states."""
    declare: Callable[[Handler], Handler] = set_ev_cls(event, list(states))
    return declare


__all__ = [
    "DEAD_DISPATCHER",
    "MAIN_DISPATCHER",
    "NATIVE_THREADS",
    "PROJECT",
    "App",
    "Datapath",
    "OFPHandler",
    "app_manager",
    "cfg",
    "hub",
    "ofp_event",
    "ofproto_parser",
    "ofproto_v1_5",
    "ofproto_v1_5_parser",
    "on",
]
