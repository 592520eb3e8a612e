// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* The replicator: connections of a firewall, and what its members tell each other of them.
 *
 *     watch   tc, egress of each data interface: packets that the firewall's filter has let through
 *     hear    tc, ingress of each interface by which messages come
 *     beat    tc, ingress of each data interface: answers the switch that asks whether this firewall is well
 *     take    one entry of a bulk transfer; run by user space, attached nowhere
 *
 *   packet ─▶ watch ─▶ its state changes? ──no──▶ on, or dropped
 *                            │ yes
 *                            ▼
 *               asynchronous: message to all, packet on
 *               synchronous:  the packet goes behind the message ─▶ members store, answer ─▶ the last answer frees it
 *
 * The packet itself is what a message is made of, so nothing has to be allocated. A copy stays in a slot: user space sends
 * it again when an answer is missing, and what comes back is written over from it, so that nobody on the way can change a
 * packet that is held. Everything is decided as `oracle.py` says.
 *
 *     statesync.h     what maps and messages hold, shared with user space
 *     maps.h          the maps, settings and counters
 *     packets.h       reads a packet: key, kind, sender
 *     connections.h   states, time-outs, the two tables
 *     messages.h      MAC, numbers, the way to a member
 *     held.h          packets that wait for confirmations
 *     closings.h      connections that closed, or opened as foreseen, told many at a time
 *     watch.h, hear.h, beat.h   the programs */
#include "beat.h"
#include "hear.h"
#include "watch.h"

char LICENSE[] SEC("license") = "GPL"; /* bpf_fib_lookup asks for it */
