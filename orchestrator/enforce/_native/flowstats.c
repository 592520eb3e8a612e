/* The counters in a switch's flow-desc replies: what a poll reads of every entry, and nothing else.
 *
 *     0        2   4       5   6          8 ...            16        24             24 + m            + s
 *     | length | 0 | table | 0 | priority | times and flags | cookie | match (OXM) m | stats (OXS) s   | instructions |
 *
 * Match and statistics begin with four bytes of type and length and are padded to eight. Keys are those of
 * `orchestrator/program/flows.py`; `drivers/openflow/flowdesc.py` does the same in Python where this was not built.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum { COOKIE_AT = 16, MATCH_AT = 24, OXM_AT = 28 };
enum { SMALLEST_ENTRY = 40 };                       /* an empty match and empty statistics */
enum { BASIC_STATISTICS = 0x8002 };
enum { DURATION = 0, IDLE_TIME = 1, PACKET_COUNT = 4, BYTE_COUNT = 5 };
enum { COLUMNS = 6 };

typedef struct {
    uint64_t *key, *cookie, *packets, *bytes;
    uint32_t *idle;
    double *age;
    size_t rows;
} Columns;

typedef struct {
    uint64_t packets, bytes;
    uint32_t idle;
    double age;
} Statistics;

static uint16_t big16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }

static uint32_t big32(const uint8_t *at) { return (uint32_t)big16(at) << 16 | big16(at + 2); }

static uint64_t big64(const uint8_t *at) { return (uint64_t)big32(at) << 32 | big32(at + 4); }

static size_t rounded(size_t size) { return (size + 7) / 8 * 8; }

static uint64_t mixed(uint64_t word, uint64_t place) {
    word += place * UINT64_C(0x9E3779B97F4A7C15);
    word = (word ^ word >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    word = (word ^ word >> 27) * UINT64_C(0x94D049BB133111EB);
    return word ^ word >> 31;
}

static uint64_t key_of(const uint8_t *entry, const uint8_t *match, size_t length) {
    uint64_t place = (uint64_t)length << 32 | (uint64_t)entry[4] << 16 | big16(entry + 6);
    uint64_t total = mixed(place, 1) + mixed(big64(entry + COOKIE_AT), 2);
    for (size_t at = 0, index = 3; at < length; at += 8, index++) {
        uint8_t padded[8] = {0};
        uint64_t word = 0;
        memcpy(padded, match + at, length - at < 8 ? length - at : 8);
        for (int i = 7; i >= 0; i--) {
            word = word << 8 | padded[i];
        }
        total += mixed(word, index);
    }
    return mixed(total, 0);
}

static int read_statistics(const uint8_t *at, const uint8_t *end, Statistics *found) {
    *found = (Statistics){0, 0, UINT32_MAX, -1.0};
    while (end - at >= 4) {
        size_t length = at[3];
        if (big16(at) != BASIC_STATISTICS || (size_t)(end - at) < 4 + length) {
            return 0;
        }
        const uint8_t *value = at + 4;
        unsigned field = at[2] >> 1;
        if (field == DURATION && length == 8) {
            found->age = big32(value) + big32(value + 4) * 1e-9;
        } else if (field == IDLE_TIME && length == 8) {
            found->idle = big32(value);
        } else if (field == PACKET_COUNT && length == 8) {
            found->packets = big64(value);
        } else if (field == BYTE_COUNT && length == 8) {
            found->bytes = big64(value);
        }
        at += 4 + length;
    }
    return 1;
}

static int read_entry(const uint8_t *entry, size_t length, Columns *into) {
    size_t match = big16(entry + MATCH_AT + 2);
    size_t statistics_at = MATCH_AT + rounded(match);
    if (match < 4 || statistics_at + 4 > length) {
        return 0;
    }
    size_t size = big16(entry + statistics_at + 2);
    Statistics found;
    if (size < 4 || statistics_at + size > length ||
        !read_statistics(entry + statistics_at + 4, entry + statistics_at + size, &found)) {
        return 0;
    }
    size_t row = into->rows++;
    into->key[row] = key_of(entry, entry + OXM_AT, match - 4);
    into->cookie[row] = big64(entry + COOKIE_AT);
    into->packets[row] = found.packets;
    into->bytes[row] = found.bytes;
    into->idle[row] = found.idle;
    into->age[row] = found.age;
    return 1;
}

static int read_reply(const uint8_t *at, const uint8_t *end, Columns *into) {
    while (at < end) {
        size_t length = end - at < 2 ? 0 : big16(at);
        if (length < SMALLEST_ENTRY || (size_t)(end - at) < length || !read_entry(at, length, into)) {
            return 0;
        }
        at += length;
    }
    return 1;
}

static PyObject *room(size_t rows, size_t width) { return PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(rows * width)); }

static int fill(PyObject *replies, Py_ssize_t skip, Columns *into) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(replies); i++) {
        PyObject *reply = PyList_GET_ITEM(replies, i);
        const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(reply);
        Py_ssize_t size = PyBytes_GET_SIZE(reply);
        if (size < skip || !read_reply(data + skip, data + size, into)) {
            PyErr_SetString(PyExc_ValueError, "cut off or garbled");
            return 0;
        }
    }
    return 1;
}

static PyObject *counters(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *replies;
    Py_ssize_t skip;
    if (!PyArg_ParseTuple(args, "O!n", &PyList_Type, &replies, &skip)) {
        return NULL;
    }
    size_t most = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(replies); i++) {
        if (!PyBytes_Check(PyList_GET_ITEM(replies, i))) {
            PyErr_SetString(PyExc_TypeError, "replies must be bytes");
            return NULL;
        }
        most += (size_t)PyBytes_GET_SIZE(PyList_GET_ITEM(replies, i)) / SMALLEST_ENTRY;
    }
    static const size_t widths[COLUMNS] = {8, 8, 8, 8, 4, 8};
    PyObject *columns[COLUMNS] = {NULL};
    PyObject *result = NULL;
    for (int i = 0; i < COLUMNS; i++) {
        columns[i] = room(most, widths[i]);
        if (columns[i] == NULL) {
            goto done;
        }
    }
    Columns into = {
        (uint64_t *)PyByteArray_AS_STRING(columns[0]), (uint64_t *)PyByteArray_AS_STRING(columns[1]),
        (uint64_t *)PyByteArray_AS_STRING(columns[2]), (uint64_t *)PyByteArray_AS_STRING(columns[3]),
        (uint32_t *)PyByteArray_AS_STRING(columns[4]), (double *)PyByteArray_AS_STRING(columns[5]), 0,
    };
    if (!fill(replies, skip, &into)) {
        goto done;
    }
    result = PyTuple_New(COLUMNS);
    for (int i = 0; result != NULL && i < COLUMNS; i++) {
        if (PyByteArray_Resize(columns[i], (Py_ssize_t)(into.rows * widths[i])) < 0) {
            Py_CLEAR(result);
            break;
        }
        PyTuple_SET_ITEM(result, i, columns[i]);
        columns[i] = NULL;
    }
done:
    for (int i = 0; i < COLUMNS; i++) {
        Py_XDECREF(columns[i]);
    }
    return result;
}

static PyMethodDef methods[] = {
    {"counters", counters, METH_VARARGS,
     "counters(replies, skip): key, cookie, packets, bytes, idle_s (u32), age_s (f64) of the entries in replies, which begin after "
     "`skip` bytes. Raises ValueError for bytes that are no entries."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_flowstats", NULL, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__flowstats(void) { return PyModule_Create(&module); }
