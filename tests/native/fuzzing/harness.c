/* A fuzzer's program: libFuzzer (clang's) makes inputs, a function of targets.py hands each to an extension.
 *
 * The extensions are built with the same clang, -fsanitize=fuzzer-no-link,address,undefined: what their code does with an
 * input guides the next one. FUZZ_TARGET names the function. An exception that comes out of it ends the run, as a fault does. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>

static PyObject *target;

static void give_up(void)
{
    PyErr_Print();
    abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    Py_InitializeEx(0);
    PyObject *module = PyImport_ImportModule("native.fuzzing.targets");
    const char *name = getenv("FUZZ_TARGET");
    target = module && name ? PyObject_GetAttrString(module, name) : NULL;
    if (!target)
        give_up();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    PyObject *given = PyBytes_FromStringAndSize((const char *)data, (Py_ssize_t)size);
    PyObject *said = given ? PyObject_CallOneArg(target, given) : NULL;
    if (!said)
        give_up();
    Py_DECREF(said);
    Py_DECREF(given);
    return 0;
}
