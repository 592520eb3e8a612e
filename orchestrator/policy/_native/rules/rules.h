/* Rules from parsed JSON and back, by the thousand.
 *
 * Both functions do the plain cases, which are nearly all, and leave the others (None) to the readers and writers of
 * `policy/formats/native.py`, who also say what is wrong with a wrong one. So there is nothing here that refuses, and
 * what is done here must come out as it would there.
 *
 *     read(documents)   a dict ──▶ Rule      keys, words and numbers as most lists have them; any doubt ──▶ None
 *     write(rules)      a Rule ──▶ text      the same bytes as orjson makes of `rule_to_json`
 *
 * What both need of Python (classes, members of enumerations, readers) is handed over once, by `setup`. Fields of
 * slotted classes are read and written in place. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <string.h>

#include "rule_fields.h" /* ID, ACTION, ... as `Rule` has them, and FIELDS; setup.py makes it */

enum { PREFIXES, GROUPS };
enum { FAMILY, NETWORK, LENGTH };
enum { LOW, HIGH };
enum { PROTOCOLS = 256 };

/* A slotted class, and where its fields lie in an object of it. */
struct slotted {
    PyTypeObject *type;
    Py_ssize_t at[FIELDS];
};

/* What was handed over: `names`, `defaults` and `readers` by field, `words` as ((member, text), ...). */
struct python {
    struct slotted rule, addresses, prefix, range;
    PyObject *names, *defaults, *readers, *ipv4, *any_side, *every_port, *words, *protocol_names, *prefix_text;
};

extern struct python python;

static inline PyObject **
field_of(PyObject *object, const struct slotted *class, int field)
{
    return (PyObject **)((char *)object + class->at[field]);
}

/* A string of printable ASCII that JSON writes without escapes. */
int is_plain(PyObject *text, Py_ssize_t longest);

PyObject *read_rules(PyObject *module, PyObject *documents);
PyObject *write_rules(PyObject *module, PyObject *rules);
