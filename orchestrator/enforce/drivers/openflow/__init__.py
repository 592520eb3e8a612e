"""The OpenFlow data plane: one driver for Open vSwitch, over connections that os-ken holds.

    loop ── driver.py ── channel.py ──┬── app.py, launcher.py, stream.py, compat.py     a real switch, through os-ken
                                      └── fake/                                         a switch in this process

The driver turns programs into messages (`flowmods`, `bundle`, `messages`), descriptions into columns (`flowdesc`), and
port symbols into port numbers (`resolve`). It knows no os-ken: a channel carries raw messages. `frames` makes Ethernet
frames and `headers` reads them, for the fake, for tests and for the lab.
"""
