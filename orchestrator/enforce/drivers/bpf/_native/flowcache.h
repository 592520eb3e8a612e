// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* What a flow cache's maps hold. `layout.py` packs and unpacks the same bytes; `device.py` refuses a program whose maps
 * are of another size than it packs. All numbers are in the machine's order.
 *
 * A range on an axis is its lowest value and its span: value - low <= span, in the axis' width, is one comparison. */
#pragma once
#include <linux/types.h>

#define MOST_ROWS 256 /* a version of IP */
#define MOST_COUNTERS 16384
#define MOST_FLOWS 65536 /* a version of IP */
#define COUNTED 3        /* lists that may count one packet */

enum verdict { DEFER, PERMIT, DENY };

/* The axes that both versions have. ICMP keeps its type and code where others keep their ports, and where there is
 * neither, both ports are 0. TCP flags are looked at under a mask. */
struct upper {
	__u16 source_port, source_port_span;
	__u16 destination_port, destination_port_span;
	__u8 protocol, protocol_span;
	__u8 flags, flags_mask;
};

struct row4 {
	__u32 source, source_span;
	__u32 destination, destination_span;
	struct upper upper;
};

/* 128 bits, the upper 64 first. */
struct address6 {
	__u64 high, low;
};

struct row6 {
	struct address6 source, source_last;
	struct address6 destination, destination_last;
	struct upper upper;
	__u32 padding;
};

/* What becomes of a row's packets, and the counters that count them (MOST_COUNTERS: none). */
struct outcome {
	__u16 counters[COUNTED];
	__u8 verdict, padding;
};

/* A packet as the rows see it. With the bits that no row looks at cleared it is a flow: all its packets meet the same
 * row. */
struct packet4 {
	__u32 source, destination;
	__u16 source_port, destination_port;
	__u8 protocol, flags;
	__u16 padding;
};

struct packet6 {
	struct address6 source, destination;
	__u16 source_port, destination_port;
	__u8 protocol, flags;
	__u16 padding;
};

/* Everything the cache knows, replaced as a whole. `serial` is no other set's, so flows of an earlier set are none of
 * this one's. `generation` and `digest` name the policy that the verdicts are of. */
struct flow_set {
	__u64 serial;
	__u64 generation;
	__u8 digest[16];
	__u32 rows4, rows6;
	__u8 source_check; /* as rp_filter: 0 no, 1 strict, 2 loose; 3 strict in IPv6 too */
	__u8 padding[7];
	struct packet4 looked4; /* the bits that some row looks at */
	struct packet6 looked6;
	struct row4 row4[MOST_ROWS];
	struct row6 row6[MOST_ROWS];
	struct outcome outcome4[MOST_ROWS];
	struct outcome outcome6[MOST_ROWS];
};

struct flow {
	__u64 serial;
	__u32 row, padding;
};

/* Of one processor. */
struct counter {
	__u64 packets, bytes;
};
