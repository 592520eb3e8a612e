// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* The maps: settings, members, connections, held packets, counters. */
#pragma once
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <stddef.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "statesync.h"

#define inline static __always_inline
#define INET 2
#define DECAP_IPV6 (1ULL << 8)
#define SECOND 1000000000ULL
#define FULL_FOR (10 * SECOND) /* unless room is found before */
#define LEAVING (1ULL << 63) /* in a slot's id: the packet is on its way out */

#define MAP(name, kind, count, key_type, value_type)                                                                   \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_##kind);                                                                     \
		__uint(max_entries, count);                                                                            \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
	} name SEC(".maps")

/* SipHash between two words. */
struct hash {
	__u64 v0, v1, v2, v3;
};

struct scratch {
	__u8 padding[6];
	struct outer outer; /* and the message behind it, in one piece */
	struct message message;
	struct hash rest; /* of the message, all but its first word */
};
#define HEAD_BYTES (sizeof(struct outer) + sizeof(struct message))

MAP(configured, ARRAY, 1, __u32, struct settings);
MAP(members, ARRAY, MEMBERS, __u32, struct member);
MAP(streams, ARRAY, MEMBERS * LANES, __u32, struct stream);
MAP(numbers, ARRAY, 6, __u32, __u64);
enum number { LAST_SEQUENCE, LAST_SLOT, PLACES_TAKEN, BATCHES_SENT, WORDS_BATCHED, FULL_AT };
MAP(counters, PERCPU_ARRAY, COUNTERS, __u32, __u64);
MAP(scratches, PERCPU_ARRAY, 1, __u32, struct scratch);
MAP(healths, ARRAY, 1, __u32, struct health);
MAP(slots, ARRAY, SLOTS, __u32, struct slot);
MAP(batches, ARRAY, BATCHES, __u32, struct batch); /* `closings.h`, in turn */
MAP(batch_here, PERCPU_ARRAY, 1, __u32, struct batch);
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SLOTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} waiting SEC(".maps"); /* the id of the packet in each slot, 0 for none */
MAP(brief, LRU_HASH, BRIEF_MOST, struct key, struct connection);
MAP(prepared, LRU_HASH, PREPARED_MOST, struct key, __u64);
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, OPEN_MOST);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct key);
	__type(value, struct connection);
} opened SEC(".maps");

inline void count(__u32 what)
{
	__u64 *counter = bpf_map_lookup_elem(&counters, &what);

	if (counter)
		(*counter)++;
}
#define COUNT(name) count(COUNT_##name)

inline __u64 next_number(__u32 which)
{
	__u64 *last = bpf_map_lookup_elem(&numbers, &which);

	return last ? __sync_fetch_and_add(last, 1) + 1 : 0;
}

inline struct settings *settings_now(void)
{
	__u32 only = 0;

	return bpf_map_lookup_elem(&configured, &only);
}

inline struct scratch *scratch_here(void)
{
	__u32 only = 0;

	return bpf_map_lookup_elem(&scratches, &only);
}
