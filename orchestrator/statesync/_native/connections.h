// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* Connections: their next state, how long it lasts, and the table that holds them. */
#pragma once
#include "maps.h"

inline bool is_open(__u8 state)
{
	return state == ESTABLISHED || state == FIN_WAIT || state == LAST_ACK || state == BOTH_WAYS;
}

/* Whether the ends of a connection that one of them has closed may begin anew: the opener's SYN changes nothing yet, the
 * SYN-ACK that answers it does. */
inline bool begins_anew(__u8 kind, bool from_opener)
{
	return kind == (from_opener ? SYN : SYN_ACK);
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
		if (kind == ACK) /* of an end that holds an older connection (RFC 9293, 3.5.1) */
			return SYN_SENT;
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
		if (begins_anew(kind, from_opener))
			return kind == SYN ? FIN_WAIT : SYN_RECEIVED;
		if (kind == FIN)
			return from_closer ? FIN_WAIT : LAST_ACK;
		return kind == ACK ? FIN_WAIT : REFUSED;
	case LAST_ACK:
		if (begins_anew(kind, from_opener))
			return kind == SYN ? LAST_ACK : SYN_RECEIVED;
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

/* Since when there is no room for what others opened, or 0. A member without room confirms nothing: others may tell it
 * of connections that opened without waiting for it, and then it would serve with fewer than they count on. */
inline void note_room(__u64 full_at)
{
	__u32 which = FULL_AT;
	__u64 *since = bpf_map_lookup_elem(&numbers, &which);

	if (since && *since != full_at)
		*since = full_at;
}

inline bool has_room(__u64 now)
{
	__u32 which = FULL_AT;
	__u64 *since = bpf_map_lookup_elem(&numbers, &which);

	return since && (!*since || now - *since > FULL_FOR);
}

/* Hold what another member says of a connection, unless more is known of it already. False: there is no room.
 * `may_begin`: it may be a new connection of ends that were through, whose version is lower than the old one's: clocks
 * differ. A version that is a little lower is a late message about the old one. */
static __noinline bool store(const struct key *key, __u64 word, __u64 now, bool may_begin)
{
	struct connection *known = NULL, value = {};
	__u32 was_open = 0;

	if (!is_open(STATE_OF(word))) /* most often it is there already */
		known = bpf_map_lookup_elem(&brief, key);
	if (!known) {
		known = bpf_map_lookup_elem(&opened, key);
		was_open = known != NULL;
	}
	asm volatile("" : "+r"(was_open)); /* or clang makes arithmetic of the pointer, which the verifier refuses */
	if (!known && is_open(STATE_OF(word)))
		known = bpf_map_lookup_elem(&brief, key);
	if (known) {
		__s32 newer = VERSION_OF(word) - VERSION_OF(known->word);
		bool begins = may_begin && !was_open && newer < -LIFE_MOST &&
			      (is_open(STATE_OF(word)) || STATE_OF(word) == SYN_SENT || STATE_OF(word) == SYN_RECEIVED);

		if (newer < 0 && !begins) {
			COUNT(stale);
			return true;
		}
		if (!newer && known->word == word) { /* told again, so that it does not end here */
			known->seen = known->told = now;
			return true;
		}
	}
	if (known && was_open == is_open(STATE_OF(word))) {
		known->word = word;
		known->seen = known->told = now;
		known->told_version = VERSION_OF(word);
		COUNT(stored);
		return true;
	}
	value.word = word;
	value.seen = value.told = now;
	value.told_version = VERSION_OF(word);
	if (put(key, &value, was_open, !known)) {
		COUNT(store_full);
		note_room(now);
		return false;
	}
	if (is_open(STATE_OF(word)))
		note_room(0);
	COUNT(stored);
	return true;
}
