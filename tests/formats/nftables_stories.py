"""Rulesets as people write them, at the hook output, with what is left of them in words: whether they are read exactly.

Each is a table's contents; the chain `output` is the one that the kernel calls.
"""

from __future__ import annotations

DROP = "type filter hook output priority 0; policy drop;"
ACCEPT = "type filter hook output priority 0; policy accept;"


def story(*rules: str, policy: str = DROP, more: str = "") -> str:
    lines = "\n".join(rules)
    return f"table inet f {{\n{more}\nchain output {{\n{policy}\n{lines}\n}}\n}}\n"


def beside(family: str, hook: str, rule: str = "", policy: str = "accept") -> str:
    """A table that is not about the packets that the story is about, or not where they are decided."""
    return f"table {family} b {{\nchain x {{\ntype filter hook {hook} priority 0; policy {policy};\n{rule}\n}}\n}}\n"


EXACT = {
    "named sets with intervals": story(
        "ip saddr @near tcp dport { 22, 80-90 } accept",
        "ip6 saddr @far udp dport != { 53, 123 } accept",
        more="""set near {
            type ipv4_addr; flags interval
            elements = { 10.0.0.0/8, 192.0.2.5, 192.0.2.9-192.0.2.77 }
        }
        set far {
            type ipv6_addr; flags interval
            elements = { 2001:db8::/32 }
        }""",
    ),
    "a set with comments and counters": story(
        "ip saddr @s accept",
        more="""set s {
            type ipv4_addr; counter
            elements = { 10.0.0.1 comment "a b", 10.0.0.2 }
        }""",
    ),
    "combinations": story(
        "ip saddr . tcp dport { 10.0.0.0/8 . 22-25, 192.0.2.1 . 80 } accept",
        "meta l4proto . th dport { tcp . 443, udp . 53, sctp . 9 } accept",
        "ip protocol . ip saddr { tcp . 10.0.0.1, icmp . 10.0.0.2 } accept",
    ),
    "every verdict in a map": story(
        "tcp dport vmap { 22 : drop, 80-90 : jump web, 443 : goto web, 500 : accept, 600 : return, 700 : continue }",
        "tcp sport 5 accept",
        more="""chain web {
            ip saddr 10.0.0.0/8 accept
            ip saddr 10.0.0.1 drop
            ip saddr 192.0.2.0/24 return
        }""",
    ),
    "a map of versions": story(
        "meta protocol vmap { ip : jump four, ip6 : goto six }",
        "tcp dport 23 accept",
        more="""chain four {
            tcp dport 22 accept
        }
        chain six {
            icmpv6 type echo-request accept
            udp dport 53 accept
        }""",
    ),
    "a map with an element for the rest": story(
        "ip saddr vmap { 10.0.0.0/8 : accept, * : goto rest }",
        "accept",
        more="""chain rest {
            tcp dport 1 accept
        }""",
    ),
    "a map of combinations": story(
        "ip saddr . tcp dport vmap { 10.0.0.1 . 22 : accept, 10.0.0.2 . 80 : drop }", "ip saddr 10.0.0.2 accept"
    ),
    "flags": story(
        "tcp flags & (fin|syn|rst|ack) == syn accept",
        "tcp flags & (fin|syn) == (fin|syn) drop",
        "tcp flags syn,ack tcp dport 5 accept",
        "tcp flags { syn, syn|ack } tcp dport 6 accept",
        "tcp flags ! rst tcp dport 8 accept",
        "tcp flags == 0x0 tcp dport 10 accept",
        "tcp flags != syn,ack / syn,ack tcp dport 12 accept",
    ),
    "ranges, masks and orders": story(
        "ip saddr 10.0.0.3-10.0.0.9 tcp dport 1000-2000 accept",
        "ip saddr != 10.0.0.0/8 udp dport < 1024 accept",
        "ip6 daddr != { 2001:db8::1-2001:db8::7, fe80::/10 } tcp sport >= 49152 accept",
        "ip daddr & 255.255.0.255 == 10.1.0.3 accept",
        "ip saddr > 224.0.0.0 accept",
    ),
    "returns and gotos": story(
        "jump a",
        "tcp dport 80 accept",
        more="""chain c {
            ip saddr 10.0.0.2 accept
        }
        chain b {
            ip saddr 10.0.0.1 return
            tcp dport 22 accept
            udp dport 5 goto c
        }
        chain a {
            ip saddr 10.0.0.0/24 jump b
            ip saddr 10.0.0.0/24 udp dport 5 drop
            ip saddr 10.0.0.2 return
            goto b
        }""",
    ),
    "packets that are changed where no match looks": story(
        "tcp flags syn tcp option maxseg size set 1200 counter",
        "ip dscp set cs3 meta mark set 0x5 ct mark set meta mark",
        "tcp dport 22 accept",
    ),
    "rejected and logged": story(
        "tcp dport 22 reject with tcp reset", 'ip saddr 10.0.0.1 log prefix "x" counter accept', "drop", policy=ACCEPT
    ),
    "arp beside": story("tcp dport 22 accept") + beside("arp", "output", policy="drop"),
    "another hook that proxies": story("tcp dport 22 accept")
    + beside("ip", "prerouting", "tcp dport 80 tproxy to :8080 accept"),
}

LOSSY = {
    "a set that counts rates": story(
        "ip saddr @s accept",
        more="""set s {
            typeof ip saddr; limit rate 1/day burst 1 packets
            elements = { 10.0.0.1 limit rate 1/day burst 1 packets }
        }""",
    ),
    "a set that time empties": story(
        "ip saddr @s drop",
        "accept",
        more="""set s {
            type ipv4_addr; flags timeout; timeout 1h
            elements = { 10.0.0.1 timeout 10m }
        }""",
    ),
    "a set that rules fill": story(
        "tcp dport 22 add @s { ip saddr limit rate over 1/hour } drop",
        "tcp dport 22 accept",
        more="set s {\ntype ipv4_addr; flags dynamic; size 100;\n}",
    ),
    "limits": story("tcp dport 22 limit rate 1/hour burst 1 packets accept", "udp dport 5 limit rate over 1/hour drop"),
    "interfaces": story('oifname vmap { "lo" : drop, "sink" : accept }', "tcp dport 22 accept"),
    "states": story("ct state vmap { established : accept, invalid : drop }", "ct state new tcp dport 22 accept"),
    "the routing table": story("fib daddr type { local, broadcast } drop", "tcp dport 22 accept"),
    "marks": story("meta mark set 5", "meta mark 5 tcp dport 22 accept", "meta mark != 5 drop", "accept"),
    "bytes by their place": story("@nh,8,8 64 drop", "meta l4proto tcp @th,0,16 5 accept", "udp dport 5 accept"),
    "the first extension header": story("ip6 nexthdr tcp drop", "ip6 nexthdr != udp accept", "ip protocol tcp accept"),
    "chains without a name": story(
        "tcp dport { 22, 80 } jump {\nip saddr 10.0.0.0/8 drop\naccept\n}", "tcp dport 22-90 accept"
    ),
    "chance": story("numgen random mod 2 0 drop", "tcp dport 22 accept"),
    "a drop at another hook": story("tcp dport 22 accept")
    + beside("bridge", "prerouting", "ether saddr 00:01:02:03:04:05 drop"),
}
