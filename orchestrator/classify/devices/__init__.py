"""Find each packet's first row on a GPU or another OpenCL or CUDA device.

    boxes ──▶ columns ──▶ tables of a model ──▶ memory of the device
                                                    │
    packets ──▶ pinned memory of a lane ──▶ copy ──▶ kernel ──▶ copy ──▶ rows

kernels/     one source for both languages: `models.c`, and `portable.h` with what they call differently
tables.py       rows, sets and packets as 32-bit words; vectors.py and tuples.py for the models that need more
models.py       the models: which tables each reads, and how it is launched
device.py       what a device does for the classifier; opencl.py and cuda.py do it
devicesearch.py batches in several lanes, and rows that are replaced between two batches
guarded.py      the same with the C classifier behind it, for a device that fails
choice.py       which devices there are, and which one a name means

docs/parallel-classifiers.md says what each model costs and why.
"""
