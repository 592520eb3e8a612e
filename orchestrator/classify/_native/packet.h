/* A packet as `packets.py` keeps it: one record of PACKET. */
#ifndef ACLFLOW_PACKET_H
#define ACLFLOW_PACKET_H

#include <stdint.h>

struct packet {
    uint64_t source[2], destination[2]; /* upper and lower half, left-aligned in 128 bits */
    uint16_t source_port, destination_port;
    uint8_t protocol, family, icmp_type, icmp_code, tcp_flags, later, unread, dscp;
    uint32_t length;
};
_Static_assert(sizeof(struct packet) == 48, "a record of PACKET");

#endif
