/* Many clients on one machine: gives every TCP connection of a program its own source address.
 *
 * Loaded before the C library (LD_PRELOAD), it binds each socket to the next address of a block just before the program
 * connects it; the kernel still chooses the port. ACLBENCH_SOURCES names the block as ADDRESS/LENGTH, and the block must
 * be local to the namespace. Successive connections take even addresses far from each other, and each once before any
 * comes again: the step is odd, so it goes round the whole block (`addresses.py` counts alike). ACLBENCH_PASSED says how
 * many of them others took before.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

#define STEP 40503u

typedef int connect_function(int, const struct sockaddr *, socklen_t);

static connect_function *next_connect;
static uint32_t block, hosts, turn;

__attribute__((constructor)) static void read_block(void)
{
    const char *text = getenv("ACLBENCH_SOURCES"), *passed = getenv("ACLBENCH_PASSED");
    char address[INET_ADDRSTRLEN];
    unsigned length;
    struct in_addr parsed;

    next_connect = (connect_function *)dlsym(RTLD_NEXT, "connect");
    if (text == NULL || sscanf(text, "%15[0-9.]/%2u", address, &length) != 2 || length < 1 || length > 32 ||
        inet_pton(AF_INET, address, &parsed) != 1) {
        fprintf(stderr, "ACLBENCH_SOURCES must be an IPv4 block, ADDRESS/LENGTH\n");
        exit(2);
    }
    hosts = length == 32 ? 0 : UINT32_MAX >> length;
    block = ntohl(parsed.s_addr) & ~hosts;
    turn = passed == NULL ? 0 : (uint32_t)strtoul(passed, NULL, 10);
}

int connect(int socket, const struct sockaddr *address, socklen_t size)
{
    if (address->sa_family == AF_INET) {
        const int late = 1;
        struct sockaddr_in source = {.sin_family = AF_INET};

        source.sin_addr.s_addr = htonl(block | (2 * STEP * turn++ & hosts));
        if (setsockopt(socket, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &late, sizeof late) != 0 ||
            bind(socket, (const struct sockaddr *)&source, sizeof source) != 0) {
            return -1;
        }
    }
    return next_connect(socket, address, size);
}
