// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* Reading a packet: the key of its connection, its kind, and which end has sent it. */
#pragma once
#include "maps.h"

struct packet {
	struct key key;
	__u8 kind;
	__u8 sender; /* 1: the upper end of the key; of an error, who has sent what it quotes */
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
	if ((protocol == IPPROTO_TCP || protocol == IPPROTO_UDP) && (!*source_port || !*destination_port))
		return false; /* no connection has port 0 */
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
		if (head[1]) /* echoes have no code */
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

/* Whether an error goes to the end that has sent what it quotes: nobody else has any business with it. */
inline bool is_for_sender(const struct packet *packet, struct address destination)
{
	const struct address *sent = packet->sender ? &packet->key.high : &packet->key.low;

	return sent->high == destination.high && sent->low == destination.low;
}

inline enum readable read_error4(struct __sk_buff *skb, struct packet *packet)
{
	__u8 quoted = 0;
	__be32 to;

	if (bpf_skb_load_bytes(skb, ETHERNET + 16, &to, sizeof(to)) ||
	    read4(skb, ETHERNET + 28, true, packet, &quoted) != READABLE)
		return UNREADABLE;
	return is_for_sender(packet, mapped(to)) ? READABLE : UNREADABLE;
}

inline enum readable read_error6(struct __sk_buff *skb, struct packet *packet)
{
	struct in6_addr to;
	__u8 quoted = 0;

	if (bpf_skb_load_bytes(skb, ETHERNET + 24, &to, sizeof(to)) ||
	    read6(skb, ETHERNET + 48, true, packet, &quoted) != READABLE)
		return UNREADABLE;
	return is_for_sender(packet, whole(&to)) ? READABLE : UNREADABLE;
}

inline enum readable read_packet(struct __sk_buff *skb, struct packet *packet)
{
	__u8 protocol = 0;

	if (skb->protocol == bpf_htons(ETH_P_IP)) {
		if (read4(skb, ETHERNET, false, packet, &protocol) == READABLE)
			return READABLE;
		packet->is_error = protocol == IPPROTO_ICMP && is_error(skb, ETHERNET + 20, protocol);
		return packet->is_error ? read_error4(skb, packet) : UNREADABLE;
	}
	if (skb->protocol == bpf_htons(ETH_P_IPV6)) {
		if (read6(skb, ETHERNET, false, packet, &protocol) == READABLE)
			return READABLE;
		packet->is_error = protocol == IPPROTO_ICMPV6 && is_error(skb, ETHERNET + 40, protocol);
		return packet->is_error ? read_error6(skb, packet) : UNREADABLE;
	}
	return NOT_OURS;
}
