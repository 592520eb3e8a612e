// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* The program `beat`: answers the spread switch's health checks (BFD, RFC 5880) for as long as this firewall may serve.
 *
 *   spread switch ──BFD, every 10 ms──▶ data interface ─▶ beat: may it serve? both sides heard? ─▶ back by the same interface
 *
 * The switch does not wait for anybody: a firewall that answers nothing for 40 ms gets no traffic any more. So that it
 * cannot come back with what it knew then, it fences itself: a switch that says DOWN after UP has given it up, and it
 * answers nothing until its process has taken all entries of the other members again. The answer needs no state of its
 * own but that: DOWN is answered by INIT, INIT and UP by UP.
 *
 * A switch that says DOWN asks once a second, and would send its first traffic a second before it asks again: in that
 * time it would notice nothing. So INIT goes with a poll, which the switch answers at once, every 10 ms from then on.
 *
 * Answers are no connection, for lists would close it as anybody's: `watch` lets them pass without one.
 *
 * Anybody may send such a packet to a tenant, and the switch passes it on: with this firewall's own MAC address. Open
 * vSwitch sends its own questions to 00:23:20:00:00:01, and no others are answered. */
#pragma once
#include "maps.h"

#define BFD_PORT 3784
#define BFD_STATE(flags) ((flags) >> 6)
#define BFD_POLL 0x20
#define BFD_FINAL 0x10

enum bfd_state { BFD_ADMIN_DOWN, BFD_DOWN, BFD_INIT, BFD_UP };

struct __attribute__((packed)) bfd {
	__u8 destination[6], source[6];
	__be16 type;
	__u8 version_length, tos;
	__be16 total, id, fragment;
	__u8 ttl, protocol;
	__be16 check;
	__be32 from, to;
	__be16 from_port, to_port, length, udp_check;
	__u8 version, flags, multiplier, bytes;
	__be32 mine, yours;
};

inline bool is_bfd_mac(const __u8 *mac)
{
	return !mac[0] && mac[1] == 0x23 && mac[2] == 0x20 && !mac[3] && !mac[4] && mac[5] == 1;
}

inline bool read_bfd(struct __sk_buff *skb, struct bfd *bfd)
{
	return skb->protocol == bpf_htons(ETH_P_IP) && !bpf_skb_load_bytes(skb, 0, bfd, sizeof(*bfd)) &&
	       bfd->version_length == 0x45 && bfd->protocol == IPPROTO_UDP && bfd->to_port == bpf_htons(BFD_PORT);
}

/* Whether a packet that leaves is one of `beat`: by the interface that it came by, and no router has counted it down. */
inline bool is_answer(struct __sk_buff *skb)
{
	struct bfd bfd;

	return skb->ingress_ifindex == skb->ifindex && read_bfd(skb, &bfd) && bfd.ttl == 255 && is_bfd_mac(bfd.source);
}

/* Whether this firewall is still one that the switch may send traffic to; `state`: what the switch says of it. */
inline bool may_serve(struct side *side, struct health *health, __u8 state)
{
	if (state >= BFD_INIT)
		side->was_up = 1;
	else if (side->was_up) {
		side->was_up = 0;
		health->serving = 0;
		COUNT(fenced);
	}
	return health->serving;
}

SEC("tc") int beat(struct __sk_buff *skb)
{
	__u32 only = 0;
	struct health *health = bpf_map_lookup_elem(&healths, &only);
	struct side *mine, *other;
	__u64 now;
	__u8 state, swapped[6];
	__be32 address;
	struct bfd bfd;

	if (!health || !read_bfd(skb, &bfd) || !is_bfd_mac(bfd.destination))
		return TC_ACT_OK;
	state = BFD_STATE(bfd.flags);
	if (bfd.ttl != 255 || bfd.version >> 5 != 1 || state == BFD_ADMIN_DOWN)
		return TC_ACT_SHOT;
	mine = &health->sides[skb->ifindex == health->sides[1].ifindex];
	other = &health->sides[skb->ifindex != health->sides[1].ifindex];
	now = bpf_ktime_get_ns();
	mine->heard = now;
	if (!may_serve(mine, health, state) ||
	    (state == BFD_UP && other->was_up && now - other->heard > health->patience))
		return TC_ACT_SHOT;
	__builtin_memcpy(swapped, bfd.destination, 6);
	__builtin_memcpy(bfd.destination, bfd.source, 6);
	__builtin_memcpy(bfd.source, swapped, 6);
	address = bfd.from; /* the IP header's checksum stays as it is */
	bfd.from = bfd.to;
	bfd.to = address;
	bfd.udp_check = 0;
	bfd.yours = bfd.mine;
	bfd.mine = bpf_htonl(1);
	bfd.version = 1 << 5;
	bfd.flags = (state == BFD_DOWN ? BFD_INIT : BFD_UP) << 6 |
		    (bfd.flags & BFD_POLL ? BFD_FINAL : state == BFD_DOWN ? BFD_POLL : 0);
	if (bpf_skb_store_bytes(skb, 0, &bfd, sizeof(bfd), 0))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, 0);
}
