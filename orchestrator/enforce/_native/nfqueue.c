/* Packets that the kernel queues to user space, and what becomes of them: orchestrator/enforce/drivers/queue/machine.py.
 *
 *     receive   recvmmsg: a datagram a packet, into a slot each; then where each packet begins, and its number
 *     answer    one sendmsg: a verdict for each run of packets with the same one
 *
 * The kernel numbers a queue's packets as they come. A verdict for a run (NFQNL_MSG_VERDICT_BATCH) is about all packets up to
 * a number that still wait. Packets are answered in their order, so that is the run, unless a number was left out: a packet
 * that we did not get. The kernel has dropped such a packet; should it still wait, it is dropped by a verdict of its own
 * before the next one, for it must not pass with a run that it is not of.
 */
#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <errno.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_queue.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define MOST 4096               /* packets of a batch */
#define LINK_IPV4 228           /* as captures number what is above the link */
#define LINK_IPV6 229
#define MASK_OF_TYPE 0x3FFF     /* of an attribute, without its flags */

struct batch { /* arrays of Python's, one item a packet */
    uint8_t *data;
    Py_ssize_t slot;
    uint32_t *ids, *captured, *wire, *links;
    int64_t *starts;
    Py_ssize_t room, count;
    Py_ssize_t refused; /* verdicts that the kernel did not take */
};

static int64_t now_us(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000LL + at.tv_nsec / 1000;
}

/* Whether something can be read within so many microseconds. */
static int wait_for(int socket, int64_t us)
{
    struct timespec patience = {us / 1000000, us % 1000000 * 1000};
    struct pollfd one = {.fd = socket, .events = POLLIN};
    return ppoll(&one, 1, &patience, NULL) > 0;
}

/* A packet's message; what has no number cannot be answered and is left out. */
static void take_packet(struct batch *batch, const struct nlmsghdr *message)
{
    const struct nfqnl_msg_packet_hdr *head = NULL;
    const uint8_t *payload = NULL, *at = (const uint8_t *)message + NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(struct nfgenmsg));
    const uint8_t *end = (const uint8_t *)message + message->nlmsg_len;
    uint32_t captured = 0, wire = 0;
    while (end - at >= (ptrdiff_t)sizeof(struct nlattr)) {
        const struct nlattr *attribute = (const struct nlattr *)at;
        size_t length = attribute->nla_len;
        if (length < NLA_HDRLEN || length > (size_t)(end - at))
            break;
        const uint8_t *value = at + NLA_HDRLEN;
        uint16_t type = attribute->nla_type & MASK_OF_TYPE;
        length -= NLA_HDRLEN;
        if (type == NFQA_PACKET_HDR && length >= sizeof *head)
            head = (const struct nfqnl_msg_packet_hdr *)value;
        else if (type == NFQA_PAYLOAD)
            payload = value, captured = length;
        else if (type == NFQA_CAP_LEN && length == sizeof wire)
            memcpy(&wire, value, sizeof wire), wire = __builtin_bswap32(wire);
        at += NLA_ALIGN(attribute->nla_len);
    }
    if (!head || batch->count == batch->room)
        return;
    Py_ssize_t i = batch->count++;
    uint16_t kind = __builtin_bswap16(head->hw_protocol);
    batch->ids[i] = __builtin_bswap32(head->packet_id);
    batch->starts[i] = payload ? payload - batch->data : 0;
    batch->captured[i] = captured;
    batch->wire[i] = wire > captured ? wire : captured;
    batch->links[i] = kind == 0x0800 ? LINK_IPV4 : kind == 0x86DD ? LINK_IPV6 : 0;
}

static void take_datagram(struct batch *batch, const uint8_t *begin, size_t length)
{
    while (length >= sizeof(struct nlmsghdr)) {
        const struct nlmsghdr *message = (const struct nlmsghdr *)begin;
        if (message->nlmsg_len < sizeof *message || message->nlmsg_len > length)
            return;
        if (message->nlmsg_type == ((NFNL_SUBSYS_QUEUE << 8) | NFQNL_MSG_PACKET))
            take_packet(batch, message);
        else if (message->nlmsg_type == NLMSG_ERROR)
            batch->refused++;
        size_t step = NLMSG_ALIGN(message->nlmsg_len);
        if (step >= length)
            return;
        begin += step, length -= step;
    }
}

/* Take the datagrams that are there, of which each has a slot. Returns how many, or -errno. */
static int take_waiting(struct batch *batch, int socket, Py_ssize_t used)
{
    static _Thread_local struct mmsghdr messages[MOST];
    static _Thread_local struct iovec parts[MOST];
    Py_ssize_t room = batch->room - used;
    for (Py_ssize_t i = 0; i < room; i++) {
        parts[i] = (struct iovec){batch->data + (used + i) * batch->slot, batch->slot};
        messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
    }
    int got = recvmmsg(socket, messages, room, MSG_DONTWAIT, NULL);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    for (int i = 0; i < got; i++)
        take_datagram(batch, parts[i].iov_base, messages[i].msg_len);
    return got;
}

/* Wait for a first packet, then for more, until all slots are used or the first has waited for `latency_us`. */
static int collect(struct batch *batch, int socket, int64_t patience_us, int64_t latency_us)
{
    if (!wait_for(socket, patience_us))
        return 0;
    int64_t end = now_us() + latency_us;
    Py_ssize_t used = 0;
    for (;;) {
        int got = take_waiting(batch, socket, used);
        if (got < 0)
            return batch->count ? 0 : got;
        used += got;
        int64_t left = end - now_us();
        if (used == batch->room || left <= 0 || !wait_for(socket, left))
            return 0;
    }
}

/* receive(socket, data, slot, ids, starts, captured, wire, links, patience_us, latency_us): how many packets there are, and how
 * many verdicts were refused. Raises OSError. */
static PyObject *receive(PyObject *module, PyObject *arguments)
{
    (void)module;
    int socket;
    Py_buffer data, ids, starts, captured, wire, links;
    long long patience_us, latency_us;
    struct batch batch = {0};
    if (!PyArg_ParseTuple(arguments, "iw*nw*w*w*w*w*LL", &socket, &data, &batch.slot, &ids, &starts, &captured, &wire, &links,
                          &patience_us, &latency_us))
        return NULL;
    batch.room = ids.len / 4;
    int failed = 0, fits = batch.slot > 0 && batch.room <= MOST && data.len >= batch.room * batch.slot && starts.len == 8 * batch.room &&
                           captured.len == ids.len && wire.len == ids.len && links.len == ids.len;
    if (fits) {
        batch.data = data.buf, batch.ids = ids.buf, batch.starts = starts.buf;
        batch.captured = captured.buf, batch.wire = wire.buf, batch.links = links.buf;
        Py_BEGIN_ALLOW_THREADS
        failed = collect(&batch, socket, patience_us, latency_us);
        Py_END_ALLOW_THREADS
    }
    Py_buffer *all[] = {&data, &ids, &starts, &captured, &wire, &links};
    for (int i = 0; i < 6; i++)
        PyBuffer_Release(all[i]);
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "the arrays of a batch do not fit together");
        return NULL;
    }
    if (failed < 0) {
        errno = -failed;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return Py_BuildValue("nn", batch.count, batch.refused);
}

struct verdict { /* a message that says what becomes of a packet, or of all up to it */
    struct nlmsghdr head;
    struct nfgenmsg queue;
    struct nlattr attribute;
    struct nfqnl_msg_verdict_hdr said;
};
_Static_assert(sizeof(struct verdict) == 32, "a verdict's message has no holes");

static void say(struct verdict *message, uint16_t queue, uint32_t verdict, uint32_t id)
{
    *message = (struct verdict){
        .head = {sizeof *message, (NFNL_SUBSYS_QUEUE << 8) | NFQNL_MSG_VERDICT_BATCH, NLM_F_REQUEST, 0, 0},
        .queue = {AF_UNSPEC, NFNETLINK_V0, __builtin_bswap16(queue)},
        .attribute = {NLA_HDRLEN + sizeof message->said, NFQA_VERDICT_HDR},
        .said = {__builtin_bswap32(verdict), __builtin_bswap32(id)},
    };
}

/* The messages for a batch: a run of packets each, and one for numbers that were left out. */
static size_t say_all(struct verdict *messages, uint16_t queue, uint32_t before, const uint32_t *ids, const uint32_t *verdicts,
                      size_t count)
{
    size_t made = 0;
    for (size_t i = 0; i < count; i++) {
        if (ids[i] != before + 1)
            say(&messages[made++], queue, NF_DROP, ids[i] - 1);
        if (i + 1 == count || verdicts[i + 1] != verdicts[i] || ids[i + 1] != ids[i] + 1)
            say(&messages[made++], queue, verdicts[i], ids[i]);
        before = ids[i];
    }
    return made;
}

/* answer(socket, queue, before, ids, verdicts): send the verdicts of a batch; how many messages that took. `before`: the number of the
 * packet before its first. Raises OSError. */
static PyObject *answer(PyObject *module, PyObject *arguments)
{
    (void)module;
    int socket, queue;
    unsigned int before;
    Py_buffer ids, verdicts;
    if (!PyArg_ParseTuple(arguments, "iiIy*y*", &socket, &queue, &before, &ids, &verdicts))
        return NULL;
    size_t count = ids.len / 4, made = 0;
    ssize_t sent = -1;
    struct verdict *messages = ids.len == verdicts.len ? calloc(2 * count + 1, sizeof *messages) : NULL;
    int problem = ENOMEM;
    if (messages) {
        Py_BEGIN_ALLOW_THREADS
        made = say_all(messages, (uint16_t)queue, before, ids.buf, verdicts.buf, count);
        sent = made ? send(socket, messages, made * sizeof *messages, 0) : 0;
        problem = errno;
        Py_END_ALLOW_THREADS
        free(messages);
    }
    PyBuffer_Release(&ids);
    PyBuffer_Release(&verdicts);
    if (sent < 0) {
        errno = problem;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyLong_FromSize_t(made);
}

static PyMethodDef methods[] = {
    {"receive", receive, METH_VARARGS, NULL},
    {"answer", answer, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_nfqueue", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__nfqueue(void)
{
    return PyModule_Create(&module);
}
