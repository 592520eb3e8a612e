// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* The replicator: connections of a firewall, and what its members tell each other of them.
 *
 *     watch   tc, egress of each data interface: packets that the firewall's filter has let through
 *     hear    tc, ingress of each interface by which messages come
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
 * packet that is held. Everything is decided as `oracle.py` says. */
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
#define LEAVING (1ULL << 63) /* in a slot's id: the packet is on its way out */

#define MAP(name, kind, count, key_type, value_type)                                                                   \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_##kind);                                                                     \
		__uint(max_entries, count);                                                                            \
		__type(key, key_type);                                                                                 \
		__type(value, value_type);                                                                             \
	} name SEC(".maps")

struct scratch {
	struct outer outer;
	__u8 padding[6];
	struct message message;
};

MAP(configured, ARRAY, 1, __u32, struct settings);
MAP(members, ARRAY, MEMBERS, __u32, struct member);
MAP(streams, ARRAY, MEMBERS * LANES, __u32, struct stream);
MAP(numbers, ARRAY, 2, __u32, __u64); /* the last message's sequence, the last slot */
MAP(counters, PERCPU_ARRAY, COUNTERS, __u32, __u64);
MAP(scratches, PERCPU_ARRAY, 1, __u32, struct scratch);
MAP(slots, ARRAY, SLOTS, __u32, struct slot);
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

/* ------------------------------------------------------------------------------------------------------ reading */

struct packet {
	struct key key;
	__u8 kind;
	__u8 sender; /* 1: the upper end of the key */
	__u8 is_error;
	__u16 checksum; /* where the frame has the upper layer's; 0: nowhere */
};

enum readable { UNREADABLE, READABLE, NOT_OURS };

inline __u8 tcp_kind(__u8 flags)
{
	switch (flags & 0x17) {
	case 0x02:
		return SYN;
	case 0x12:
		return SYN_ACK;
	case 0x10:
		return ACK;
	case 0x11:
		return FIN;
	case 0x04:
	case 0x14:
		return RST;
	}
	return BAD;
}

inline struct address mapped(__be32 address)
{
	return (struct address){0, 0xffff00000000ULL | bpf_ntohl(address)};
}

inline struct address whole(const struct in6_addr *from)
{
	const __be32 *part = (const void *)from;

	return (struct address){(__u64)bpf_ntohl(part[0]) << 32 | bpf_ntohl(part[1]),
				(__u64)bpf_ntohl(part[2]) << 32 | bpf_ntohl(part[3])};
}

inline bool is_above(const struct address *left, __u16 left_port, const struct address *right, __u16 right_port)
{
	if (left->high != right->high)
		return left->high > right->high;
	if (left->low != right->low)
		return left->low > right->low;
	return left_port > right_port;
}

/* The key of a packet between two ends, and which of them has sent it. */
inline void set_key(struct packet *packet, struct address source, struct address destination, __u16 source_port,
		    __u16 destination_port)
{
	struct key *key = &packet->key;

	packet->sender = is_above(&source, source_port, &destination, destination_port);
	key->low = packet->sender ? destination : source;
	key->high = packet->sender ? source : destination;
	key->low_port = packet->sender ? destination_port : source_port;
	key->high_port = packet->sender ? source_port : destination_port;
}

/* Ports and kind of what is behind an IP header; `is_quoted`: inside an ICMP error, where eight bytes are enough. */
inline bool read_upper(struct __sk_buff *skb, __u32 at, __u8 protocol, bool is_quoted, struct packet *packet,
		       __u16 *source_port, __u16 *destination_port)
{
	__u8 head[14];

	if (bpf_skb_load_bytes(skb, at, head, 8))
		return false;
	*source_port = (__u16)head[0] << 8 | head[1];
	*destination_port = (__u16)head[2] << 8 | head[3];
	packet->key.protocol = protocol;
	switch (protocol) {
	case IPPROTO_TCP:
		if (is_quoted)
			return true;
		if (bpf_skb_load_bytes(skb, at, head, sizeof(head)))
			return false;
		packet->kind = tcp_kind(head[13]);
		packet->checksum = at + 16;
		return true;
	case IPPROTO_UDP:
		packet->kind = DATAGRAM;
		packet->checksum = at + 6;
		return true;
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		if (protocol == IPPROTO_ICMP ? head[0] == 8 : head[0] == 128)
			packet->kind = REQUEST;
		else if (protocol == IPPROTO_ICMP ? head[0] == 0 : head[0] == 129)
			packet->kind = REPLY;
		else
			return false;
		packet->checksum = at + 2;
		*source_port = *destination_port = (__u16)head[4] << 8 | head[5];
		return true;
	}
	return false;
}

inline enum readable read4(struct __sk_buff *skb, __u32 at, bool is_quoted, struct packet *packet, __u8 *protocol)
{
	__u16 source_port, destination_port;
	struct iphdr ip;

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || *(__u8 *)&ip != 0x45 || ip.frag_off & ~bpf_htons(0x4000))
		return UNREADABLE;
	*protocol = ip.protocol;
	if (!read_upper(skb, at + sizeof(ip), ip.protocol, is_quoted, packet, &source_port, &destination_port) ||
	    ip.protocol == IPPROTO_ICMPV6)
		return UNREADABLE;
	set_key(packet, mapped(ip.saddr), mapped(ip.daddr), source_port, destination_port);
	return READABLE;
}

inline enum readable read6(struct __sk_buff *skb, __u32 at, bool is_quoted, struct packet *packet, __u8 *protocol)
{
	__u16 source_port, destination_port;
	struct ipv6hdr ip;

	if (bpf_skb_load_bytes(skb, at, &ip, sizeof(ip)) || ip.version != 6)
		return UNREADABLE;
	*protocol = ip.nexthdr;
	if (!read_upper(skb, at + sizeof(ip), ip.nexthdr, is_quoted, packet, &source_port, &destination_port) ||
	    ip.nexthdr == IPPROTO_ICMP)
		return UNREADABLE;
	set_key(packet, whole(&ip.saddr), whole(&ip.daddr), source_port, destination_port);
	return READABLE;
}

/* Whether an ICMP message reports an error about the packet that it quotes. */
inline bool is_error(struct __sk_buff *skb, __u32 at, __u8 protocol)
{
	__u8 type;

	if (bpf_skb_load_bytes(skb, at, &type, 1))
		return false;
	if (protocol == IPPROTO_ICMP)
		return type == 3 || type == 11 || type == 12;
	return protocol == IPPROTO_ICMPV6 && type >= 1 && type <= 4;
}

inline enum readable read_packet(struct __sk_buff *skb, struct packet *packet)
{
	__u8 protocol = 0, quoted = 0;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (read4(skb, ETHERNET, false, packet, &protocol) == READABLE)
			return READABLE;
		packet->is_error = protocol == IPPROTO_ICMP && is_error(skb, ETHERNET + 20, protocol);
		return packet->is_error ? read4(skb, ETHERNET + 28, true, packet, &quoted) : UNREADABLE;
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (read6(skb, ETHERNET, false, packet, &protocol) == READABLE)
			return READABLE;
		packet->is_error = protocol == IPPROTO_ICMPV6 && is_error(skb, ETHERNET + 40, protocol);
		return packet->is_error ? read6(skb, ETHERNET + 48, true, packet, &quoted) : UNREADABLE;
	}
	return NOT_OURS;
}

/* ------------------------------------------------------------------------------------------------------ deciding */

inline bool is_open(__u8 state)
{
	return state == ESTABLISHED || state == FIN_WAIT || state == LAST_ACK || state == BOTH_WAYS;
}

/* The state after a packet; REFUSED: not expected. */
inline __u8 next_state(__u8 state, __u8 kind, bool from_opener, bool from_closer)
{
	if (kind == SYN && (state == LISTEN || state == TIME_WAIT || state == CLOSED))
		return SYN_SENT;
	if (kind == RST && state >= SYN_SENT && state <= CLOSED)
		return CLOSED;
	switch (state) {
	case LISTEN:
		return kind == DATAGRAM || kind == REQUEST ? ONE_WAY : REFUSED;
	case SYN_SENT:
		if (from_opener)
			return kind == SYN ? SYN_SENT : REFUSED;
		return kind == SYN_ACK ? SYN_RECEIVED : REFUSED;
	case SYN_RECEIVED:
		if (kind == FIN)
			return FIN_WAIT;
		if (kind == ACK)
			return from_opener ? ESTABLISHED : SYN_RECEIVED;
		return kind == (from_opener ? SYN : SYN_ACK) ? SYN_RECEIVED : REFUSED;
	case ESTABLISHED:
		if (kind == FIN)
			return FIN_WAIT;
		return kind == ACK || kind == (from_opener ? SYN : SYN_ACK) ? ESTABLISHED : REFUSED;
	case FIN_WAIT:
		if (kind == FIN)
			return from_closer ? FIN_WAIT : LAST_ACK;
		return kind == ACK ? FIN_WAIT : REFUSED;
	case LAST_ACK:
		if (kind == ACK)
			return from_closer ? TIME_WAIT : LAST_ACK;
		return kind == FIN ? LAST_ACK : REFUSED;
	case TIME_WAIT:
		return kind == ACK || kind == FIN ? TIME_WAIT : REFUSED;
	case ONE_WAY:
		if (from_opener)
			return kind == DATAGRAM || kind == REQUEST ? ONE_WAY : REFUSED;
		return kind == DATAGRAM || kind == REPLY ? BOTH_WAYS : REFUSED;
	case BOTH_WAYS:
		return kind == DATAGRAM || kind == (from_opener ? REQUEST : REPLY) ? BOTH_WAYS : REFUSED;
	}
	return REFUSED;
}

inline bool is_shared(const struct settings *settings, __u8 state)
{
	if (settings->level == ESSENTIAL)
		return state == ESTABLISHED || state == BOTH_WAYS || state == TIME_WAIT || state == CLOSED;
	return settings->level == FULL;
}

inline bool is_opening(__u8 state)
{
	return (state >= SYN_SENT && state <= ESTABLISHED) || state == ONE_WAY || state == BOTH_WAYS;
}

inline __u64 timeout_of(const struct settings *settings, __u8 state)
{
	__u32 place = state;

	asm volatile("%0 &= 15" : "+r"(place));
	return settings->timeout[place];
}

inline bool is_over(const struct settings *settings, const struct connection *known, __u64 now)
{
	__u8 state = STATE_OF(known->word);
	__s64 idle = now - known->seen; /* below zero where another processor has just written it */

	return state >= STATES || idle > (__s64)timeout_of(settings, state);
}

inline struct connection *known_as(const struct key *key)
{
	struct connection *known = bpf_map_lookup_elem(&opened, key);

	return known ? known : bpf_map_lookup_elem(&brief, key);
}

/* Put a connection into the table of its state, and out of the other one. False: that table is full, or (with `fresh`)
 * somebody else was faster. */
inline long put(const struct key *key, const struct connection *value, bool was_open, bool is_new)
{
	long failed;

	if (is_open(STATE_OF(value->word))) {
		failed = bpf_map_update_elem(&opened, key, value, was_open ? BPF_ANY : BPF_NOEXIST);
		if (!failed && !was_open && !is_new)
			bpf_map_delete_elem(&brief, key);
		return failed;
	}
	failed = bpf_map_update_elem(&brief, key, value, BPF_ANY);
	if (!failed && was_open)
		bpf_map_delete_elem(&opened, key);
	return failed;
}

/* ------------------------------------------------------------------------------------------------------ messages */

#define ROTATED(word, by) ((word) << (by) | (word) >> (64 - (by)))
#define SIPROUND                                                                                                       \
	v0 += v1, v1 = ROTATED(v1, 13) ^ v0, v0 = ROTATED(v0, 32), v2 += v3, v3 = ROTATED(v3, 16) ^ v2;                \
	v0 += v3, v3 = ROTATED(v3, 21) ^ v0, v2 += v1, v1 = ROTATED(v1, 17) ^ v2, v2 = ROTATED(v2, 32)

/* SipHash-2-4 of a message without its MAC. */
inline __u64 mac_of(const struct message *message, const struct settings *settings)
{
	__u64 v0 = settings->secret[0] ^ 0x736f6d6570736575ULL, v1 = settings->secret[1] ^ 0x646f72616e646f6dULL;
	__u64 v2 = settings->secret[0] ^ 0x6c7967656e657261ULL, v3 = settings->secret[1] ^ 0x7465646279746573ULL;
	const __u64 *word = (const void *)message;
	const __u64 last = (SEALED_WORDS * 8ULL) << 56;

#pragma unroll
	for (int i = 0; i < SEALED_WORDS; i++) {
		v3 ^= word[i];
		SIPROUND;
		SIPROUND;
		v0 ^= word[i];
	}
	v3 ^= last;
	SIPROUND;
	SIPROUND;
	v0 ^= last;
	v2 ^= 0xff;
	SIPROUND;
	SIPROUND;
	SIPROUND;
	SIPROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

inline void seal(struct message *message, const struct settings *settings)
{
	message->version = VERSION;
	message->sender = settings->self;
	message->lane = 0;
	message->padding[0] = message->padding[1] = 0;
	message->sequence = next_number(0);
	message->mac = mac_of(message, settings);
}

/* Find out by which interface and to which neighbour a member's messages go, at most once a second. */
inline bool resolve(struct __sk_buff *skb, struct member *member, const struct settings *settings, __u64 now)
{
	struct bpf_fib_lookup route = {.family = INET, .l4_protocol = IPPROTO_UDP};

	if (member->ifindex && now - member->resolved < SECOND)
		return true;
	route.ipv4_src = settings->address;
	route.ipv4_dst = member->address;
	route.ifindex = skb->ifindex;
	if (bpf_fib_lookup(skb, &route, sizeof(route), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return false;
	__builtin_memcpy(member->destination, route.dmac, 6);
	__builtin_memcpy(member->source, route.smac, 6);
	member->ifindex = route.ifindex;
	member->resolved = now;
	return true;
}

/* The headers before a message, checksums and all. */
inline void address_to(struct outer *outer, __be32 to, __u32 frame, const struct settings *settings)
{
	__u32 sum = 0, total = frame - ETHERNET;
	const __u16 *word;

	outer->type = bpf_htons(ETH_P_IP);
	outer->version_length = 0x45;
	outer->tos = 0xc0;
	outer->total = bpf_htons(total);
	outer->id = 0;
	outer->fragment = bpf_htons(0x4000);
	outer->ttl = 64;
	outer->protocol = IPPROTO_UDP;
	outer->check = 0;
	outer->from = settings->address;
	outer->to = to;
	outer->from_port = outer->to_port = settings->port;
	outer->length = bpf_htons(total - 20);
	outer->udp_check = 0;
	word = (const void *)((const __u8 *)outer + ETHERNET);
#pragma unroll
	for (int i = 0; i < 10; i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16);
	outer->check = ~((sum & 0xffff) + (sum >> 16));
}

/* Send the frame, which has room for a message, to some members. The scratch's message is sealed and written first. */
static __noinline void send_to(struct __sk_buff *skb, struct scratch *scratch, __u32 to, const struct settings *settings, __u64 now)
{
	struct outer *outer = &scratch->outer;

	seal(&scratch->message, settings);
	if (bpf_skb_store_bytes(skb, sizeof(*outer), &scratch->message, sizeof(scratch->message), 0))
		return;
	for (__u32 i = 1; i < MEMBERS; i++) {
		struct member *member;
		__u32 place = i; /* the verifier follows `i` only where nothing points to it */

		if (!(to >> i & 1))
			continue;
		member = bpf_map_lookup_elem(&members, &place);
		if (!member || !resolve(skb, member, settings, now)) {
			COUNT(unresolved);
			continue;
		}
		address_to(outer, member->address, skb->len, settings);
		__builtin_memcpy(outer->destination, member->destination, 6);
		__builtin_memcpy(outer->source, member->source, 6);
		if (bpf_skb_store_bytes(skb, 0, outer, sizeof(*outer), 0) || bpf_clone_redirect(skb, member->ifindex, 0))
			COUNT(unresolved);
		else
			COUNT(sent);
	}
}

/* ------------------------------------------------------------------------------------------------------ holding */

/* Keep a copy of the packet until members have confirmed. Its id, or 0: all slots are taken. */
inline __u64 hold(struct __sk_buff *skb, const struct packet *packet, __u64 word, const struct settings *settings,
		  __u64 now)
{
	__u64 id = next_number(1), before, *taken;
	__u32 place = id & (SLOTS - 1), length = skb->len;
	struct slot *slot = bpf_map_lookup_elem(&slots, &place);

	taken = bpf_map_lookup_elem(&waiting, &place);
	if (!slot || !taken)
		return 0;
	before = *taken;
	if ((before && now - slot->since < settings->hold) || __sync_val_compare_and_swap(taken, before, id) != before)
		return 0;
	slot->since = now;
	slot->confirmed = 0;
	slot->needed = settings->waited;
	slot->phase = settings->transaction ? PREPARE : WRITE;
	slot->ifindex = skb->ifindex;
	slot->checksum = packet->checksum;
	slot->key = packet->key;
	slot->word = word;
	asm volatile("" : "+r"(length));
	if (length < ETHERNET || length > CARRIED_MOST || bpf_skb_load_bytes(skb, 0, slot->frame, length)) {
		*taken = 0;
		return 0;
	}
	slot->length = length;
	return id;
}

inline bool fits(const struct __sk_buff *skb)
{
	return skb->len <= CARRIED_MOST && !skb->gso_size;
}

/* Tell members of a connection's word. The packet is what the message is made of; `slot`: it is held there, and goes no
 * further itself. The frame is as before where it is not held. */
inline int tell(struct __sk_buff *skb, const struct packet *packet, __u64 word, __u64 slot,
		const struct settings *settings, __u64 now)
{
	struct scratch *scratch = scratch_here();
	__u8 ethernet[ETHERNET];

	if (!scratch || bpf_skb_load_bytes(skb, 0, ethernet, sizeof(ethernet)) ||
	    bpf_skb_adjust_room(skb, ROOM, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_NO_CSUM_RESET))
		return TC_ACT_SHOT;
	scratch->message.kind = settings->transaction ? PREPARE : WRITE;
	scratch->message.flags = slot ? WANTS_CONFIRMATION : 0;
	scratch->message.answer = 0;
	scratch->message.slot = slot;
	scratch->message.key = packet->key;
	scratch->message.word = word & ~PENDING;
	send_to(skb, scratch, settings->active, settings, now);
	if (slot)
		return TC_ACT_SHOT;
	if (settings->transaction) { /* nobody waits for the answers, so the second phase follows at once */
		scratch->message.kind = COMMIT;
		send_to(skb, scratch, settings->active, settings, now);
	}
	if (bpf_skb_adjust_room(skb, -(__s32)ROOM, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_NO_CSUM_RESET) ||
	    bpf_skb_store_bytes(skb, 0, ethernet, sizeof(ethernet), 0))
		return TC_ACT_SHOT;
	return TC_ACT_OK;
}

/* Hold a packet, and tell members of the word that it waits for. */
inline int hold_and_tell(struct __sk_buff *skb, const struct packet *packet, __u64 word,
			 const struct settings *settings, __u64 now)
{
	__u64 slot = hold(skb, packet, word, settings, now);

	if (!slot) {
		COUNT(held_full);
		return TC_ACT_SHOT;
	}
	COUNT(held);
	return tell(skb, packet, word, slot, settings, now);
}

/* ------------------------------------------------------------------------------------------------------ watching */

/* A packet that changes nothing passes, unless it overtakes one of its connection that is held. Members are told now of
 * what they could not be told before, and told again of connections that would end for them by their time-out. */
inline int go_on(struct __sk_buff *skb, const struct packet *packet, struct connection *known,
		 const struct settings *settings, __u64 now)
{
	__u64 word = known->word;
	__u8 state = STATE_OF(word);
	bool is_owed;

	known->seen = now;
	if (!settings->active || !is_shared(settings, state) || !fits(skb))
		return TC_ACT_OK;
	/* At level FULL members hold SYN_RECEIVED already, from which this packet leads them on. */
	if (word & PENDING && settings->synchronous && settings->waited &&
	    !(state == ESTABLISHED && settings->level == FULL)) {
		COUNT(overtook);
		return hold_and_tell(skb, packet, word, settings, now);
	}
	is_owed = known->told_version != VERSION_OF(word) && !(word & PENDING);
	if (is_owed || now - known->told > timeout_of(settings, state) / 4) {
		known->told = now;
		known->told_version = VERSION_OF(word);
		return tell(skb, packet, word, 0, settings, now);
	}
	return TC_ACT_OK;
}

inline __u64 changed_word(const struct packet *packet, __u64 word, __u8 after, bool is_new,
			  const struct settings *settings, __u64 now)
{
	__u32 version = VERSION_OF(word) + 1, fresh = (now + settings->clock) >> 20;

	if (is_new) {
		if (!word || (__s32)(fresh - version) > 0)
			version = fresh;
		word = packet->sender ? OPENER : 0;
	} else if (after == FIN_WAIT) {
		word = (word & OPENER) | (packet->sender ? CLOSER : 0);
	} else {
		word &= OPENER | CLOSER;
	}
	return word | after | (__u64)version << 32;
}

SEC("tc") int watch(struct __sk_buff *skb)
{
	const struct settings *settings = settings_now();
	struct packet packet = {};
	struct connection *known, changed;
	__u64 word = 0, now = bpf_ktime_get_ns();
	bool is_new, was_open, shared, holds;
	enum readable readable;
	__u8 state, after;

	if (!settings)
		return TC_ACT_SHOT;
	if (!skb->ingress_ifindex) /* of this machine itself */
		return TC_ACT_OK;
	readable = read_packet(skb, &packet);
	if (readable == NOT_OURS)
		return TC_ACT_OK;
	if (readable == UNREADABLE) {
		COUNT(unreadable);
		return TC_ACT_SHOT;
	}
	known = known_as(&packet.key);
	if (known) {
		word = known->word;
		if (is_over(settings, known, now)) {
			was_open = is_open(STATE_OF(word));
			known = NULL;
		} else {
			was_open = is_open(STATE_OF(word));
		}
	} else {
		was_open = false;
	}
	if (packet.is_error) {
		if (known)
			return TC_ACT_OK;
		COUNT(no_connection);
		return TC_ACT_SHOT;
	}
	state = known ? STATE_OF(word) : LISTEN;
	after = next_state(state, packet.kind, packet.sender == !!(word & OPENER), packet.sender == !!(word & CLOSER));
	if (after == REFUSED) {
		if (known)
			COUNT(unexpected);
		else
			COUNT(no_connection);
		return TC_ACT_SHOT;
	}
	if (known && after == state) {
		COUNT(passed);
		return go_on(skb, &packet, known, settings, now);
	}

	COUNT(changes);
	is_new = state == LISTEN || after == SYN_SENT;
	shared = settings->active && is_shared(settings, after);
	holds = shared && settings->synchronous && settings->waited && is_opening(after) && fits(skb);
	changed.word = changed_word(&packet, word, after, is_new, settings, now) | (holds ? PENDING : 0);
	changed.seen = changed.told = now;
	changed.told_version = VERSION_OF(changed.word) - (shared && !fits(skb)); /* one behind: members have to be told */
	changed.padding = 0;
	if (known && was_open == is_open(after)) {
		if (__sync_val_compare_and_swap(&known->word, word, changed.word) != word) {
			COUNT(raced);
			return TC_ACT_SHOT;
		}
		known->seen = known->told = now;
		known->told_version = changed.told_version;
	} else if (put(&packet.key, &changed, was_open, !word)) {
		COUNT(open_full);
		return TC_ACT_SHOT;
	}
	if (!shared)
		return TC_ACT_OK;
	if (!fits(skb)) {
		COUNT(unheld);
		return TC_ACT_OK;
	}
	if (holds)
		return hold_and_tell(skb, &packet, changed.word, settings, now);
	return tell(skb, &packet, changed.word, 0, settings, now);
}

/* ------------------------------------------------------------------------------------------------------ hearing */

/* Take note of a message's number in its stream. Returns the counter of what is wrong with it, or COUNTERS. */
inline __u32 note(struct stream *stream, __u64 sequence)
{
	__u32 wrong = COUNTERS, place = sequence >> 6 & (WINDOW_WORDS - 1);
	__u64 bit = 1ULL << (sequence & 63), highest, word;

	bpf_spin_lock(&stream->lock);
	highest = stream->highest >> 6;
	word = sequence >> 6;
	if (!stream->open) {
		wrong = COUNT_unready;
	} else if (sequence <= stream->floor || (word < highest && highest - word >= WINDOW_WORDS)) {
		wrong = COUNT_late;
	} else {
		if (word > highest)
			for (__u32 i = 0; i < WINDOW_WORDS; i++) {
				__u64 cleared = highest + 1 + i;

				if (cleared <= word)
					stream->seen[cleared & (WINDOW_WORDS - 1)] = 0;
			}
		if (word > highest + WINDOW_WORDS)
			stream->seen[place] = 0;
		if (stream->seen[place] & bit) {
			wrong = COUNT_replayed;
		} else {
			stream->seen[place] |= bit;
			stream->received++;
			if (sequence > stream->highest)
				stream->highest = sequence;
		}
	}
	bpf_spin_unlock(&stream->lock);
	return wrong;
}

/* Hold what another member says of a connection, unless more is known of it already. False: there is no room. */
inline bool store(const struct key *key, __u64 word, __u64 now)
{
	struct connection *known = bpf_map_lookup_elem(&opened, key), value = {};
	__u32 was_open = known != NULL;

	asm volatile("" : "+r"(was_open)); /* or clang makes arithmetic of the pointer, which the verifier refuses */
	if (!known)
		known = bpf_map_lookup_elem(&brief, key);
	if (known) {
		__s32 newer = VERSION_OF(word) - VERSION_OF(known->word);
		bool begins = !was_open && (is_open(STATE_OF(word)) || STATE_OF(word) == SYN_SENT);

		if (newer < 0 && !begins) {
			COUNT(stale);
			return true;
		}
		if (!newer && known->word == word) { /* told again, so that it does not end here */
			known->seen = known->told = now;
			return true;
		}
	}
	value.word = word;
	value.seen = value.told = now;
	value.told_version = VERSION_OF(word);
	if (put(key, &value, was_open, !known)) {
		COUNT(store_full);
		return false;
	}
	COUNT(stored);
	return true;
}

/* Do what a message asks. False: it was not done, and must not be confirmed. */
inline bool obey(const struct message *message, __u64 now)
{
	__u64 word = message->word & ~PENDING;
	struct connection *known;
	__u64 *promised;

	if (STATE_OF(word) == LISTEN || STATE_OF(word) >= STATES)
		return false;
	switch (message->kind) {
	case WRITE:
		return store(&message->key, word, now);
	case PREPARE:
		return !bpf_map_update_elem(&prepared, &message->key, &word, BPF_ANY);
	case COMMIT:
		promised = bpf_map_lookup_elem(&prepared, &message->key);
		if (!promised || *promised != word) {
			known = known_as(&message->key);
			if (known && !((known->word ^ word) & ~PENDING))
				return true; /* it was committed, and its confirmation was lost */
			COUNT(unprepared);
			return false;
		}
		if (!store(&message->key, word, now))
			return false;
		bpf_map_delete_elem(&prepared, &message->key);
		return true;
	}
	return false;
}

/* Send a message back as its confirmation, with the packet that it carries. */
inline int answer(struct __sk_buff *skb, struct scratch *scratch, __be32 to, const struct settings *settings)
{
	struct message *message = &scratch->message;
	struct outer *outer = &scratch->outer;
	__u8 swapped[6];

	message->answer = message->kind;
	message->kind = CONFIRM;
	message->flags = 0;
	seal(message, settings);
	__builtin_memcpy(swapped, outer->destination, 6);
	__builtin_memcpy(outer->destination, outer->source, 6);
	__builtin_memcpy(outer->source, swapped, 6);
	address_to(outer, to, skb->len, settings);
	if (bpf_skb_store_bytes(skb, 0, outer, sizeof(*outer), 0) ||
	    bpf_skb_store_bytes(skb, sizeof(*outer), message, sizeof(*message), 0))
		return TC_ACT_SHOT;
	COUNT(confirmed);
	return bpf_redirect(skb->ifindex, 0);
}

/* Free the packet of a slot: what came back becomes the copy of it again, its checksum apart, which the way may have
 * filled in. */
inline int release(struct __sk_buff *skb, struct slot *slot, __u64 *taken)
{
	__u32 length = slot->length, checksum = slot->checksum, interface = slot->ifindex;
	__u64 flags = slot->frame[12] == 0x86 ? DECAP_IPV6 : 0;
	struct connection *known;

	if (skb->len != length + ROOM || bpf_skb_adjust_room(skb, -(__s32)ROOM, BPF_ADJ_ROOM_MAC, flags)) {
		COUNT(unasked);
		return TC_ACT_SHOT;
	}
	asm volatile("" : "+r"(checksum), "+r"(length));
	if (checksum && checksum < 128 && bpf_skb_load_bytes(skb, checksum, slot->frame + checksum, 2))
		return TC_ACT_SHOT;
	if (length < ETHERNET || length > CARRIED_MOST || bpf_skb_store_bytes(skb, 0, slot->frame, length, 0))
		return TC_ACT_SHOT;
	known = known_as(&slot->key);
	if (known && known->word == slot->word)
		__sync_val_compare_and_swap(&known->word, slot->word, slot->word & ~PENDING);
	*taken = 0;
	COUNT(released);
	return bpf_redirect(interface, 0);
}

/* A member has done what was asked: the last of them lets the packet go on, or begins the second phase. */
inline int settle(struct __sk_buff *skb, struct scratch *scratch, const struct settings *settings, __u64 now)
{
	struct message *message = &scratch->message;
	__u32 place = message->slot & (SLOTS - 1), mine = 1U << (message->sender & (MEMBERS - 1)), needed;
	struct slot *slot = bpf_map_lookup_elem(&slots, &place);
	__u64 *taken = bpf_map_lookup_elem(&waiting, &place), id = message->slot;

	if (!slot || !taken || !id || *taken != id || slot->phase != message->answer) {
		COUNT(unasked);
		return TC_ACT_SHOT;
	}
	needed = slot->needed & settings->waited;
	mine |= __sync_fetch_and_or(&slot->confirmed, mine);
	if ((mine & needed) != needed)
		return TC_ACT_SHOT;
	if (message->answer != PREPARE) {
		if (__sync_val_compare_and_swap(taken, id, id | LEAVING) != id)
			return TC_ACT_SHOT;
		return release(skb, slot, taken);
	}
	if (__sync_val_compare_and_swap(&slot->phase, PREPARE, COMMIT) != PREPARE)
		return TC_ACT_SHOT;
	slot->confirmed = 0;
	message->kind = COMMIT;
	message->flags = WANTS_CONFIRMATION;
	message->answer = 0;
	send_to(skb, scratch, settings->active, settings, now);
	return TC_ACT_SHOT;
}

SEC("tc") int hear(struct __sk_buff *skb)
{
	const struct settings *settings = settings_now();
	struct scratch *scratch = scratch_here();
	struct message *message;
	struct outer *outer;
	struct stream *stream;
	__u32 place, wrong;
	__u64 now;
	__be32 from;

	if (!settings || !scratch || skb->protocol != bpf_htons(ETH_P_IP))
		return TC_ACT_OK;
	outer = &scratch->outer;
	message = &scratch->message;
	if (bpf_skb_load_bytes(skb, 0, outer, sizeof(*outer)) || outer->version_length != 0x45 ||
	    outer->protocol != IPPROTO_UDP || outer->to != settings->address || outer->to_port != settings->port ||
	    outer->fragment & ~bpf_htons(0x4000))
		return TC_ACT_OK;
	from = outer->from;
	if (bpf_skb_load_bytes(skb, sizeof(*outer), message, sizeof(*message)) || message->version != VERSION ||
	    message->mac != mac_of(message, settings)) {
		COUNT(wrong_mac);
		return TC_ACT_SHOT;
	}
	if (message->sender == settings->self || message->sender >= MEMBERS || message->lane >= LANES ||
	    !(settings->active >> message->sender & 1)) {
		COUNT(not_member);
		return TC_ACT_SHOT;
	}
	place = message->sender * LANES + message->lane;
	stream = bpf_map_lookup_elem(&streams, &place);
	if (!stream)
		return TC_ACT_SHOT;
	wrong = note(stream, message->sequence);
	if (wrong != COUNTERS) {
		count(wrong);
		return TC_ACT_SHOT;
	}
	now = bpf_ktime_get_ns();
	if (message->kind == CONFIRM)
		return settle(skb, scratch, settings, now);
	if (!obey(message, now) || !(message->flags & WANTS_CONFIRMATION))
		return TC_ACT_SHOT;
	return answer(skb, scratch, from, settings);
}

/* One entry of a bulk transfer, behind an Ethernet header: a key and a word. */
SEC("tc") int take(struct __sk_buff *skb)
{
	struct {
		struct key key;
		__u64 word;
	} entry;

	if (bpf_skb_load_bytes(skb, ETHERNET, &entry, sizeof(entry)))
		return TC_ACT_SHOT;
	return store(&entry.key, entry.word & ~PENDING, bpf_ktime_get_ns()) ? TC_ACT_OK : TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "GPL"; /* bpf_fib_lookup asks for it */
