// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* What the maps of the classifier hold: `classifierlayout.py` packs the same bytes. All numbers are in the machine's
 * order.
 *
 * Every axis is cut where some row begins or ends. An interval has a class, and intervals that the same rows reach into
 * share one; a class has a vector, in which bit i says that row i reaches into it. */
#pragma once
#include "flowcache.h"

#define MOST_RULES 16384 /* rows of a version of IP */
#define MOST_INTERVALS 32768
#define WORDS (MOST_RULES / 64)
#define SUMMARY (WORDS / 64)
#define AXES 5
#define ADDRESSES 2 /* of the axes; the others have 16 bits */
#define VALUES 65536

enum axis { SOURCE, DESTINATION, SOURCE_PORT, DESTINATION_PORT, PROTOCOL };

/* Intervals of an axis of addresses: where each begins, ascending from 0 on, and its class. */
struct intervals {
	__u32 count, zero;
	__u32 start[MOST_INTERVALS];
	__u32 class[MOST_INTERVALS];
};

/* The class of each value of an axis of 16 bits: ports, and protocols with flags. */
struct classes {
	__u16 of[VALUES];
};

struct intervals6 {
	__u32 count, zero, padding[2];
	struct address6 start[MOST_INTERVALS];
	__u32 class[MOST_INTERVALS];
};

/* Bit w of the summary: word w is not zero. */
struct vector {
	__u64 summary[SUMMARY];
	__u64 word[WORDS];
};

struct outcomes {
	struct outcome row[MOST_RULES];
};

/* What the classifier begins with, replaced as a whole; the tables of a set are those of its half of the maps of maps. */
struct rule_set {
	__u64 serial;
	__u64 generation;
	__u8 digest[16];
	__u32 rows4, rows6;
	__u8 source_check; /* as rp_filter: 0 no, 1 strict, 2 loose; 3 strict in IPv6 too */
	__u8 remembers;    /* flows */
	__u8 half;
	__u8 padding[5];
	struct packet4 looked4;
	struct packet6 looked6;
};
