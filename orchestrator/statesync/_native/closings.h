// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* Connections that closed, that opened as members foresee, or of which only a SYN passed, told many at a time.
 *
 * No connection is lost if a member misses such a change, so its packet is never held. Its word waits in a batch, and
 * a later packet that begins another batch carries all of it. Words that wait while no more come are sent by the
 * member's process, tens of milliseconds later. A connection that changes meanwhile writes over its word. Two
 * processors may write into one batch; one that is sent while its last word is being written has an old word there,
 * which members have already. */
#pragma once
#include "connections.h"
#include "messages.h"
#include "packets.h"

#define OPEN_BATCHES 4   /* written into before the oldest is sent: most connections then need one place */
#define CARRIER_MOST 200 /* bytes of a frame behind which a batch fits into 1,500 */

/* SipHash-2-4 of some entries. It is never that of a message, which has another length. */
static __noinline __u64 mac_of_entries(const struct batch *batch, __u32 count, const struct settings *settings)
{
	const __u64 *word = (const void *)batch;
	struct hash hash;

	begin_hash(&hash, settings);
	for (__u32 i = 0; i < sizeof(struct batch) / 8; i++) {
		if (i >= count * (sizeof(struct entry) / 8))
			break;
		hash_word(&hash, word[i]);
	}
	return end_hash(&hash, count * sizeof(struct entry));
}

/* Send a batch that is full to all members, behind the headers of a packet that stays as it is. */
static __noinline int send_batch(struct __sk_buff *skb, __u64 number_of, const struct settings *settings, __u64 now)
{
	__u32 place = number_of % BATCHES, only = 0;
	const struct batch *full = bpf_map_lookup_elem(&batches, &place);
	struct batch *batch = bpf_map_lookup_elem(&batch_here, &only);
	struct scratch *scratch = scratch_here();
	__u8 ethernet[ETHERNET];

	if (!full || !batch || !scratch || bpf_probe_read_kernel(batch, sizeof(*batch), full) ||
	    bpf_skb_load_bytes(skb, 0, ethernet, sizeof(ethernet)) ||
	    bpf_skb_adjust_room(skb, ROOM + sizeof(*batch), BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_NO_CSUM_RESET))
		return TC_ACT_SHOT;
	__builtin_memset(&scratch->message, 0, sizeof(scratch->message));
	scratch->message.kind = CLOSINGS;
	scratch->message.slot = mac_of_entries(batch, BATCH, settings);
	scratch->message.word = BATCH;
	if (!bpf_skb_store_bytes(skb, HEAD_BYTES, batch, sizeof(*batch), 0))
		send_to(skb, scratch, settings->active, settings, now);
	if (bpf_skb_adjust_room(skb, -(__s32)(ROOM + sizeof(*batch)), BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_NO_CSUM_RESET) ||
	    bpf_skb_store_bytes(skb, 0, ethernet, sizeof(ethernet), 0))
		return TC_ACT_SHOT;
	return TC_ACT_OK;
}

/* A place for a connection's word, counted from 1: the one that it has in a batch not sent yet, or the next. */
inline __u32 place_in_batch(const struct connection *known)
{
	__u32 which = BATCHES_SENT;
	__u64 *sent = bpf_map_lookup_elem(&numbers, &which);

	if (known && known->batched && sent && (known->batched - 1) / BATCH >= (__u32)*sent)
		return known->batched;
	return next_number(PLACES_TAKEN);
}

/* Tell members of a connection with others: its word goes to a place in a batch. */
inline int tell_later(struct __sk_buff *skb, const struct packet *packet, __u64 word, __u32 at,
		      const struct settings *settings, __u64 now)
{
	__u32 place = (at - 1) / BATCH % BATCHES, index = (at - 1) % BATCH, which = BATCHES_SENT;
	struct batch *batch = bpf_map_lookup_elem(&batches, &place);
	__u64 *batches_sent = bpf_map_lookup_elem(&numbers, &which), sent;

	if (!batch || !batches_sent)
		return TC_ACT_OK;
	next_number(WORDS_BATCHED);
	asm volatile("" : "+r"(index)); /* the verifier wants to see the bound */
	if (index >= BATCH)
		return TC_ACT_OK;
	batch->entries[index].key = packet->key;
	batch->entries[index].word = word;
	sent = *batches_sent;
	if (at / BATCH < sent + OPEN_BATCHES || skb->len > CARRIER_MOST || skb->gso_size ||
	    __sync_val_compare_and_swap(batches_sent, sent, sent + 1) != sent)
		return TC_ACT_OK;
	return send_batch(skb, sent, settings, now);
}

/* Hold what another member says of connections in a batch. */
inline int take_closings(struct __sk_buff *skb, const struct message *message, const struct settings *settings, __u64 now)
{
	__u32 only = 0, entries = message->word, bytes = entries * sizeof(struct entry);
	struct batch *batch = bpf_map_lookup_elem(&batch_here, &only);

	if (!batch || !entries || entries > BATCH)
		return TC_ACT_SHOT;
	asm volatile("" : "+r"(bytes));
	if (!bytes || bytes > sizeof(*batch) || bpf_skb_load_bytes(skb, HEAD_BYTES, batch, bytes) ||
	    message->slot != mac_of_entries(batch, entries, settings)) {
		COUNT(wrong_mac);
		return TC_ACT_SHOT;
	}
	for (__u32 i = 0; i < BATCH; i++) {
		__u64 word;

		if (i >= entries)
			break;
		word = batch->entries[i].word & ~PENDING;
		if (STATE_OF(word) != LISTEN && STATE_OF(word) < STATES)
			store(&batch->entries[i].key, word, now, false);
	}
	return TC_ACT_SHOT;
}
