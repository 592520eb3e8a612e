/* Where packets lie in a capture: the long runs of them that `records.py` would otherwise go through one by one. A run ends
 * at whatever is no whole and plain packet; what that is, and whether it is damage, is for `records.py` to say.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct run {
    const uint8_t *data;
    Py_ssize_t size, place;
    int swapped;
    int64_t *start, *time; /* times: nanoseconds since 1970 */
    uint32_t *captured, *wire, *link;
    Py_ssize_t count;
};

static uint32_t word(const struct run *run, Py_ssize_t place)
{
    uint32_t found;
    memcpy(&found, run->data + place, sizeof found);
    return run->swapped ? __builtin_bswap32(found) : found;
}

enum { SECOND = 1000000000 };

/* An interface of pcapng: its kind of link, and what its times mean. */
struct interface {
    int64_t offset; /* seconds */
    uint64_t ticks; /* in a second; 0 where its times cannot be read */
    uint64_t link;
};

#define NO_TIME INT64_MIN
#define LATEST ((int64_t)1 << 62) /* in 2116 */

static int64_t nanoseconds(uint64_t ticks, const struct interface *of)
{
    if (!of->ticks)
        return NO_TIME;
    __int128 found = ((__int128)(ticks / of->ticks) + of->offset) * SECOND + (__int128)(ticks % of->ticks) * SECOND / of->ticks;
    return found > LATEST ? LATEST : found < -LATEST ? -LATEST : (int64_t)found;
}

static void add(struct run *run, Py_ssize_t start, uint32_t captured, uint32_t wire, uint32_t link, int64_t time)
{
    run->start[run->count] = start;
    run->time[run->count] = time;
    run->captured[run->count] = captured;
    run->wire[run->count] = wire;
    run->link[run->count++] = link;
}

/* pcap: 16 bytes in front of each packet, of which the last eight say how long it is and was. */
static void records_in(struct run *run, uint32_t most, uint32_t link, uint32_t tick)
{
    while (run->size - run->place >= 16) {
        uint32_t captured = word(run, run->place + 8);
        if (captured > most || captured > run->size - run->place - 16)
            return;
        int64_t time = (int64_t)word(run, run->place) * SECOND + (int64_t)word(run, run->place + 4) * tick;
        add(run, run->place + 16, captured, word(run, run->place + 12), link, time);
        run->place += 16 + captured;
    }
}

/* pcapng: blocks of type 6, with 28 bytes in front of each packet and 4 behind it and what fills it up. */
static void blocks_in(struct run *run, uint32_t most, const struct interface *of, Py_ssize_t interfaces)
{
    while (run->size - run->place >= 32 && word(run, run->place) == 6) {
        Py_ssize_t at = run->place;
        uint32_t length = word(run, at + 4);
        if (length < 32 || length % 4 || length > most || length > run->size - at || word(run, at + length - 4) != length)
            return;
        uint32_t interface = word(run, at + 8), captured = word(run, at + 20);
        if (interface >= interfaces || captured > length - 32)
            return;
        uint64_t ticks = (uint64_t)word(run, at + 12) << 32 | word(run, at + 16);
        add(run, at + 28, captured, word(run, at + 24), of[interface].link, nanoseconds(ticks, of + interface));
        run->place += length;
    }
}

/* Room for the most packets that there can be, `least` bytes each. */
static int make_room(struct run *run, Py_ssize_t least)
{
    size_t room = (run->size - run->place) / least + 1;
    run->start = malloc(room * sizeof *run->start);
    run->time = malloc(room * sizeof *run->time);
    run->captured = malloc(room * sizeof *run->captured);
    run->wire = malloc(room * sizeof *run->wire);
    run->link = malloc(room * sizeof *run->link);
    return run->start && run->time && run->captured && run->wire && run->link ? 0 : -1;
}

static PyObject *answer(struct run *run)
{
    Py_ssize_t four = 4 * run->count;
    return Py_BuildValue("ny#y#y#y#y#", run->place, (char *)run->start, 8 * run->count, (char *)run->captured, four,
                         (char *)run->wire, four, (char *)run->link, four, (char *)run->time, 8 * run->count);
}

static void let_go(struct run *run)
{
    free(run->start);
    free(run->time);
    free(run->captured);
    free(run->wire);
    free(run->link);
}

static PyObject *gone_through(Py_buffer *data, Py_ssize_t place, int swapped, uint32_t most, const Py_buffer *interfaces, uint32_t link,
                              uint32_t tick)
{
    struct run run = {.data = data->buf, .size = data->len, .place = place, .swapped = swapped};
    PyObject *told = NULL;
    if (place < 0 || place > data->len || (interfaces && interfaces->len % sizeof(struct interface))) {
        PyErr_SetString(PyExc_ValueError, "a run begins inside the data");
    } else if (make_room(&run, interfaces ? 32 : 16) < 0) {
        PyErr_NoMemory();
    } else {
        Py_BEGIN_ALLOW_THREADS
        if (interfaces)
            blocks_in(&run, most, interfaces->buf, interfaces->len / sizeof(struct interface));
        else
            records_in(&run, most, link, tick);
        Py_END_ALLOW_THREADS
        told = answer(&run);
    }
    let_go(&run);
    return told;
}

/* records(data, place, swapped, most, link, tick) -> (place, starts, captured, wire, links, times): the packets of pcap from
 * `place` on, at most `most` bytes long, up to where something else stands, as int64, three times uint32, and int64. `tick`:
 * nanoseconds that the second word of a time counts. */
static PyObject *records(PyObject *self, PyObject *arguments)
{
    (void)self;
    Py_buffer data;
    Py_ssize_t place;
    int swapped;
    unsigned int most, link, tick;
    if (!PyArg_ParseTuple(arguments, "y*npIII", &data, &place, &swapped, &most, &link, &tick))
        return NULL;
    PyObject *told = gone_through(&data, place, swapped, most, NULL, link, tick);
    PyBuffer_Release(&data);
    return told;
}

/* blocks(data, place, swapped, most, interfaces) -> as `records`, of pcapng: packet blocks at most `most` bytes long, of
 * interfaces as `struct interface` says them. */
static PyObject *blocks(PyObject *self, PyObject *arguments)
{
    (void)self;
    Py_buffer data, interfaces;
    Py_ssize_t place;
    int swapped;
    unsigned int most;
    if (!PyArg_ParseTuple(arguments, "y*npIy*", &data, &place, &swapped, &most, &interfaces))
        return NULL;
    PyObject *told = gone_through(&data, place, swapped, most, &interfaces, 0, 0);
    PyBuffer_Release(&data);
    PyBuffer_Release(&interfaces);
    return told;
}

static PyMethodDef methods[] = {
    {"records", records, METH_VARARGS, NULL},
    {"blocks", blocks, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_records", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__records(void)
{
    return PyModule_Create(&module);
}
