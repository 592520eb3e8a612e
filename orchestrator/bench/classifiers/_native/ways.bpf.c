// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* Ways to find the first row that holds a packet, each a program of its own: WAY_TUPLES, WAY_CLASSES or WAY_VECTORS is defined, or
 * none, which shows what it costs to run a program. Every run takes the next packet of `packets`, and answers with its
 * row. `kernelsearches.py` fills the maps.
 *
 *   WAY_VECTORS   the classifier's own search, on its own maps
 *   WAY_CLASSES   recursive flow classification: its five searches, then four tables of combined classes
 *   WAY_TUPLES    tuple space: a look-up in a hash table for each shape of row, until no shape left has a lower row
 */
#include "classifier.h"

#include <linux/bpf.h>
#include <stdbool.h>
#include <stddef.h>

#include <bpf/bpf_helpers.h>

#define SAMPLE 4096 /* packets */
#define NO_ROW MOST_RULES

struct shown {
	__u32 next, row;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SAMPLE);
	__type(key, __u32);
	__type(value, struct packet4);
} packets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct shown);
} shown SEC(".maps");

static __always_inline __u32 row_of(const struct packet4 *packet);

SEC("tc") int way(struct __sk_buff *skb)
{
	__u32 only = 0, place;
	const struct packet4 *packet;
	struct shown *run = bpf_map_lookup_elem(&shown, &only);

	if (!run)
		return -1;
	place = run->next++ % SAMPLE;
	packet = bpf_map_lookup_elem(&packets, &place);
	run->row = packet ? row_of(packet) : NO_ROW;
	return 0;
}

#ifdef WAY_TUPLES

#define MOST_SHAPES 8192
#define MOST_ENTRIES (1 << 16) /* no more than it takes: buckets are to stay in the processor's caches */

/* Which bits a shape looks at, and the lowest row that it has. */
struct shape {
	struct packet4 mask;
	__u32 lowest;
};

struct entry {
	struct packet4 masked;
	__u32 shape;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_SHAPES);
	__type(key, __u32);
	__type(value, struct shape);
} shapes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MOST_ENTRIES);
	__type(key, struct entry);
	__type(value, __u32);
} entries SEC(".maps");

struct walk {
	const struct packet4 *packet;
	__u32 row;
};

static long look(__u32 place, struct walk *walk)
{
	const struct shape *shape = bpf_map_lookup_elem(&shapes, &place);
	const struct packet4 *packet = walk->packet;
	struct entry key = {};
	const __u32 *row;

	if (!shape || shape->lowest >= walk->row) /* they are in the order of their lowest rows */
		return 1;
	key.masked.source = packet->source & shape->mask.source;
	key.masked.destination = packet->destination & shape->mask.destination;
	key.masked.source_port = packet->source_port & shape->mask.source_port;
	key.masked.destination_port = packet->destination_port & shape->mask.destination_port;
	key.masked.protocol = packet->protocol & shape->mask.protocol;
	key.masked.flags = packet->flags & shape->mask.flags;
	key.shape = place;
	row = bpf_map_lookup_elem(&entries, &key);
	if (row && *row < walk->row)
		walk->row = *row;
	return 0;
}

static __always_inline __u32 row_of(const struct packet4 *packet)
{
	struct walk walk = {packet, NO_ROW};

	bpf_loop(MOST_SHAPES, look, &walk, 0);
	return walk.row;
}

#elif defined(WAY_CLASSES) || defined(WAY_VECTORS)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rule_set);
} head SEC(".maps");

#include "classifier.bpf.c"
#undef inline

#ifdef WAY_VECTORS

static __always_inline __u32 row_of(const struct packet4 *packet)
{
	__u32 only = 0;
	const struct rule_set *set = bpf_map_lookup_elem(&head, &only);

	return set ? search4(set, packet) : NO_ROW;
}

#else

enum table { ADDRESS_PAIR, PORT_PAIR, UPPER, ROW, TABLES };

/* A table of pairs of classes: where it begins in `cells`, and how many columns it has. */
struct pairs {
	__u32 first, columns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TABLES);
	__type(key, __u32);
	__type(value, struct pairs);
} tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_CELLS);
	__type(key, __u32);
	__type(value, __u32);
} cells SEC(".maps");

static __always_inline __u32 combined(__u32 table, __u32 left, __u32 right)
{
	const struct pairs *of = bpf_map_lookup_elem(&tables, &table);
	const __u32 *found;
	__u32 place;

	if (!of)
		return 0;
	place = of->first + left * of->columns + right;
	found = bpf_map_lookup_elem(&cells, &place);
	return found ? *found : 0;
}

#define CLASS(version, maps, place, value)                                                                             \
	({                                                                                                             \
		const struct maps *table = table_at(&maps, place);                                                     \
		table ? class_of##version(table, &(value)) : 0;                                                        \
	})

static __always_inline __u32 row_of(const struct packet4 *packet)
{
	__u16 protocol = (__u16)packet->protocol << 8 | packet->flags;
	__u32 source = CLASS(4, intervals, SOURCE, packet->source),
	      destination = CLASS(4, intervals, DESTINATION, packet->destination),
	      source_port = CLASS(16, classes, SOURCE_PORT - ADDRESSES, packet->source_port),
	      port = CLASS(16, classes, DESTINATION_PORT - ADDRESSES, packet->destination_port),
	      upper = CLASS(16, classes, PROTOCOL - ADDRESSES, protocol);

	upper = combined(UPPER, combined(PORT_PAIR, source_port, port), upper);
	return combined(ROW, combined(ADDRESS_PAIR, source, destination), upper);
}

#endif

#else

static __always_inline __u32 row_of(const struct packet4 *packet)
{
	return packet->source % NO_ROW;
}

#endif

#if !defined(WAY_CLASSES) && !defined(WAY_VECTORS)
char LICENSE[] SEC("license") = "GPL";
#endif
