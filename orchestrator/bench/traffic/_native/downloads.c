// SPDX-License-Identifier: Apache-2.0
/* Downloads a page of one byte many times, some at once.
 *
 *     downloads ADDRESS PORT COUNT AT_ONCE     prints the processor time in us, failures, and each set-up time in us
 *
 * A set-up time is from connect() to the moment when the socket can be written. A download fails if its last byte is not
 * the page's. One thread, so that the processor time is that of the connections and of what the kernel does with their
 * packets: on virtual cables the sender's kernel carries a packet through all firewalls. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define AT_ONCE_MOST 1024
#define PATIENCE_MS 20000
#define REQUEST "GET /index.html HTTP/1.0\r\n\r\n"

static int64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static struct sockaddr_in address_of(char **words)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1]))};

	if (inet_pton(AF_INET, words[0], &address.sin_addr) != 1)
		fail(words[0]);
	return address;
}

static void watch_for(int epoll, int socket, uint32_t events, uint64_t tag)
{
	struct epoll_event event = {.events = events, .data.u64 = tag};

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, socket, &event))
		fail("epoll_ctl");
}

struct one {
	int socket;
	int connected;
	char last; /* byte of the answer */
	int64_t began;
};

static struct one running[AT_ONCE_MOST];

static void begin(int epoll, uint32_t place, const struct sockaddr_in *to)
{
	struct one *one = &running[place];

	one->socket = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	one->connected = one->last = 0;
	one->began = clock_ns(CLOCK_MONOTONIC);
	if (connect(one->socket, (const void *)to, sizeof(*to)) && errno != EINPROGRESS)
		fail("connect");
	watch_for(epoll, one->socket, EPOLLIN | EPOLLOUT, place);
}

/* Go on with a connection. Nonzero: it is through, or has failed (-1). */
static int go_on(int epoll, struct one *one, uint64_t place, double *setup_us)
{
	char answer[1024];
	ssize_t got;

	if (!one->connected) {
		struct epoll_event event = {.events = EPOLLIN, .data.u64 = place};
		int error = 0;
		socklen_t size = sizeof(error);

		*setup_us = (clock_ns(CLOCK_MONOTONIC) - one->began) / 1000.0;
		getsockopt(one->socket, SOL_SOCKET, SO_ERROR, &error, &size);
		if (error || send(one->socket, REQUEST, sizeof(REQUEST) - 1, MSG_NOSIGNAL) < 0)
			return -1;
		one->connected = 1;
		epoll_ctl(epoll, EPOLL_CTL_MOD, one->socket, &event);
		return 0;
	}
	got = read(one->socket, answer, sizeof(answer));
	if (got > 0)
		one->last = answer[got - 1];
	if (got > 0 || (got < 0 && errno == EAGAIN))
		return 0;
	return got == 0 && one->last == '1' ? 1 : -1;
}

static int load(char **words)
{
	struct sockaddr_in to = address_of(words);
	uint32_t count = atoi(words[2]), at_once = atoi(words[3]), begun = 0, done = 0, failed = 0, connected = 0;
	double *setups = calloc(count, sizeof(*setups));
	int epoll = epoll_create1(0);
	struct epoll_event events[64];

	if (!setups || !at_once || at_once > AT_ONCE_MOST || at_once > count)
		fail("load");
	for (; begun < at_once; begun++)
		begin(epoll, begun, &to);
	while (done < count) {
		int found = epoll_wait(epoll, events, 64, PATIENCE_MS);

		if (found <= 0) {
			fprintf(stderr, "%u of %u downloads hang\n", count - done, count);
			return 1;
		}
		for (int i = 0; i < found; i++) {
			struct one *one = &running[events[i].data.u64];
			double setup_us = -1;
			int was_connected = one->connected;
			int ended = go_on(epoll, one, events[i].data.u64, &setup_us);

			if (!was_connected && one->connected)
				setups[connected++] = setup_us;
			if (!ended)
				continue;
			failed += ended < 0;
			done++;
			close(one->socket);
			if (begun < count)
				begun++, begin(epoll, events[i].data.u64, &to);
		}
	}
	printf("%lld %u\n", (long long)clock_ns(CLOCK_PROCESS_CPUTIME_ID) / 1000, failed);
	for (uint32_t i = 0; i < connected; i++)
		printf("%.1f\n", setups[i]);
	return 0;
}

int main(int count, char **words)
{
	if (count == 5)
		return load(words + 1);
	fprintf(stderr, "downloads ADDRESS PORT COUNT AT_ONCE\n");
	return 2;
}
