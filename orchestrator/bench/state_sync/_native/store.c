// SPDX-License-Identifier: Apache-2.0
/* A firewall that keeps its connections in a shared store: packets that open or close one wait for Redis.
 *
 *     store QUEUE ADDRESS PORT REPLICAS
 *
 *   NFQUEUE ─▶ HSET connection state, WAIT REPLICAS 100 ─▶ Redis ─▶ its answer lets the packet go on
 *
 * Answers come in the order of the questions, so the packets that wait are a ring. One thread, one connection to Redis,
 * no library. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_queue.h>
#include <linux/netlink.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define WAITING_MOST 65536
#define ANSWERS_EACH 2 /* of HSET and of WAIT, a line each */

static uint32_t waiting[WAITING_MOST], first, next;
static int queue, redis;
static uint16_t number;
static const char *replicas;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static void *attribute(struct nlmsghdr *message, uint16_t type, uint16_t size)
{
	struct nlattr *found = (void *)((char *)message + NLMSG_ALIGN(message->nlmsg_len));

	found->nla_type = type;
	found->nla_len = NLA_HDRLEN + size;
	message->nlmsg_len = NLMSG_ALIGN(message->nlmsg_len) + NLA_ALIGN(found->nla_len);
	return (char *)found + NLA_HDRLEN;
}

static struct nlmsghdr *begin(char *buffer, uint16_t type)
{
	struct nlmsghdr *message = (void *)buffer;
	struct nfgenmsg *head = NLMSG_DATA(message);

	memset(buffer, 0, 256);
	message->nlmsg_len = NLMSG_LENGTH(sizeof(*head));
	message->nlmsg_type = NFNL_SUBSYS_QUEUE << 8 | type;
	message->nlmsg_flags = NLM_F_REQUEST;
	head->version = NFNETLINK_V0;
	head->res_id = htons(number);
	return message;
}

static void say(struct nlmsghdr *message)
{
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};

	if (sendto(queue, message, message->nlmsg_len, 0, (void *)&kernel, sizeof(kernel)) < 0)
		fail("netlink");
}

static void open_queue(void)
{
	struct nfqnl_msg_config_params params = {.copy_range = htonl(128), .copy_mode = NFQNL_COPY_PACKET};
	struct nfqnl_msg_config_cmd bind_it = {.command = NFQNL_CFG_CMD_BIND, .pf = htons(AF_INET)};
	struct sockaddr_nl here = {.nl_family = AF_NETLINK};
	uint32_t most = htonl(WAITING_MOST / 2);
	struct nlmsghdr *message;
	char buffer[256];

	queue = socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
	if (queue < 0 || bind(queue, (void *)&here, sizeof(here)))
		fail("netlink");
	message = begin(buffer, NFQNL_MSG_CONFIG);
	memcpy(attribute(message, NFQA_CFG_CMD, sizeof(bind_it)), &bind_it, sizeof(bind_it));
	say(message);
	message = begin(buffer, NFQNL_MSG_CONFIG);
	memcpy(attribute(message, NFQA_CFG_PARAMS, sizeof(params)), &params, sizeof(params));
	memcpy(attribute(message, NFQA_CFG_QUEUE_MAXLEN, sizeof(most)), &most, sizeof(most));
	say(message);
}

static void let_go(uint32_t id)
{
	struct nfqnl_msg_verdict_hdr verdict = {.verdict = htonl(NF_ACCEPT), .id = id};
	char buffer[256];
	struct nlmsghdr *message = begin(buffer, NFQNL_MSG_VERDICT);

	memcpy(attribute(message, NFQA_VERDICT_HDR, sizeof(verdict)), &verdict, sizeof(verdict));
	say(message);
}

/* Write what a packet makes of its connection, under the lower end's address and port first. */
static void ask(const struct iphdr *ip, uint32_t id)
{
	const struct tcphdr *tcp = (const void *)((const char *)ip + ip->ihl * 4);
	int is_up = ip->saddr < ip->daddr || (ip->saddr == ip->daddr && tcp->source < tcp->dest);
	const char *state = tcp->rst ? "closed" : tcp->fin ? "closing" : tcp->ack ? "received" : "sent";
	char key[64], text[256];
	int size;

	snprintf(key, sizeof(key), "%08x%04x%08x%04x", is_up ? ip->saddr : ip->daddr, is_up ? tcp->source : tcp->dest,
		 is_up ? ip->daddr : ip->saddr, is_up ? tcp->dest : tcp->source);
	size = snprintf(text, sizeof(text), "*4\r\n$4\r\nHSET\r\n$%zu\r\n%s\r\n$5\r\nstate\r\n$%zu\r\n%s\r\n"
			"*3\r\n$4\r\nWAIT\r\n$%zu\r\n%s\r\n$3\r\n100\r\n",
			strlen(key), key, strlen(state), state, strlen(replicas), replicas);
	if (send(redis, text, size, MSG_NOSIGNAL) != size)
		fail("redis");
	waiting[next++ % WAITING_MOST] = id;
}

static void read_packet(const struct nlmsghdr *message)
{
	const struct nlattr *one = (const void *)((const char *)NLMSG_DATA(message) + NLMSG_ALIGN(sizeof(struct nfgenmsg)));
	const char *end = (const char *)message + message->nlmsg_len;
	const struct iphdr *ip = NULL;
	uint32_t id = 0;

	for (; (const char *)one + NLA_HDRLEN <= end && one->nla_len >= NLA_HDRLEN;
	     one = (const void *)((const char *)one + NLA_ALIGN(one->nla_len))) {
		const void *value = (const char *)one + NLA_HDRLEN;

		if ((one->nla_type & NLA_TYPE_MASK) == NFQA_PACKET_HDR)
			id = ((const struct nfqnl_msg_packet_hdr *)value)->packet_id;
		if ((one->nla_type & NLA_TYPE_MASK) == NFQA_PAYLOAD && one->nla_len >= NLA_HDRLEN + 40)
			ip = value;
	}
	if (ip)
		ask(ip, id);
	else
		let_go(id);
}

static void open_redis(char **words)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};
	int yes = 1;

	inet_pton(AF_INET, words[0], &to.sin_addr);
	redis = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(redis, (void *)&to, sizeof(to)))
		fail("redis");
	setsockopt(redis, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

int main(int count, char **words)
{
	static char buffer[1 << 16];
	uint32_t lines = 0;

	if (count != 5)
		return 2;
	number = atoi(words[1]);
	replicas = words[4];
	open_redis(words + 2);
	open_queue();
	puts("ready");
	fflush(stdout);
	for (;;) {
		struct pollfd ready[] = {{.fd = queue, .events = POLLIN}, {.fd = redis, .events = POLLIN}};
		ssize_t got;

		poll(ready, 2, -1);
		if (ready[0].revents && (got = recv(queue, buffer, sizeof(buffer), 0)) > 0)
			for (struct nlmsghdr *one = (void *)buffer; NLMSG_OK(one, got); one = NLMSG_NEXT(one, got))
				if (one->nlmsg_type == (NFNL_SUBSYS_QUEUE << 8 | NFQNL_MSG_PACKET))
					read_packet(one);
		if (!ready[1].revents)
			continue;
		got = recv(redis, buffer, sizeof(buffer), 0);
		if (got <= 0)
			return 0;
		for (ssize_t i = 0; i < got; i++)
			if (buffer[i] == '\n' && ++lines % ANSWERS_EACH == 0)
				let_go(waiting[first++ % WAITING_MOST]);
	}
}
