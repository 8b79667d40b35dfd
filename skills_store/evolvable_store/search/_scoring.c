/* The loops of a search over postings. plain_scoring.py does the same without a compiler, and says what each is for; both
   give the same numbers to the last bit, and one test suite tries both. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    PyObject_HEAD
    Py_ssize_t length;
    double *scores, *shares;
    uint32_t *latest; /* the term that each place was last covered by */
} Sums;

/* Two buffers that belong together: places in two bytes each, in the machine's order, and a weight for each. */
typedef struct {
    Py_buffer places, weights;
    Py_ssize_t count;
} Postings;

/* A buffer may begin at any address. */
static uint16_t number(const Py_buffer *places, Py_ssize_t i) {
    uint16_t place;
    memcpy(&place, (const char *)places->buf + 2 * i, sizeof place);
    return place;
}

static void release(Postings *postings) {
    PyBuffer_Release(&postings->places);
    PyBuffer_Release(&postings->weights);
}

static int acquire(Postings *postings, PyObject *places, PyObject *weights) {
    if (PyObject_GetBuffer(places, &postings->places, PyBUF_SIMPLE) < 0) return -1;
    if (PyObject_GetBuffer(weights, &postings->weights, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&postings->places);
        return -1;
    }
    postings->count = postings->weights.len;
    if (postings->places.len == 2 * postings->count) return 0;
    release(postings);
    PyErr_SetString(PyExc_ValueError, "there is not one weight for each place");
    return -1;
}

/* Sums */

static PyObject *sums_new(PyTypeObject *type, PyObject *args, PyObject *options) {
    static char *names[] = {"length", NULL};
    Py_ssize_t length;
    if (!PyArg_ParseTupleAndKeywords(args, options, "n", names, &length)) return NULL;
    if (length < 1 || length > 1 << 16) {
        PyErr_SetString(PyExc_ValueError, "a row has 1 to 65536 places");
        return NULL;
    }
    Sums *self = (Sums *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    self->length = length;
    self->scores = calloc(length, sizeof *self->scores);
    self->shares = calloc(length, sizeof *self->shares);
    self->latest = calloc(length, sizeof *self->latest);
    if (self->scores == NULL || self->shares == NULL || self->latest == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    return (PyObject *)self;
}

static void sums_dealloc(PyObject *object) {
    Sums *self = (Sums *)object;
    PyTypeObject *type = Py_TYPE(object);
    free(self->scores);
    free(self->shares);
    free(self->latest);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *sums_add(PyObject *object, PyObject *args) {
    Sums *self = (Sums *)object;
    PyObject *places, *weights;
    double factor, share;
    unsigned int term;
    if (!PyArg_ParseTuple(args, "OOdId:add", &places, &weights, &factor, &term, &share)) return NULL;
    Postings postings;
    if (acquire(&postings, places, weights) < 0) return NULL;
    const uint8_t *weight = postings.weights.buf;
    Py_ssize_t beyond = 0;
    for (Py_ssize_t i = 0; i < postings.count; i++) beyond += number(&postings.places, i) >= self->length;
    if (beyond) {
        release(&postings);
        PyErr_SetString(PyExc_ValueError, "there is a place beyond the row");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < postings.count; i++) {
        uint16_t at = number(&postings.places, i);
        self->scores[at] += weight[i] * factor;
        if (self->latest[at] != term) {
            self->latest[at] = term;
            self->shares[at] += share;
        }
    }
    release(&postings);
    Py_RETURN_NONE;
}

static PyObject *sums_cover(PyObject *object, PyObject *args) {
    Sums *self = (Sums *)object;
    double all, part;
    if (!PyArg_ParseTuple(args, "dd:cover", &all, &part)) return NULL;
    for (Py_ssize_t at = 0; at < self->length; at++) {
        double share = self->shares[at] / all;
        self->shares[at] = share < 1.0 ? share : 1.0;
        self->scores[at] *= 1 - part + part * self->shares[at];
    }
    Py_RETURN_NONE;
}

static PyObject *entry(const Sums *self, Py_ssize_t at) {
    return Py_BuildValue("ndd", at, self->scores[at], self->shares[at]);
}

/* Whether one is worse than the other: it has a lower score or, of equals, a higher place. */
static int worse(const Sums *self, Py_ssize_t one, Py_ssize_t other) {
    if (self->scores[one] != self->scores[other]) return self->scores[one] < self->scores[other];
    return one > other;
}

/* Lets what stands at the top of a heap, the worst first, sink to where it belongs. */
static void sink(const Sums *self, Py_ssize_t *heap, Py_ssize_t count) {
    Py_ssize_t at = 0, moved = heap[0];
    for (Py_ssize_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && worse(self, heap[child + 1], heap[child])) child++;
        if (!worse(self, heap[child], moved)) break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

/* Lets the last of a heap rise to where it belongs. */
static void rise(const Sums *self, Py_ssize_t *heap, Py_ssize_t count) {
    Py_ssize_t at = count - 1, moved = heap[at];
    for (Py_ssize_t parent; at > 0; at = parent) {
        parent = (at - 1) / 2;
        if (!worse(self, moved, heap[parent])) break;
        heap[at] = heap[parent];
    }
    heap[at] = moved;
}

static PyObject *sums_best(PyObject *object, PyObject *args) {
    Sums *self = (Sums *)object;
    Py_ssize_t limit, count = 0;
    if (!PyArg_ParseTuple(args, "n:best", &limit)) return NULL;
    if (limit < 0) limit = 0;
    if (limit > self->length) limit = self->length;
    Py_ssize_t *heap = malloc((limit + 1) * sizeof *heap);
    if (heap == NULL) return PyErr_NoMemory();
    for (Py_ssize_t at = 0; at < self->length && limit; at++) {
        if (!(self->scores[at] > 0)) continue;
        if (count < limit) {
            heap[count++] = at;
            rise(self, heap, count);
        } else if (worse(self, heap[0], at)) {
            heap[0] = at;
            sink(self, heap, count);
        }
    }
    PyObject *found = PyList_New(count);
    while (found != NULL && count > 0) {
        PyObject *its = entry(self, heap[0]);
        heap[0] = heap[--count];
        if (count) sink(self, heap, count);
        if (its == NULL || PyList_SetItem(found, count, its) < 0) Py_CLEAR(found);
    }
    free(heap);
    return found;
}

static PyObject *sums_at(PyObject *object, PyObject *args) {
    Sums *self = (Sums *)object;
    Py_ssize_t at;
    if (!PyArg_ParseTuple(args, "n:at", &at)) return NULL;
    if (at < 0 || at >= self->length) {
        PyErr_SetString(PyExc_IndexError, "there is no such place in the row");
        return NULL;
    }
    return entry(self, at);
}

static PyMethodDef sums_methods[] = {
    {"add", sums_add, METH_VARARGS, NULL},
    {"cover", sums_cover, METH_VARARGS, NULL},
    {"best", sums_best, METH_VARARGS, NULL},
    {"at", sums_at, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot sums_slots[] = {
    {Py_tp_new, sums_new},
    {Py_tp_dealloc, sums_dealloc},
    {Py_tp_methods, sums_methods},
    {0, NULL},
};

static PyType_Spec sums_spec = {"evolvable_store._scoring.Sums", sizeof(Sums), 0, Py_TPFLAGS_DEFAULT, sums_slots};

/* The module */

static PyObject *weights_at(PyObject *module, PyObject *args) {
    PyObject *places, *weights;
    Py_buffer asked;
    if (!PyArg_ParseTuple(args, "OOy*:weights_at", &places, &weights, &asked)) return NULL;
    Postings postings;
    PyObject *found = NULL;
    if (acquire(&postings, places, weights) < 0) goto done;
    if (asked.len % 2) {
        PyErr_SetString(PyExc_ValueError, "a place takes two bytes");
    } else if ((found = PyBytes_FromStringAndSize(NULL, asked.len / 2)) != NULL) {
        const char *weight = postings.weights.buf;
        char *its = PyBytes_AsString(found);
        for (Py_ssize_t i = 0; i < asked.len / 2; i++) {
            uint16_t wanted = number(&asked, i);
            Py_ssize_t low = 0, high = postings.count;
            while (low < high) {
                Py_ssize_t middle = low + (high - low) / 2;
                if (number(&postings.places, middle) < wanted) low = middle + 1;
                else high = middle;
            }
            its[i] = low < postings.count && number(&postings.places, low) == wanted ? weight[low] : 0;
        }
    }
    release(&postings);
done:
    PyBuffer_Release(&asked);
    return found;
}

static int executed(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &sums_spec, NULL);
    if (type == NULL) return -1;
    int failed = PyModule_AddObjectRef(module, "Sums", type);
    Py_DECREF(type);
    return failed;
}

static PyMethodDef methods[] = {
    {"weights_at", weights_at, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, executed},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_scoring", NULL, 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__scoring(void) { return PyModuleDef_Init(&definition); }
