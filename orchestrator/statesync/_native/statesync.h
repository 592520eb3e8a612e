// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* What the replicator's maps and messages hold. `messages.py` and `layout.py` pack and unpack the same bytes; loading
 * refuses a program whose maps are of other sizes. Numbers are in the machine's order, which is lowest byte first;
 * ports in keys too, addresses of members apart. */
#pragma once
#include <linux/types.h>

#define MEMBERS 16          /* numbers of members: 1 to 15, of which at most nine are used */
#define LANES 2             /* of each sender: its program's messages, and its process' */
#define OPEN_MOST 262144    /* connections that both ends agreed to */
#define BRIEF_MOST 131072   /* half-open and closed ones, the least used of which give way */
#define PREPARED_MOST 16384
#define SLOTS 1024          /* packets held at once, a power of two */
#define CARRIED_MOST 1408   /* bytes of a frame that can travel behind a message */
#define WINDOW_WORDS 16     /* of 64 messages each, by which messages may be late */
#define VERSION 3
#define LIFE_MOST 64        /* changes of one connection, by which its first message may be late */

enum state {
	LISTEN, SYN_SENT, SYN_RECEIVED, ESTABLISHED, FIN_WAIT, LAST_ACK, TIME_WAIT, CLOSED, ONE_WAY, BOTH_WAYS, STATES,
	REFUSED = 255 /* the packet is not expected */
};
enum kind { SYN, SYN_ACK, ACK, FIN, RST, BAD, DATAGRAM, REQUEST, REPLY };
enum level { NONE, ESSENTIAL, FULL };
enum message_kind { WRITE = 1, PREPARE, COMMIT, CONFIRM, CLOSINGS };

#define WANTS_CONFIRMATION 1
#define IN_TURN 2 /* goes from member to member, and back to its sender */

/* A connection's word: its state, which end opened and which closed it first (1: the upper end of the key), whether
 * members still have to confirm it, and its version. */
#define STATE_OF(word) ((__u8)(word))
#define OPENER (1ULL << 8)
#define CLOSER (1ULL << 9)
#define PENDING (1ULL << 10)
#define VERSION_OF(word) ((__u32)((word) >> 32))

struct address {
	__u64 high, low;
};

struct key {
	struct address low, high;
	__u16 low_port, high_port;
	__u8 protocol, padding[3];
};

struct connection {
	__u64 word;
	__u64 seen, told; /* when its last packet passed, and when members were told; nanoseconds */
	__u32 told_version;
	__u32 batched; /* its place in a batch of closings, counted from 1; 0: none */
};

struct message {
	__u8 version, kind, sender, lane;
	__u8 flags, answer;
	__u16 ahead; /* members to whom it goes yet, if it goes in turn */
	__u64 slot, sequence;
	struct key key;
	__u64 word;
	__u64 mac;
};
#define SEALED_WORDS 9

/* Connections that are told many at a time (`closings.h`): behind a message CLOSINGS, whose `word` counts them and whose `slot` is
 * their MAC. */
struct entry {
	struct key key;
	__u64 word;
};
#define BATCH 24
#define BATCHES 64
struct batch {
	struct entry entries[BATCH];
};

/* What goes before a message. */
struct __attribute__((packed)) outer {
	__u8 destination[6], source[6];
	__be16 type;
	__u8 version_length, tos;
	__be16 total;
	__be16 id, fragment;
	__u8 ttl, protocol;
	__be16 check;
	__be32 from, to;
	__be16 from_port, to_port, length, udp_check;
};
#define ETHERNET 14
#define ROOM (sizeof(struct outer) - ETHERNET + sizeof(struct message)) /* bytes that a message adds to a frame */

struct settings {
	__u8 level, transaction, synchronous, self;
	__be32 address; /* of this member */
	__u32 active;   /* members that are sent messages, by bit */
	__u32 waited;   /* those of them whose confirmation is waited for */
	__be16 port;
	__u16 padding[3];
	__u64 secret[2];
	__u64 clock;     /* what makes the kernel's monotonic clock the time of day */
	__u64 hold;      /* how long a packet is held at most, nanoseconds */
	__u64 timeout[16]; /* by state, nanoseconds */
};

struct member {
	__be32 address;
	__u32 ifindex;
	__u64 resolved;
	__u8 destination[6], source[6];
	__u32 padding;
};

/* Which messages of a sender's lane have come: the highest, and those before it. */
struct stream {
	struct bpf_spin_lock lock;
	__u32 open; /* 0: nothing is believed yet */
	__u64 floor, highest, received;
	__u64 seen[WINDOW_WORDS];
};

/* A packet that is held. Which slot is whose is told by `waiting`, which user space sees without asking. */
struct slot {
	__u64 since;
	__u32 confirmed, needed;
	__u32 phase, ifindex;
	__u16 length, checksum;
	__u32 asked; /* members to whom the message went */
	struct key key;
	__u64 word;
	__u8 frame[CARRIED_MOST];
};

/* A data interface by which the switch asks whether this firewall is well. */
struct side {
	__u32 ifindex; /* 0: there is none */
	__u32 was_up;  /* the switch has sent it traffic */
	__u64 heard;   /* when it asked last, nanoseconds */
};

/* Whether the switch may send this firewall traffic. User space says yes, the program says no. */
struct health {
	__u32 serving, padding;
	__u64 patience; /* how long either side may be silent, nanoseconds */
	struct side sides[2];
};

#define EVERY_COUNTER(_) \
	_(passed) _(no_connection) _(unexpected) _(unreadable) _(open_full) _(raced) _(changes) _(sent) _(unresolved) \
	_(held) _(held_full) _(unheld) _(released) _(stored) _(stale) _(confirmed) _(wrong_mac) _(replayed) _(late) \
	_(unready) _(not_member) _(unprepared) _(store_full) _(unasked) _(overtook) _(fenced)
#define NAME(name) COUNT_##name,
enum counter { EVERY_COUNTER(NAME) COUNTERS };
