"""The web console: what tenants and operators look at.

A process of its own (`aclflow console`) and a pure client of the REST API: it shows what a token may see and does what
it may do, nothing else. NiceGUI draws it; scripts, styles and fonts come from this machine alone.

    server.py      the process: settings in, a web server out
    sessions.py    who is signed in, with the service's client and the changes not committed yet
    reading.py     reads of the service, off the event loop, shared between pages, honest about a lost service
    draftedits.py  changes of a list before they are committed. Pure
    words.py       numbers, units and times in words. Pure
    pictures/      drawings as SVG text from values. Pure
    parts/         what several pages are made of: frame, tables, dialogs
    pages/         a module a page
"""
