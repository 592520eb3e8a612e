// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* The program `watch`: what becomes of a connection with each packet that leaves by a data interface. */
#pragma once
#include "beat.h"
#include "closings.h"
#include "held.h"

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
	if (word & PENDING && settings->synchronous && settings->waited) {
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

/* Whether the ends of a known connection may have begun anew: a SYN-ACK, long after members were told. This firewall may
 * have missed that the old connection ended. Others have not, and hold nothing any more. */
inline bool may_be_anew(const struct packet *packet, const struct connection *known, __u64 now)
{
	return packet->kind == SYN_ACK && (__s64)(now - known->told) > (__s64)SECOND;
}

/* The word after a packet. A new connection, and one that may be new, has a version above those of all before. */
inline __u64 changed_word(const struct packet *packet, __u64 word, __u8 after, bool is_new,
			  const struct settings *settings, __u64 now)
{
	__u32 version = VERSION_OF(word) + 1, fresh = (now + settings->clock) >> 20;

	if ((is_new && !word) || ((is_new || packet->kind == SYN_ACK) && (__s32)(fresh - version) > 0))
		version = fresh;
	if (is_new) {
		word = packet->sender ? OPENER : 0;
	} else if (after == FIN_WAIT) {
		word = (word & OPENER) | (packet->sender ? CLOSER : 0);
	} else {
		word &= OPENER | CLOSER;
	}
	return word | after | (__u64)version << 32;
}

/* The connection of a packet, unless its time is over. `word` becomes that of its entry, or 0 where there is none. */
inline struct connection *current(const struct packet *packet, const struct settings *settings, __u64 now, __u64 *word)
{
	struct connection *known = known_as(&packet->key);

	*word = known ? known->word : 0;
	return known && !is_over(settings, known, now) ? known : NULL;
}

/* Write a connection's change into the table of its new state. False: the packet is dropped, and counted. */
inline bool apply(const struct packet *packet, struct connection *known, __u64 word, const struct connection *changed)
{
	bool was_open = is_open(STATE_OF(word));

	if (!known || was_open != is_open(STATE_OF(changed->word))) {
		if (!put(&packet->key, changed, was_open, !word))
			return true;
		COUNT(open_full);
		return false;
	}
	if (__sync_val_compare_and_swap(&known->word, word, changed->word) != word) {
		COUNT(raced);
		return false;
	}
	known->seen = known->told = changed->seen;
	known->told_version = changed->told_version;
	known->batched = changed->batched;
	return true;
}

/* Whether members hold the state from which a connection opens, so that any packet of it leads them on as well. */
inline bool is_foreseen(const struct connection *known, __u64 word, __u8 after, const struct settings *settings)
{
	return settings->level == FULL && is_open(after) && known && STATE_OF(word) != after && !(word & PENDING) &&
	       known->told_version == VERSION_OF(word);
}

/* Whether members may be told of a change with others, and nobody waits for them: one that misses it costs no
 * connection. A SYN that is not answered is sent again by its end. */
inline bool may_be_missed(const struct connection *known, __u64 word, __u8 after, const struct settings *settings)
{
	return after == SYN_SENT || !is_opening(after) || is_foreseen(known, word, after, settings);
}

/* Change a connection's state to `after`, and tell members where the level says so. */
inline int change(struct __sk_buff *skb, const struct packet *packet, struct connection *known, __u64 word, __u8 after,
		  const struct settings *settings, __u64 now)
{
	bool is_new = !known || after == SYN_SENT;
	bool shared = settings->active && is_shared(settings, after);
	bool later = shared && may_be_missed(known, word, after, settings);
	bool holds = shared && !later && settings->synchronous && settings->waited && fits(skb);
	struct connection changed;

	COUNT(changes);
	changed.word = changed_word(packet, word, after, is_new, settings, now) | (holds ? PENDING : 0);
	changed.seen = changed.told = now;
	changed.told_version = VERSION_OF(changed.word);
	if (!is_shared(settings, after) || (shared && !later && !fits(skb)))
		changed.told_version--; /* members have to be told yet, if the level says so one day */
	changed.batched = later ? place_in_batch(known) : known ? known->batched : 0;
	if (!apply(packet, known, word, &changed))
		return TC_ACT_SHOT;
	if (!shared)
		return TC_ACT_OK;
	if (later)
		return tell_later(skb, packet, changed.word, changed.batched, settings, now);
	if (!fits(skb)) {
		COUNT(unheld);
		return TC_ACT_OK;
	}
	if (holds)
		return hold_and_tell(skb, packet, changed.word, settings, now);
	return tell(skb, packet, changed.word, 0, settings, now);
}

SEC("tc") int watch(struct __sk_buff *skb)
{
	const struct settings *settings = settings_now();
	__u64 word, now = bpf_ktime_get_ns();
	struct packet packet = {};
	struct connection *known;
	enum readable readable;
	__u8 state, after;

	if (!settings)
		return TC_ACT_SHOT;
	if (!skb->ingress_ifindex || is_answer(skb)) /* of this machine itself */
		return TC_ACT_OK;
	readable = read_packet(skb, &packet);
	if (readable == NOT_OURS)
		return TC_ACT_OK;
	if (readable == UNREADABLE) {
		COUNT(unreadable);
		return TC_ACT_SHOT;
	}
	known = current(&packet, settings, now, &word);
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
	if (!known || after != state || may_be_anew(&packet, known, now))
		return change(skb, &packet, known, word, after, settings, now);
	COUNT(passed);
	return go_on(skb, &packet, known, settings, now);
}
