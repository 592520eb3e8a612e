// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* A packet filter for thousands of general rules: a tc program at the ingress of every interface that a firewall
 * forwards on, as the flow cache is, and it leaves the same packets to the kernel.
 *
 *   packet ──▶ plain? ──▶ set? ──▶ flow known? ──▶ five axes ──▶ first common bit ──▶ would the kernel forward it? ──▶ verdict
 *
 * Aggregated bit vectors (Lakshman and Stiliadis, SIGCOMM 1998; Baboescu and Varghese, SIGCOMM 2001): on each axis a
 * search among sorted intervals, or a look into a table of all values, gives the vector of the rows that reach there;
 * the lowest bit that all five have is the first row that holds the packet. A summary of each vector says which parts of it are worth looking at.
 *
 * A set's tables are filled before the set is put into its place, in the half of the maps of maps that the set before it
 * does not use; so a packet meets one set or the other.
 */
#include "classifier.h"

#define SET rule_set
#include "forwarding.h"

#define CLASSES (2 * (AXES - ADDRESSES)) /* of a half: the axes that are no addresses, of IPv4, then of IPv6 */
#define VECTORS (2 * AXES)
#define STEPS 15 /* halve MOST_INTERVALS */

struct set_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct rule_set));
};

struct intervals_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct intervals));
};

struct classes_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct classes));
};

struct intervals6_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct intervals6));
};

struct vectors_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_INNER_MAP);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct vector));
};

struct outcomes_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct outcomes));
};

#define MAP_OF(inner, name, places)                                                                                    \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);                                                              \
		__uint(max_entries, places);                                                                           \
		__type(key, __u32);                                                                                    \
		__array(values, struct inner);                                                                         \
	} name SEC(".maps")

MAP_OF(set_map, chosen, 1);
MAP_OF(intervals_map, intervals, 2 * ADDRESSES);
MAP_OF(intervals6_map, intervals6, 2 * ADDRESSES);
MAP_OF(classes_map, classes, 2 * CLASSES);
MAP_OF(vectors_map, vectors, 2 * VECTORS);
MAP_OF(outcomes_map, outcomes, 2 * 2);

/* The only value of a map that stands at a place of a map of maps. */
inline void *table_at(void *maps, __u32 place)
{
	void *inner = bpf_map_lookup_elem(maps, &place);
	__u32 only = 0;

	return inner ? bpf_map_lookup_elem(inner, &only) : NULL;
}

/* The vector of a class on an axis. */
inline const struct vector *vector_at(__u32 place, __u32 class)
{
	void *inner = bpf_map_lookup_elem(&vectors, &place);

	return inner ? bpf_map_lookup_elem(inner, &class) : NULL;
}

inline bool at_most4(const __u32 *left, const __u32 *right)
{
	return *left <= *right;
}

/* The class of the interval that holds a value: the last that does not begin behind it. The search begins at a zero that
 * is read from the table, so that the verifier follows one way through it and not all that there are; and these are
 * functions of their own, which it looks at once. */
#define CLASS_OF(version, table, number)                                                                               \
	__attribute__((noinline)) __u32 class_of##version(const struct table *table, const number *value)              \
	{                                                                                                              \
		__u32 low, width = MOST_INTERVALS / 2;                                                                 \
                                                                                                                       \
		if (!table || !value)                                                                                  \
			return 0;                                                                                      \
		low = table->zero;                                                                                     \
		for (int i = 0; i < STEPS; i++, width >>= 1) {                                                         \
			__u32 next = (low + width) & (MOST_INTERVALS - 1);                                             \
                                                                                                                       \
			if (next < table->count && at_most##version(&table->start[next], value))                       \
				low = next;                                                                            \
		}                                                                                                      \
		return table->class[low & (MOST_INTERVALS - 1)];                                                       \
	}
CLASS_OF(4, intervals, __u32)
CLASS_OF(6, intervals6, struct address6)

#define class_of16(table, value) ((table)->of[*(value)])

struct search {
	const struct vector *vector[AXES];
};

/* The place of the lowest bit: how many bits are below it. The instruction set has no such instruction, nor a count. */
inline __u32 lowest_bit(__u64 of)
{
	of = (of & -of) - 1;
	of -= of >> 1 & 0x5555555555555555;
	of = (of & 0x3333333333333333) + (of >> 2 & 0x3333333333333333);
	of = (of + (of >> 4)) & 0x0f0f0f0f0f0f0f0f;
	return of * 0x0101010101010101 >> 56;
}

/* Row bits of a word that both the destination and its port have: few of many thousand rows have both. */
#define OF_DESTINATION(place) (destination->word[place] & port->word[place])

/* The lowest bit that all five vectors have; MOST_RULES: none. Words are looked at four at a time, one after the other: a
 * plain loop over all of them is several times faster than a call for each of those that summaries name. */
static __attribute__((noinline)) __u32 first_common(const struct search *search)
{
	const struct vector *source = search->vector[SOURCE], *destination = search->vector[DESTINATION],
			    *source_port = search->vector[SOURCE_PORT], *port = search->vector[DESTINATION_PORT],
			    *protocol = search->vector[PROTOCOL];

	for (__u32 part = 0; part < SUMMARY; part++) {
		if (!(source->summary[part] & destination->summary[part] & source_port->summary[part] &
		      port->summary[part] & protocol->summary[part]))
			continue;
		for (__u32 first = part * 64; first < (part + 1) * 64; first += 4) {
			if (!(OF_DESTINATION(first) | OF_DESTINATION(first + 1) | OF_DESTINATION(first + 2) |
			      OF_DESTINATION(first + 3)))
				continue;
			for (__u32 word = first; word < first + 4; word++) {
				__u64 common = OF_DESTINATION(word) & source->word[word];

				common &= source_port->word[word] & protocol->word[word];
				if (common)
					return word * 64 + lowest_bit(common);
			}
		}
	}
	return MOST_RULES;
}

/* Finds the vector of one axis; `return` where a table is missing, which no complete set lets happen. */
#define VECTOR(search, axis, version, maps, map_place, vector_place, value)                                            \
	do {                                                                                                           \
		const struct maps *table = table_at(&maps, map_place);                                                 \
                                                                                                                       \
		if (!table)                                                                                            \
			return MOST_RULES;                                                                             \
		(search).vector[axis] = vector_at(vector_place, class_of##version(table, &(value)));                   \
		if (!(search).vector[axis])                                                                            \
			return MOST_RULES;                                                                             \
	} while (0)

inline __u32 search4(const struct rule_set *set, const struct packet4 *p)
{
	__u32 addresses = set->half * ADDRESSES, tables = set->half * CLASSES - ADDRESSES, at = set->half * VECTORS;
	__u16 protocol = (__u16)p->protocol << 8 | p->flags;
	struct search search = {};

	VECTOR(search, DESTINATION, 4, intervals, addresses + DESTINATION, at + DESTINATION, p->destination);
	VECTOR(search, SOURCE, 4, intervals, addresses + SOURCE, at + SOURCE, p->source);
	VECTOR(search, SOURCE_PORT, 16, classes, tables + SOURCE_PORT, at + SOURCE_PORT, p->source_port);
	VECTOR(search, DESTINATION_PORT, 16, classes, tables + DESTINATION_PORT, at + DESTINATION_PORT, p->destination_port);
	VECTOR(search, PROTOCOL, 16, classes, tables + PROTOCOL, at + PROTOCOL, protocol);
	return first_common(&search);
}

inline __u32 search6(const struct rule_set *set, const struct packet6 *p)
{
	__u32 addresses = set->half * ADDRESSES, at = set->half * VECTORS + AXES,
	      tables = set->half * CLASSES + AXES - 2 * ADDRESSES; /* behind those of IPv4 */
	__u16 protocol = (__u16)p->protocol << 8 | p->flags;
	struct search search = {};

	VECTOR(search, DESTINATION, 6, intervals6, addresses + DESTINATION, at + DESTINATION, p->destination);
	VECTOR(search, SOURCE, 6, intervals6, addresses + SOURCE, at + SOURCE, p->source);
	VECTOR(search, SOURCE_PORT, 16, classes, tables + SOURCE_PORT, at + SOURCE_PORT, p->source_port);
	VECTOR(search, DESTINATION_PORT, 16, classes, tables + DESTINATION_PORT, at + DESTINATION_PORT, p->destination_port);
	VECTOR(search, PROTOCOL, 16, classes, tables + PROTOCOL, at + PROTOCOL, protocol);
	return first_common(&search);
}

/* A row's outcome; NULL behind the last. */
inline const struct outcome *outcome_at(const struct outcomes *outcomes, __u32 row)
{
	return row < MOST_RULES ? &outcomes->row[bounded(row, MOST_RULES)] : NULL;
}

/* What becomes of a packet, from what is known of its flow or by a search. */
#define OUTCOME(version, place)                                                                                        \
	inline const struct outcome *outcome_of##version(const struct SET *set, const struct packet##version *packet)  \
	{                                                                                                              \
		const struct outcomes *outcome = table_at(&outcomes, set->half * 2 + place);                           \
		struct flow *known = NULL, found = {.serial = set->serial};                                            \
		struct packet##version flow;                                                                           \
                                                                                                                       \
		if (!outcome)                                                                                          \
			return NULL;                                                                                   \
		if (set->remembers)                                                                                    \
			known = known##version(set, packet, &flow);                                                    \
		if (known)                                                                                             \
			return outcome_at(outcome, known->row);                                                        \
		found.row = search##version(set, packet);                                                              \
		if (set->remembers && found.row < MOST_RULES)                                                          \
			bpf_map_update_elem(&flows##version, &flow, &found, BPF_ANY);                                  \
		return outcome_at(outcome, found.row);                                                                 \
	}
OUTCOME(4, 0)
OUTCOME(6, 1)

SEC("tc") int classifier(struct __sk_buff *skb)
{
	const struct rule_set *set;
	__u32 only = 0;
	void *now;

	if (!is_ours(skb))
		return SLOW_PATH;
	now = bpf_map_lookup_elem(&chosen, &only);
	if (!now)
		return SLOW_PATH;
	set = bpf_map_lookup_elem(now, &only);
	return set ? decide(skb, set) : SLOW_PATH;
}

char LICENSE[] SEC("license") = "GPL"; /* bpf_fib_lookup asks for it */
