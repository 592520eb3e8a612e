// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* Messages between members: their MAC and number, the way to a member, and which have come. */
#pragma once
#include "maps.h"

#define ROTATED(word, by) ((word) << (by) | (word) >> (64 - (by)))
#define SIPROUND                                                                                                       \
	v0 += v1, v1 = ROTATED(v1, 13) ^ v0, v0 = ROTATED(v0, 32), v2 += v3, v3 = ROTATED(v3, 16) ^ v2;                \
	v0 += v3, v3 = ROTATED(v3, 21) ^ v0, v2 += v1, v1 = ROTATED(v1, 17) ^ v2, v2 = ROTATED(v2, 32)

inline void begin_hash(struct hash *hash, const struct settings *settings)
{
	hash->v0 = settings->secret[0] ^ 0x736f6d6570736575ULL;
	hash->v1 = settings->secret[1] ^ 0x646f72616e646f6dULL;
	hash->v2 = settings->secret[0] ^ 0x6c7967656e657261ULL;
	hash->v3 = settings->secret[1] ^ 0x7465646279746573ULL;
}

inline void hash_word(struct hash *hash, __u64 word)
{
	__u64 v0 = hash->v0, v1 = hash->v1, v2 = hash->v2, v3 = hash->v3 ^ word;

	SIPROUND;
	SIPROUND;
	hash->v0 = v0 ^ word;
	hash->v1 = v1;
	hash->v2 = v2;
	hash->v3 = v3;
}

inline __u64 end_hash(struct hash *hash, __u64 bytes)
{
	__u64 v0, v1, v2, v3;

	hash_word(hash, bytes << 56);
	v0 = hash->v0;
	v1 = hash->v1;
	v2 = hash->v2 ^ 0xff;
	v3 = hash->v3;
	SIPROUND;
	SIPROUND;
	SIPROUND;
	SIPROUND;
	return v0 ^ v1 ^ v2 ^ v3;
}

/* Hash all of a message but its first word, which changes on its way from member to member, and its MAC. */
inline void hash_rest(struct hash *rest, const struct message *message, const struct settings *settings)
{
	const __u64 *word = (const void *)message;

	begin_hash(rest, settings);
#pragma unroll
	for (int i = 1; i < SEALED_WORDS; i++)
		hash_word(rest, word[i]);
}

/* SipHash-2-4 of a message without its MAC, its first word last. */
inline __u64 mac_of(const struct message *message, const struct hash *rest)
{
	struct hash hash = *rest;

	hash_word(&hash, *(const __u64 *)message);
	return end_hash(&hash, SEALED_WORDS * 8);
}

/* Whether the scratch's message has the right MAC. Its rest is hashed from here on. */
inline bool is_sealed(struct scratch *scratch, const struct settings *settings)
{
	hash_rest(&scratch->rest, &scratch->message, settings);
	return scratch->message.mac == mac_of(&scratch->message, &scratch->rest);
}

/* Make a message the next one of this member. Its MAC is missing. */
inline void number(struct message *message, const struct settings *settings)
{
	message->version = VERSION;
	message->sender = settings->self;
	message->lane = 0;
	message->sequence = next_number(LAST_SEQUENCE);
}

/* Find out by which interface and to which neighbour a member's messages go, at most once a second. A neighbour that the
 * kernel has forgotten, because nothing but messages goes there, is kept where it was. */
inline bool resolve(struct __sk_buff *skb, struct member *member, const struct settings *settings, __u64 now)
{
	struct bpf_fib_lookup route = {.family = INET, .l4_protocol = IPPROTO_UDP};
	long found;

	if (member->ifindex && now - member->resolved < SECOND)
		return true;
	route.ipv4_src = settings->address;
	route.ipv4_dst = member->address;
	route.ifindex = skb->ifindex;
	found = bpf_fib_lookup(skb, &route, sizeof(route), 0);
	if (found == BPF_FIB_LKUP_RET_NO_NEIGH && member->ifindex) {
		member->resolved = now;
		return true;
	}
	if (found != BPF_FIB_LKUP_RET_SUCCESS)
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

	number(&scratch->message, settings);
	hash_rest(&scratch->rest, &scratch->message, settings);
	scratch->message.mac = mac_of(&scratch->message, &scratch->rest);
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

/* Send the frame on to the next member that its message has ahead, or back to its sender after the last one. The
 * scratch holds the hash of the message's rest. */
static __noinline int pass_on(struct __sk_buff *skb, struct scratch *scratch, const struct settings *settings, __u64 now)
{
	struct message *message = &scratch->message;
	struct outer *outer = &scratch->outer;
	struct member *member;
	__u32 next = message->sender;

	for (__u32 i = MEMBERS - 1; i; i--)
		if (message->ahead >> i & 1)
			next = i;
	member = bpf_map_lookup_elem(&members, &next);
	if (!member || !resolve(skb, member, settings, now)) {
		COUNT(unresolved);
		return TC_ACT_SHOT;
	}
	message->mac = mac_of(message, &scratch->rest);
	address_to(outer, member->address, skb->len, settings);
	__builtin_memcpy(outer->destination, member->destination, 6);
	__builtin_memcpy(outer->source, member->source, 6);
	if (bpf_skb_store_bytes(skb, 0, outer, HEAD_BYTES, 0))
		return TC_ACT_SHOT;
	COUNT(sent);
	return bpf_redirect(member->ifindex, 0);
}

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
