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
    int64_t *start;
    uint32_t *captured, *wire, *link;
    Py_ssize_t count;
};

static uint32_t word(const struct run *run, Py_ssize_t place)
{
    uint32_t found;
    memcpy(&found, run->data + place, sizeof found);
    return run->swapped ? __builtin_bswap32(found) : found;
}

static void add(struct run *run, Py_ssize_t start, uint32_t captured, uint32_t wire, uint32_t link)
{
    run->start[run->count] = start;
    run->captured[run->count] = captured;
    run->wire[run->count] = wire;
    run->link[run->count++] = link;
}

/* pcap: 16 octets in front of each packet, of which the last eight say how long it is and was. */
static void records_in(struct run *run, uint32_t most, uint32_t link)
{
    while (run->size - run->place >= 16) {
        uint32_t captured = word(run, run->place + 8);
        if (captured > most || captured > run->size - run->place - 16)
            return;
        add(run, run->place + 16, captured, word(run, run->place + 12), link);
        run->place += 16 + captured;
    }
}

/* pcapng: blocks of type 6, with 28 octets in front of each packet and 4 behind it and what fills it up. */
static void blocks_in(struct run *run, uint32_t most, const uint32_t *links, Py_ssize_t interfaces)
{
    while (run->size - run->place >= 32 && word(run, run->place) == 6) {
        Py_ssize_t at = run->place;
        uint32_t length = word(run, at + 4);
        if (length < 32 || length % 4 || length > most || length > run->size - at || word(run, at + length - 4) != length)
            return;
        uint32_t interface = word(run, at + 8), captured = word(run, at + 20);
        if (interface >= interfaces || captured > length - 32)
            return;
        add(run, at + 28, captured, word(run, at + 24), links[interface]);
        run->place += length;
    }
}

/* Room for the most packets that there can be, `least` octets each. */
static int make_room(struct run *run, Py_ssize_t least)
{
    size_t room = (run->size - run->place) / least + 1;
    run->start = malloc(room * sizeof *run->start);
    run->captured = malloc(room * sizeof *run->captured);
    run->wire = malloc(room * sizeof *run->wire);
    run->link = malloc(room * sizeof *run->link);
    return run->start && run->captured && run->wire && run->link ? 0 : -1;
}

static PyObject *answer(struct run *run)
{
    Py_ssize_t four = 4 * run->count;
    return Py_BuildValue("ny#y#y#y#", run->place, (char *)run->start, 8 * run->count, (char *)run->captured, four,
                         (char *)run->wire, four, (char *)run->link, four);
}

static void let_go(struct run *run)
{
    free(run->start);
    free(run->captured);
    free(run->wire);
    free(run->link);
}

static PyObject *gone_through(Py_buffer *data, Py_ssize_t place, int swapped, uint32_t most, const Py_buffer *links, uint32_t link)
{
    struct run run = {.data = data->buf, .size = data->len, .place = place, .swapped = swapped};
    PyObject *told = NULL;
    if (place < 0 || place > data->len || (links && links->len % 4)) {
        PyErr_SetString(PyExc_ValueError, "a run begins inside the data");
    } else if (make_room(&run, links ? 32 : 16) < 0) {
        PyErr_NoMemory();
    } else {
        Py_BEGIN_ALLOW_THREADS
        if (links)
            blocks_in(&run, most, links->buf, links->len / 4);
        else
            records_in(&run, most, link);
        Py_END_ALLOW_THREADS
        told = answer(&run);
    }
    let_go(&run);
    return told;
}

/* records(data, place, swapped, most, link) -> (place, starts, captured, wire, links): the packets of pcap from `place` on, at most
 * `most` octets long, up to where something else stands, as int64 and three times uint32. */
static PyObject *records(PyObject *self, PyObject *arguments)
{
    (void)self;
    Py_buffer data;
    Py_ssize_t place;
    int swapped;
    unsigned int most, link;
    if (!PyArg_ParseTuple(arguments, "y*npII", &data, &place, &swapped, &most, &link))
        return NULL;
    PyObject *told = gone_through(&data, place, swapped, most, NULL, link);
    PyBuffer_Release(&data);
    return told;
}

/* blocks(data, place, swapped, most, links) -> as `records`, of pcapng: packet blocks at most `most` octets long, of interfaces
 * whose kinds of link are `links` (uint32). */
static PyObject *blocks(PyObject *self, PyObject *arguments)
{
    (void)self;
    Py_buffer data, links;
    Py_ssize_t place;
    int swapped;
    unsigned int most;
    if (!PyArg_ParseTuple(arguments, "y*npIy*", &data, &place, &swapped, &most, &links))
        return NULL;
    PyObject *told = gone_through(&data, place, swapped, most, &links, 0);
    PyBuffer_Release(&data);
    PyBuffer_Release(&links);
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
