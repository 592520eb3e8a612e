// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* The programs `hear`, `take` and `expire`: messages of other members, entries of a bulk transfer, keys to sweep. */
#pragma once
#include "closings.h"
#include "held.h"

/* Do what a message asks. False: it was not done, and must not be confirmed. */
inline bool obey(const struct message *message, __u64 now)
{
	__u64 word = message->word & ~PENDING;
	struct connection *known;
	__u64 *promised;
	bool was_promised;

	if (STATE_OF(word) == LISTEN || STATE_OF(word) >= STATES)
		return false;
	switch (message->kind) {
	case WRITE:
		return store(&message->key, word, now, true);
	case PREPARE:
		return !bpf_map_update_elem(&prepared, &message->key, &word, BPF_ANY);
	case COMMIT:
		promised = bpf_map_lookup_elem(&prepared, &message->key);
		was_promised = promised && *promised == word;
		if (!was_promised && message->flags & WANTS_CONFIRMATION) {
			known = known_as(&message->key);
			if (known && !((known->word ^ word) & ~PENDING))
				return true; /* it was committed, and its confirmation was lost */
			COUNT(unprepared);
			return false;
		}
		/* Where nobody waits for the first phase, the second may overtake it. */
		if (!store(&message->key, word, now, true))
			return false;
		if (was_promised)
			bpf_map_delete_elem(&prepared, &message->key);
		return true;
	}
	return false;
}

/* Send a message back as its confirmation, with the packet that it carries. It keeps the number of what it confirms: a
 * number of this member's own would be missing at all others. */
inline int answer(struct __sk_buff *skb, struct scratch *scratch, __be32 to, const struct settings *settings)
{
	struct message *message = &scratch->message;
	struct outer *outer = &scratch->outer;
	__u8 swapped[6];

	message->answer = message->kind;
	message->kind = CONFIRM;
	message->flags = message->ahead = 0;
	message->sender = settings->self;
	message->lane = 0;
	message->mac = mac_of(message, &scratch->rest);
	__builtin_memcpy(swapped, outer->destination, 6);
	__builtin_memcpy(outer->destination, outer->source, 6);
	__builtin_memcpy(outer->source, swapped, 6);
	address_to(outer, to, skb->len, settings);
	if (bpf_skb_store_bytes(skb, 0, outer, HEAD_BYTES, 0))
		return TC_ACT_SHOT;
	COUNT(confirmed);
	return bpf_redirect(skb->ifindex, 0);
}

/* Members have done what was asked (`done`): one that answers, or all to whom the message went in turn. The last of them
 * lets the packet go on, or begins the second phase. */
inline int settle(struct __sk_buff *skb, struct scratch *scratch, __u8 done, const struct settings *settings, __u64 now)
{
	struct message *message = &scratch->message;
	__u32 place = message->slot & (SLOTS - 1), mine, needed;
	struct slot *slot = bpf_map_lookup_elem(&slots, &place);
	__u64 *taken = bpf_map_lookup_elem(&waiting, &place), id = message->slot;

	if (!slot || !taken || !id || *taken != id || slot->phase != done) {
		COUNT(unasked);
		return TC_ACT_SHOT;
	}
	mine = message->flags & IN_TURN ? slot->asked : 1U << (message->sender & (MEMBERS - 1));
	needed = slot->needed & settings->waited;
	mine |= __sync_fetch_and_or(&slot->confirmed, mine);
	if ((mine & needed) != needed)
		return TC_ACT_SHOT;
	if (done != PREPARE) {
		if (__sync_val_compare_and_swap(taken, id, id | LEAVING) != id)
			return TC_ACT_SHOT;
		return release(skb, slot, taken);
	}
	if (__sync_val_compare_and_swap(&slot->phase, PREPARE, COMMIT) != PREPARE)
		return TC_ACT_SHOT;
	slot->confirmed = 0;
	slot->asked = settings->active;
	message->kind = COMMIT;
	message->flags = WANTS_CONFIRMATION | IN_TURN;
	message->answer = 0;
	message->ahead = settings->active;
	number(message, settings);
	hash_rest(&scratch->rest, message, settings);
	return pass_on(skb, scratch, settings, now);
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
	    !is_sealed(scratch, settings)) {
		COUNT(wrong_mac);
		return TC_ACT_SHOT;
	}
	now = bpf_ktime_get_ns();
	if (message->sender == settings->self && message->flags & IN_TURN && !message->ahead)
		return settle(skb, scratch, message->kind, settings, now);
	if (message->sender == settings->self || message->sender >= MEMBERS || message->lane >= LANES) {
		COUNT(not_member);
		return TC_ACT_SHOT;
	}
	/* The number of the packet that it confirms is never used again, so it needs none of its own. */
	if (message->kind == CONFIRM)
		return settle(skb, scratch, message->answer, settings, now);
	place = message->sender * LANES + message->lane;
	stream = bpf_map_lookup_elem(&streams, &place);
	if (!stream)
		return TC_ACT_SHOT;
	wrong = note(stream, message->sequence);
	if (wrong != COUNTERS) {
		count(wrong);
		return TC_ACT_SHOT;
	}
	if (message->kind == CLOSINGS)
		return take_closings(skb, message, settings, now);
	if (!obey(message, now) || !(message->flags & WANTS_CONFIRMATION) || !has_room(now))
		return TC_ACT_SHOT;
	if (message->flags & IN_TURN) {
		COUNT(confirmed);
		message->ahead &= ~(1U << (settings->self & (MEMBERS - 1)));
		return pass_on(skb, scratch, settings, now);
	}
	return answer(skb, scratch, from, settings);
}

/* One entry of a bulk transfer, behind an Ethernet header: a key and a word. */
SEC("tc") int take(struct __sk_buff *skb)
{
	struct entry entry;

	if (bpf_skb_load_bytes(skb, ETHERNET, &entry, sizeof(entry)))
		return TC_ACT_SHOT;
	return store(&entry.key, entry.word & ~PENDING, bpf_ktime_get_ns(), true) ? TC_ACT_OK : TC_ACT_SHOT;
}

/* Take out a connection whose time is over: a key, behind an Ethernet header. User space saw it over; its ends may have
 * begun anew since, and then it stays. */
SEC("tc") int expire(struct __sk_buff *skb)
{
	const struct settings *settings = settings_now();
	const struct connection *known;
	struct key key;

	if (!settings || bpf_skb_load_bytes(skb, ETHERNET, &key, sizeof(key)))
		return TC_ACT_SHOT;
	known = known_as(&key);
	if (!known || !is_over(settings, known, bpf_ktime_get_ns()))
		return TC_ACT_SHOT;
	if (is_open(STATE_OF(known->word)))
		bpf_map_delete_elem(&opened, &key);
	else
		bpf_map_delete_elem(&brief, &key);
	return TC_ACT_OK;
}
