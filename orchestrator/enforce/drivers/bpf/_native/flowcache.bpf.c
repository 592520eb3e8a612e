// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* A flow cache in front of a packet filter: a tc program at the ingress of every interface that a firewall forwards on.
 *
 *   packet ──▶ plain? ──▶ set? ──▶ flow known? ──▶ first row that holds it ──▶ would the kernel forward it? ──▶ verdict
 *                │no       │none          │yes ─────────▶│         │none          │no                          │
 *                └─────────┴──────────────┴──────────────┴─────────┴──────────────┴─▶ the slow path            ├─ redirect
 *                                                                                                              └─ drop
 *
 * Whatever it does not decide it leaves as it came (TC_ACT_UNSPEC), and the kernel and its packet filter decide as
 * without a cache. So it handles only what is plain: whole packets that are not fragmented, without IPv4 options, IPv6
 * extension headers or a VLAN tag, for this machine's MAC address, whose headers are complete and right, with a TTL left.
 *
 * A set is all the cache knows. It stands in a map of maps with one place: no set there, no verdict. User space takes a
 * set away by deleting it there, which returns when no program runs any more that still saw it.
 */
#include "flowcache.h"

#define SET flow_set
#include "forwarding.h"

struct set_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct flow_set));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct set_map);
} current SEC(".maps");

/* ------------------------------------------------------------------------------------------------------ matching */

inline bool upper_holds(const struct upper *row, __u16 source_port, __u16 destination_port, __u8 protocol, __u8 flags)
{
	return (__u8)(protocol - row->protocol) <= row->protocol_span &&
	       (__u16)(destination_port - row->destination_port) <= row->destination_port_span &&
	       (__u16)(source_port - row->source_port) <= row->source_port_span && (flags & row->flags_mask) == row->flags;
}

inline bool holds4(const struct row4 *row, const struct packet4 *p)
{
	return p->destination - row->destination <= row->destination_span &&
	       p->source - row->source <= row->source_span &&
	       upper_holds(&row->upper, p->source_port, p->destination_port, p->protocol, p->flags);
}

inline bool holds6(const struct row6 *row, const struct packet6 *p)
{
	return at_most6(&row->destination, &p->destination) && at_most6(&p->destination, &row->destination_last) &&
	       at_most6(&row->source, &p->source) && at_most6(&p->source, &row->source_last) &&
	       upper_holds(&row->upper, p->source_port, p->destination_port, p->protocol, p->flags);
}

/* The first row that holds a packet, from what is known of its flow or by asking row by row; MOST_ROWS: none. */
#define FIRST_ROW(version)                                                                                             \
	struct search##version {                                                                                       \
		const struct flow_set *set;                                                                            \
		const struct packet##version *packet;                                                                  \
		__u32 row;                                                                                             \
	};                                                                                                             \
                                                                                                                       \
	static long ask_row##version(__u32 row, struct search##version *search)                                        \
	{                                                                                                              \
		if (row >= MOST_ROWS)                                                                                  \
			return 1;                                                                                      \
		if (!holds##version(&search->set->row##version[row], search->packet))                                  \
			return 0;                                                                                      \
		search->row = row;                                                                                     \
		return 1;                                                                                              \
	}                                                                                                              \
                                                                                                                       \
	inline __u32 first_row##version(const struct flow_set *set, const struct packet##version *packet)              \
	{                                                                                                              \
		struct search##version search = {set, packet, MOST_ROWS};                                              \
		struct packet##version flow;                                                                           \
		struct flow *known = known##version(set, packet, &flow), found = {.serial = set->serial};              \
                                                                                                                       \
		if (known)                                                                                             \
			return known->row;                                                                             \
		bpf_loop(set->rows##version, ask_row##version, &search, 0);                                            \
		if (search.row < MOST_ROWS) {                                                                          \
			found.row = search.row;                                                                        \
			bpf_map_update_elem(&flows##version, &flow, &found, BPF_ANY);                                  \
		}                                                                                                      \
		return search.row;                                                                                     \
	}
FIRST_ROW(4)
FIRST_ROW(6)

#define OUTCOME(version)                                                                                               \
	inline const struct outcome *outcome_of##version(const struct SET *set, const struct packet##version *packet)  \
	{                                                                                                              \
		__u32 row = first_row##version(set, packet);                                                           \
                                                                                                                       \
		return row < MOST_ROWS ? &set->outcome##version[bounded(row, MOST_ROWS)] : NULL;                       \
	}
OUTCOME(4)
OUTCOME(6)

SEC("tc") int flow_cache(struct __sk_buff *skb)
{
	const struct flow_set *set;
	__u32 only = 0;
	void *now;

	if (!is_ours(skb))
		return SLOW_PATH;
	now = bpf_map_lookup_elem(&current, &only);
	if (!now)
		return SLOW_PATH;
	set = bpf_map_lookup_elem(now, &only);
	return set ? decide(skb, set) : SLOW_PATH;
}

char LICENSE[] SEC("license") = "GPL"; /* bpf_fib_lookup asks for it */
