// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* What our tc programs share: reading a packet, asking the kernel for its way, counting it, and sending it on.
 *
 * A program includes this behind its own header, says which structure is its set (SET, with `source_check` in it), and
 * defines outcome_of4 and outcome_of6: what becomes of a packet, or NULL where the set does not say. */
#pragma once
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

#define SLOW_PATH TC_ACT_UNSPEC
#define INET 2
#define INET6 10
#define PACKET_FOR_US 0
#define SHORTEST_FRAME 60 /* of Ethernet, without its checksum: shorter ones are padded */
#define STRICT 1
#define LEGS 3
#define SCTP_HEADER 12
#define ICMP_HEADER 8
#define inline static __always_inline

/* A place that is known to be below `most`, a power of two, in words that the verifier does not forget. */
inline __u32 bounded(__u32 place, __u32 most)
{
	asm volatile("" : "+r"(place));
	return place & (most - 1);
}

struct SET;
inline const struct outcome *outcome_of4(const struct SET *set, const struct packet4 *packet);
inline const struct outcome *outcome_of6(const struct SET *set, const struct packet6 *packet);

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MOST_COUNTERS);
	__type(key, __u32);
	__type(value, struct counter);
} counters SEC(".maps");

/* The cookie that each counter counts for. Only user space looks. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MOST_FLOWS);
	__type(key, struct packet4);
	__type(value, struct flow);
} flows4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MOST_FLOWS);
	__type(key, struct packet6);
	__type(value, struct flow);
} flows6 SEC(".maps");

/* What is known of a packet's flow, which is what the set's rows look at of it; NULL where it is of another set. `flow`
 * is left for whoever finds it out. */
#define KNOWN(version)                                                                                                 \
	inline struct flow *known##version(const struct SET *set, const struct packet##version *packet,                \
					   struct packet##version *flow)                                               \
	{                                                                                                              \
		const __u64 *whole = (const void *)packet, *looked = (const void *)&set->looked##version;              \
		struct flow *known;                                                                                    \
                                                                                                                       \
		for (int i = 0; i < sizeof(*flow) / sizeof(__u64); i++)                                                \
			((__u64 *)flow)[i] = whole[i] & looked[i];                                                     \
		known = bpf_map_lookup_elem(&flows##version, flow);                                                    \
		return known && known->serial == set->serial ? known : NULL;                                           \
	}
KNOWN(4)
KNOWN(6)

inline bool at_most6(const struct address6 *left, const struct address6 *right)
{
	return left->high < right->high || (left->high == right->high && left->low <= right->low);
}

/* ------------------------------------------------------------------------------------------------------ reading */

/* The fields behind the IP header. False: too short for what the protocol says it is. */
inline bool read_upper(const void *at, const void *end, __u32 length, __u8 protocol, __u8 icmp, __u16 *source_port,
		       __u16 *destination_port, __u8 *flags)
{
	*source_port = *destination_port = *flags = 0;
	if (protocol == IPPROTO_TCP) {
		const struct tcphdr *tcp = at;

		if ((const void *)(tcp + 1) > end || length < sizeof(*tcp))
			return false;
		*source_port = bpf_ntohs(tcp->source);
		*destination_port = bpf_ntohs(tcp->dest);
		*flags = ((const __u8 *)tcp)[13];
	} else if (protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP) {
		const struct udphdr *ports = at;
		__u32 header = protocol == IPPROTO_UDP ? sizeof(*ports) : SCTP_HEADER;

		if ((const void *)(ports + 1) > end || length < header)
			return false;
		*source_port = bpf_ntohs(ports->source);
		*destination_port = bpf_ntohs(ports->dest);
	} else if (protocol == icmp) {
		const __u8 *head = at;

		if ((const void *)(head + ICMP_HEADER) > end || length < ICMP_HEADER)
			return false;
		*source_port = head[0];
		*destination_port = head[1];
	}
	return true;
}

/* Make the headers readable in one piece, as far as the frame reaches. */
inline void pull(struct __sk_buff *skb, __u32 most)
{
	if ((long)skb->data_end - (long)skb->data < most)
		bpf_skb_pull_data(skb, skb->len < most ? skb->len : most);
}

/* Whether a frame is as long as its packet says, padding of the shortest frames apart. */
inline bool right_length(struct __sk_buff *skb, __u32 total)
{
	__u32 frame = ETH_HLEN + total;

	return skb->len == frame || (skb->len > frame && skb->len <= SHORTEST_FRAME);
}

/* The length of the largest packet on the wire, for those that will be segmented only there; 0: not known. */
inline __u32 on_the_wire(struct __sk_buff *skb, const void *at, const void *end, __u32 total, __u32 head, __u8 protocol)
{
	const struct tcphdr *tcp = at;
	__u32 size = skb->gso_size;

	if (!size)
		return total;
	if (protocol == IPPROTO_UDP)
		return head + sizeof(struct udphdr) + size;
	if (protocol != IPPROTO_TCP || (const void *)(tcp + 1) > end)
		return 0;
	return head + tcp->doff * 4 + size;
}

inline bool right_checksum(const struct iphdr *ip)
{
	const __u16 *word = (const void *)ip;
	__u32 sum = 0;

	for (int i = 0; i < 10; i++)
		sum += word[i];
	sum = (sum & 0xffff) + (sum >> 16);
	return ((sum & 0xffff) + (sum >> 16)) == 0xffff;
}

/* One machine's ordinary address: no multicast, no loopback, no network 0, nothing reserved. */
inline bool unicast4(__u32 address)
{
	__u32 first = address >> 24;

	return first >= 1 && first < 224 && first != 127;
}

/* Global or unique local: 2000:: to fdff:... */
inline bool unicast6(struct address6 address)
{
	__u32 first = address.high >> 48;

	return first >= 0x2000 && first < 0xfe00;
}

/* Headers behind which the upper layer follows, or nothing does. */
inline bool is_extension(__u8 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_FRAGMENT || next == IPPROTO_AH ||
	       next == IPPROTO_NONE || next == IPPROTO_DSTOPTS || next == IPPROTO_MH || next == 139 || next == 140 ||
	       next == 253 || next == 254;
}

/* Messages between neighbours and group members, which routers treat in ways of their own. */
inline bool is_neighbourly(__u8 type)
{
	return type >= 130 && type <= 137;
}

inline struct address6 address6(const struct in6_addr *from)
{
	const __u64 *half = (const void *)from;
	struct address6 address = {bpf_be64_to_cpu(half[0]), bpf_be64_to_cpu(half[1])};

	return address;
}

/* ------------------------------------------------------------------------------------------------------ deciding */

inline void count(const struct outcome *outcome, __u32 bytes)
{
	for (int i = 0; i < COUNTED; i++) {
		__u32 place = outcome->counters[i];
		struct counter *counter = bpf_map_lookup_elem(&counters, &place);

		if (counter) { /* MOST_COUNTERS is outside the map */
			counter->packets++;
			counter->bytes += bytes;
		}
	}
}

/* Whether the kernel would forward a packet: it has a route and a neighbour, out by another interface, in a frame that
 * fits. Fills in `route`. */
inline bool goes_out(struct __sk_buff *skb, struct bpf_fib_lookup *route)
{
	route->ifindex = skb->ingress_ifindex;
	return bpf_fib_lookup(skb, route, sizeof(*route), 0) == BPF_FIB_LKUP_RET_SUCCESS &&
	       route->ifindex != skb->ingress_ifindex;
}

/* Whether the kernel would let a packet in from this source: never from an address of its own, and where rp_filter asks
 * for it, only from where a route leads back. */
inline bool comes_in(struct __sk_buff *skb, const struct iphdr *ip, __u8 check)
{
	struct bpf_fib_lookup back = {.family = INET, .ifindex = skb->ingress_ifindex};
	long found;

	back.ipv4_src = ip->daddr;
	back.ipv4_dst = ip->saddr;
	found = bpf_fib_lookup(skb, &back, sizeof(back), 0);
	if (found == BPF_FIB_LKUP_RET_NOT_FWDED || found < 0)
		return false;
	if (!check)
		return true;
	return (found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_NO_NEIGH) &&
	       ((check != STRICT && check != LEGS) || back.ifindex == skb->ingress_ifindex);
}

/* The same of IPv6, which knows no rp_filter: asked where the machine's legs are declared. */
inline bool comes_in6(struct __sk_buff *skb, const struct ipv6hdr *ip, __u8 check)
{
	struct bpf_fib_lookup back = {.family = INET6, .ifindex = skb->ingress_ifindex};
	long found;

	if (check != LEGS)
		return true;
	__builtin_memcpy(back.ipv6_src, &ip->daddr, sizeof(ip->daddr));
	__builtin_memcpy(back.ipv6_dst, &ip->saddr, sizeof(ip->saddr));
	found = bpf_fib_lookup(skb, &back, sizeof(back), 0);
	return (found == BPF_FIB_LKUP_RET_SUCCESS || found == BPF_FIB_LKUP_RET_NO_NEIGH) &&
	       back.ifindex == skb->ingress_ifindex;
}

inline void readdress(struct ethhdr *ethernet, const struct bpf_fib_lookup *route)
{
	__builtin_memcpy(ethernet->h_dest, route->dmac, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, route->smac, ETH_ALEN);
}

inline int decide4(struct __sk_buff *skb, const struct SET *set)
{
	struct bpf_fib_lookup route = {.family = INET};
	const struct outcome *outcome;
	struct packet4 p = {};
	struct ethhdr *ethernet;
	struct iphdr *ip;
	void *end;
	__u32 total;

	pull(skb, sizeof(*ethernet) + sizeof(*ip) + sizeof(struct tcphdr));
	ethernet = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	ip = (void *)(ethernet + 1);
	if ((void *)(ip + 1) > end || *(__u8 *)ip != 0x45 || ip->frag_off & ~bpf_htons(0x4000) || ip->ttl <= 1)
		return SLOW_PATH;
	total = bpf_ntohs(ip->tot_len);
	if (total < sizeof(*ip) || !right_length(skb, total) || !right_checksum(ip))
		return SLOW_PATH;
	p.source = bpf_ntohl(ip->saddr);
	p.destination = bpf_ntohl(ip->daddr);
	p.protocol = ip->protocol;
	if (!unicast4(p.source) || !unicast4(p.destination) ||
	    !read_upper(ip + 1, end, total - sizeof(*ip), p.protocol, IPPROTO_ICMP, &p.source_port, &p.destination_port,
			&p.flags))
		return SLOW_PATH;

	outcome = outcome_of4(set, &p);
	if (!outcome)
		return SLOW_PATH;
	route.tot_len = on_the_wire(skb, ip + 1, end, total, sizeof(*ip), p.protocol);
	route.tos = ip->tos;
	route.l4_protocol = ip->protocol;
	route.ipv4_src = ip->saddr;
	route.ipv4_dst = ip->daddr;
	if (outcome->verdict == DEFER || !route.tot_len || !comes_in(skb, ip, set->source_check) ||
	    !goes_out(skb, &route))
		return SLOW_PATH;

	count(outcome, total);
	if (outcome->verdict != PERMIT)
		return TC_ACT_SHOT;
	total = ip->check + bpf_htons(0x0100); /* one less in the TTL is one more in the checksum */
	ip->check = total + (total >= 0xffff);
	ip->ttl--;
	readdress(ethernet, &route);
	return bpf_redirect(route.ifindex, 0);
}

inline int decide6(struct __sk_buff *skb, const struct SET *set)
{
	struct bpf_fib_lookup route = {.family = INET6};
	const struct outcome *outcome;
	struct packet6 p = {};
	struct ethhdr *ethernet;
	struct ipv6hdr *ip;
	void *end;
	__u32 total;

	pull(skb, sizeof(*ethernet) + sizeof(*ip) + sizeof(struct tcphdr));
	ethernet = (void *)(long)skb->data;
	end = (void *)(long)skb->data_end;
	ip = (void *)(ethernet + 1);
	if ((void *)(ip + 1) > end || ip->version != 6 || is_extension(ip->nexthdr) || ip->hop_limit <= 1)
		return SLOW_PATH;
	total = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (total > 0xffff || !ip->payload_len || !right_length(skb, total))
		return SLOW_PATH;
	p.source = address6(&ip->saddr);
	p.destination = address6(&ip->daddr);
	p.protocol = ip->nexthdr;
	if (!unicast6(p.source) || !unicast6(p.destination) ||
	    !read_upper(ip + 1, end, total - sizeof(*ip), p.protocol, IPPROTO_ICMPV6, &p.source_port,
			&p.destination_port, &p.flags) ||
	    (p.protocol == IPPROTO_ICMPV6 && is_neighbourly(p.source_port)))
		return SLOW_PATH;

	outcome = outcome_of6(set, &p);
	if (!outcome)
		return SLOW_PATH;
	route.tot_len = on_the_wire(skb, ip + 1, end, total, sizeof(*ip), p.protocol);
	route.flowinfo = *(__be32 *)ip & bpf_htonl(0x0fffffff);
	route.l4_protocol = ip->nexthdr;
	__builtin_memcpy(route.ipv6_src, &ip->saddr, sizeof(ip->saddr));
	__builtin_memcpy(route.ipv6_dst, &ip->daddr, sizeof(ip->daddr));
	if (outcome->verdict == DEFER || !route.tot_len || !comes_in6(skb, ip, set->source_check) ||
	    !goes_out(skb, &route))
		return SLOW_PATH;

	count(outcome, total);
	if (outcome->verdict != PERMIT)
		return TC_ACT_SHOT;
	ip->hop_limit--;
	readdress(ethernet, &route);
	return bpf_redirect(route.ifindex, 0);
}

/* Whether a frame is for this machine, untagged, and nobody has marked it. */
inline bool is_ours(struct __sk_buff *skb)
{
	return !(skb->pkt_type != PACKET_FOR_US || skb->vlan_present || skb->mark);
}

inline int decide(struct __sk_buff *skb, const struct SET *set)
{
	if (skb->protocol == bpf_htons(ETH_P_IP) && set->rows4)
		return decide4(skb, set);
	if (skb->protocol == bpf_htons(ETH_P_IPV6) && set->rows6)
		return decide6(skb, set);
	return SLOW_PATH;
}
