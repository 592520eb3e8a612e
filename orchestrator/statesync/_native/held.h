// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* Packets that wait for confirmations: kept in a slot, sent behind a message, freed. */
#pragma once
#include "connections.h"
#include "messages.h"
#include "packets.h"

/* Keep a copy of the packet until members have confirmed. Its id, or 0: all slots are taken. */
inline __u64 hold(struct __sk_buff *skb, const struct packet *packet, __u64 word, const struct settings *settings,
		  __u64 now)
{
	__u64 id = next_number(LAST_SLOT), before, *taken;
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
	slot->asked = settings->active;
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
	scratch->message.flags = slot ? WANTS_CONFIRMATION | IN_TURN : 0;
	scratch->message.answer = 0;
	scratch->message.ahead = slot ? settings->active : 0;
	scratch->message.slot = slot;
	scratch->message.key = packet->key;
	scratch->message.word = word & ~PENDING;
	if (slot) {
		number(&scratch->message, settings);
		hash_rest(&scratch->rest, &scratch->message, settings);
		return pass_on(skb, scratch, settings, now);
	}
	send_to(skb, scratch, settings->active, settings, now);
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
