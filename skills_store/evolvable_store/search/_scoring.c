/* The loops of a search over postings, of indexing and of the scan. posting_loops.py, analyzer.py and the scan's
   text_loops.py do the same without a compiler, and say what each is for; both give the same results to the last bit, and
   one test suite tries both. */

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

/* Indexing */

typedef struct {
    size_t start; /* in the letters */
    uint32_t length, hash, term; /* the number of its term, plus one; 0 for an empty place */
    uint8_t function_word;
} Form;

/* The terms of the words that were asked for, and how often each occurs in the text at hand. */
typedef struct {
    PyObject_HEAD
    PyObject *stem, *short_forms, *function_words, *terms, *numbers;
    Py_ssize_t longest, most;
    Form *forms; /* a hash table; at most half of it is full */
    Py_ssize_t used, room, letters_used, letters_room, counts_room;
    char *letters;
    uint32_t *counts;
    int busy;
} TermCounter;

/* Differs from process to process, so that no text can be made whose words all meet in the table. */
static uint64_t hash_seed;

static int counter_clear(TermCounter *self) {
    PyObject *terms = PyList_New(0), *numbers = PyDict_New();
    Form *forms = calloc(1024, sizeof *forms);
    if (terms == NULL || numbers == NULL || forms == NULL) {
        Py_XDECREF(terms);
        Py_XDECREF(numbers);
        free(forms);
        if (!PyErr_Occurred()) PyErr_NoMemory();
        return -1;
    }
    Py_XDECREF(self->terms);
    Py_XDECREF(self->numbers);
    free(self->forms);
    free(self->letters);
    self->terms = terms;
    self->numbers = numbers;
    self->forms = forms;
    self->room = 1024;
    self->letters = NULL;
    self->used = self->letters_used = self->letters_room = 0;
    return 0;
}

static PyObject *counter_new(PyTypeObject *type, PyObject *args, PyObject *options) {
    static char *names[] = {"stem", "short_forms", "function_words", "longest", "most", NULL};
    PyObject *stem, *short_forms, *function_words;
    Py_ssize_t longest, most;
    if (!PyArg_ParseTupleAndKeywords(
            args, options, "OO!O!nn", names, &stem, &PyDict_Type, &short_forms, &PyFrozenSet_Type, &function_words,
            &longest, &most))
        return NULL;
    TermCounter *self = (TermCounter *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    Py_INCREF(stem);
    Py_INCREF(short_forms);
    Py_INCREF(function_words);
    self->stem = stem;
    self->short_forms = short_forms;
    self->function_words = function_words;
    self->longest = longest;
    self->most = most;
    if (counter_clear(self) < 0) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void counter_dealloc(PyObject *object) {
    TermCounter *self = (TermCounter *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->stem);
    Py_XDECREF(self->short_forms);
    Py_XDECREF(self->function_words);
    Py_XDECREF(self->terms);
    Py_XDECREF(self->numbers);
    free(self->forms);
    free(self->letters);
    free(self->counts);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* Returns the number of a word's term, new or known; -1 with an error. function_word: set to whether it is one. */
static Py_ssize_t number_of_term(TermCounter *self, const char *start, Py_ssize_t length, int *function_word) {
    Py_ssize_t number = -1;
    PyObject *word = PyUnicode_FromStringAndSize(start, length), *term = NULL;
    if (word == NULL) return -1;
    *function_word = PySet_Contains(self->function_words, word);
    if (*function_word < 0) goto done;
    PyObject *whole = PyDict_GetItemWithError(self->short_forms, word);
    if (whole == NULL && PyErr_Occurred()) goto done;
    term = PyObject_CallFunctionObjArgs(self->stem, whole ? whole : word, NULL);
    if (term == NULL) goto done;
    PyObject *known = PyDict_GetItemWithError(self->numbers, term);
    if (known != NULL) {
        number = PyLong_AsSsize_t(known);
    } else if (!PyErr_Occurred()) {
        number = PyList_Size(self->terms);
        if (number >= self->counts_room) {
            Py_ssize_t room = self->counts_room ? 2 * self->counts_room : 1024;
            uint32_t *counts = realloc(self->counts, room * sizeof *counts);
            if (counts == NULL) {
                PyErr_NoMemory();
                number = -1;
                goto done;
            }
            memset(counts + self->counts_room, 0, (room - self->counts_room) * sizeof *counts);
            self->counts = counts;
            self->counts_room = room;
        }
        PyObject *its = PyLong_FromSsize_t(number);
        if (its == NULL || PyList_Append(self->terms, term) < 0 || PyDict_SetItem(self->numbers, term, its) < 0)
            number = -1;
        Py_XDECREF(its);
    }
done:
    Py_XDECREF(term);
    Py_DECREF(word);
    return number;
}

static int grow_forms(TermCounter *self) {
    Py_ssize_t room = 2 * self->room;
    Form *forms = calloc(room, sizeof *forms);
    if (forms == NULL) return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < self->room; i++) {
        if (!self->forms[i].term) continue;
        Py_ssize_t at = self->forms[i].hash & (room - 1);
        while (forms[at].term) at = (at + 1) & (room - 1);
        forms[at] = self->forms[i];
    }
    free(self->forms);
    self->forms = forms;
    self->room = room;
    return 0;
}

/* Returns the place of a word in the table, NULL with an error; the next call may move it. */
static const Form *form_of(TermCounter *self, const char *start, Py_ssize_t length, uint64_t mixed) {
    uint32_t hash = (uint32_t)(mixed ^ (mixed >> 32));
    for (Py_ssize_t at = hash & (self->room - 1); self->forms[at].term; at = (at + 1) & (self->room - 1)) {
        const Form *form = &self->forms[at];
        if (form->hash == hash && form->length == length && !memcmp(self->letters + form->start, start, length))
            return form;
    }
    int function_word = 0;
    Py_ssize_t number = number_of_term(self, start, length, &function_word);
    if (number < 0 || (2 * self->used >= self->room && grow_forms(self) < 0)) return NULL;
    if (self->letters_used + length > self->letters_room) {
        Py_ssize_t room = self->letters_room ? 2 * self->letters_room : 8192;
        while (room < self->letters_used + length) room *= 2;
        char *letters = realloc(self->letters, room);
        if (letters == NULL) return PyErr_NoMemory(), NULL;
        self->letters = letters;
        self->letters_room = room;
    }
    memcpy(self->letters + self->letters_used, start, length);
    Py_ssize_t at = hash & (self->room - 1);
    while (self->forms[at].term) at = (at + 1) & (self->room - 1);
    self->forms[at] = (Form){
        (size_t)self->letters_used, (uint32_t)length, hash, (uint32_t)number + 1, (uint8_t)function_word};
    self->letters_used += length;
    self->used++;
    return &self->forms[at];
}

/* Finds the next word of a text that counts. here: set to its end. word: its form; NULL at the end of the text and with
   an error, for which -1 is returned. */
static int next_word(TermCounter *self, const char **here, const char *end, const Form **word) {
    *word = NULL;
    while (*here < end) {
        const char *start = *here;
        uint64_t mixed = hash_seed;
        for (; *here < end && ((**here >= 'a' && **here <= 'z') || (**here >= '0' && **here <= '9')); (*here)++) {
            mixed = (mixed ^ (unsigned char)**here) * 0x9E3779B97F4A7C15u;
            mixed ^= mixed >> 29;
        }
        if (*here > start && *here - start <= self->longest) {
            *word = form_of(self, start, *here - start, mixed);
            return *word == NULL ? -1 : 0;
        }
        if (*here < end) (*here)++;
    }
    return 0;
}

/* Counts the words of a text. order: set to the numbers of its terms as they first occur, to be freed. found: how many
   those are, also where it ends with an error. */
static int count_words(TermCounter *self, const Py_buffer *text, uint32_t **order, Py_ssize_t *found) {
    Py_ssize_t room = 0;
    const char *here = text->buf, *end = here + text->len;
    const Form *word;
    while (1) {
        if (next_word(self, &here, end, &word) < 0) return -1;
        if (word == NULL) return 0;
        uint32_t term = word->term - 1;
        if (!self->counts[term]) {
            if (*found == room) {
                uint32_t *longer = realloc(*order, (room ? 2 * room : 512) * sizeof *longer);
                if (longer == NULL) return PyErr_NoMemory(), -1;
                *order = longer;
                room = room ? 2 * room : 512;
            }
            (*order)[(*found)++] = term;
        }
        self->counts[term]++;
    }
}

/* Rounds as Python does: of two that are as near the even one. */
static unsigned char rounded(double value) {
    int whole = (int)value;
    double rest = value - whole;
    return (unsigned char)(whole + (rest > 0.5 || (rest == 0.5 && whole % 2)));
}

/* Returns the terms as lines of one text, and their weights. usual: the count that weighs half of `step`. */
static PyObject *weigh_counts(
    TermCounter *self, const uint32_t *order, Py_ssize_t count, double usual, double step) {
    Py_ssize_t size = 0, length;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (PyUnicode_AsUTF8AndSize(PyList_GetItem(self->terms, order[i]), &length) == NULL) return NULL;
        size += length + 1;
    }
    char *lines = PyMem_Malloc(size + 1), *here = lines;
    PyObject *weights = PyBytes_FromStringAndSize(NULL, count), *text = NULL;
    if (lines == NULL) PyErr_NoMemory();
    if (lines == NULL || weights == NULL) goto done;
    char *weight = PyBytes_AsString(weights);
    for (Py_ssize_t i = 0; i < count; i++) {
        const char *term = PyUnicode_AsUTF8AndSize(PyList_GetItem(self->terms, order[i]), &length);
        memcpy(here, term, length);
        here += length;
        *here++ = '\n';
        double its = self->counts[order[i]];
        unsigned char part = rounded(step * its / (its + usual));
        weight[i] = (char)(part ? part : 1);
    }
    text = PyUnicode_DecodeUTF8(lines, count ? here - lines - 1 : 0, NULL);
done:
    PyMem_Free(lines);
    if (text == NULL) return Py_XDECREF(weights), NULL;
    return Py_BuildValue("(NN)", text, weights);
}

static PyObject *counter_weigh(PyObject *object, PyObject *args) {
    TermCounter *self = (TermCounter *)object;
    Py_buffer text;
    double k1, slope, usual_length, step;
    Py_ssize_t most, all = 0, count = 0;
    if (!PyArg_ParseTuple(args, "y*ddddn:weigh", &text, &k1, &slope, &usual_length, &step, &most)) return NULL;
    if (self->busy) { /* another thread is in the middle of a text */
        PyBuffer_Release(&text);
        Py_RETURN_NONE;
    }
    self->busy = 1;
    uint32_t *order = NULL;
    PyObject *found = NULL;
    int failed = self->used >= self->most && counter_clear(self) < 0;
    failed = failed || count_words(self, &text, &order, &count) < 0;
    for (Py_ssize_t i = 0; i < count; i++) all += self->counts[order[i]];
    if (!failed && count > most) {
        found = Py_NewRef(Py_None);
    } else if (!failed) {
        double usual = k1 * (1 - slope + slope * (double)all / usual_length);
        found = weigh_counts(self, order, count, usual, step);
    }
    for (Py_ssize_t i = 0; i < count; i++) self->counts[order[i]] = 0;
    self->busy = 0;
    free(order);
    PyBuffer_Release(&text);
    return found;
}

/* Two terms side by side, and how often. */
typedef struct {
    uint32_t first, second, count;
} Pair;

/* The pairs of a text in the order in which they first occur, and a hash table of their numbers plus one. */
typedef struct {
    Pair *pairs;
    uint32_t *places;
    Py_ssize_t used, room;
} Pairs;

static Py_ssize_t place_of_pair(const Pairs *all, uint32_t first, uint32_t second) {
    uint64_t mixed = (hash_seed ^ first) * 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ (mixed >> 29) ^ second) * 0x9E3779B97F4A7C15u;
    return (Py_ssize_t)(mixed >> 32) & (all->room - 1);
}

static int note_pair(Pairs *all, uint32_t first, uint32_t second) {
    if (2 * (all->used + 1) > all->room) {
        Py_ssize_t room = all->room ? 2 * all->room : 256;
        Pair *pairs = realloc(all->pairs, room / 2 * sizeof *pairs);
        if (pairs != NULL) all->pairs = pairs;
        uint32_t *places = calloc(room, sizeof *places);
        if (pairs == NULL || places == NULL) return free(places), PyErr_NoMemory(), -1;
        free(all->places);
        all->places = places;
        all->room = room;
        for (Py_ssize_t i = 0; i < all->used; i++) {
            Py_ssize_t at = place_of_pair(all, pairs[i].first, pairs[i].second);
            while (places[at]) at = (at + 1) & (room - 1);
            places[at] = (uint32_t)i + 1;
        }
    }
    Py_ssize_t at = place_of_pair(all, first, second);
    for (; all->places[at]; at = (at + 1) & (all->room - 1)) {
        Pair *pair = &all->pairs[all->places[at] - 1];
        if (pair->first == first && pair->second == second) return pair->count++, 0;
    }
    all->pairs[all->used] = (Pair){first, second, 1};
    all->places[at] = (uint32_t)++all->used;
    return 0;
}

/* Adds the pairs of a text: words side by side once function words are left out. */
static int count_pairs(TermCounter *self, const char *here, Py_ssize_t length, Pairs *all) {
    const char *end = here + length;
    const Form *word;
    for (Py_ssize_t before = -1;;) {
        if (next_word(self, &here, end, &word) < 0) return -1;
        if (word == NULL) return 0;
        if (word->function_word) continue;
        uint32_t term = word->term - 1;
        if (before >= 0 && note_pair(all, (uint32_t)before, term) < 0) return -1;
        before = term;
    }
}

static PyObject *weigh_pairs(TermCounter *self, const Pairs *all, double usual, double step) {
    Py_ssize_t size = 0, length;
    for (Py_ssize_t i = 0; i < all->used; i++)
        for (int second = 0; second < 2; second++) {
            uint32_t term = second ? all->pairs[i].second : all->pairs[i].first;
            if (PyUnicode_AsUTF8AndSize(PyList_GetItem(self->terms, term), &length) == NULL) return NULL;
            size += length + 1;
        }
    char *lines = PyMem_Malloc(size + 1), *here = lines;
    PyObject *weights = PyBytes_FromStringAndSize(NULL, all->used), *text = NULL;
    if (lines == NULL) PyErr_NoMemory();
    if (lines == NULL || weights == NULL) goto done;
    char *weight = PyBytes_AsString(weights);
    for (Py_ssize_t i = 0; i < all->used; i++) {
        for (int second = 0; second < 2; second++) {
            uint32_t number = second ? all->pairs[i].second : all->pairs[i].first;
            const char *term = PyUnicode_AsUTF8AndSize(PyList_GetItem(self->terms, number), &length);
            memcpy(here, term, length);
            here += length;
            *here++ = second ? '\n' : ' ';
        }
        double its = all->pairs[i].count;
        unsigned char part = rounded(step * its / (its + usual));
        weight[i] = (char)(part ? part : 1);
    }
    text = PyUnicode_DecodeUTF8(lines, all->used ? here - lines - 1 : 0, NULL);
done:
    PyMem_Free(lines);
    if (text == NULL) return Py_XDECREF(weights), NULL;
    return Py_BuildValue("(NN)", text, weights);
}

static PyObject *counter_weigh_pairs(PyObject *object, PyObject *args) {
    TermCounter *self = (TermCounter *)object;
    PyObject *texts, *found = NULL;
    double k1, slope, usual_length, step, all = 0;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "O!ddddn:weigh_pairs", &PyList_Type, &texts, &k1, &slope, &usual_length, &step, &most))
        return NULL;
    if (self->busy) Py_RETURN_NONE;
    self->busy = 1;
    Pairs pairs = {NULL, NULL, 0, 0};
    int failed = self->used >= self->most && counter_clear(self) < 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_Size(texts); i++) {
        PyObject *text = Py_NewRef(PyList_GetItem(texts, i));
        char *start;
        Py_ssize_t length;
        failed = PyBytes_AsStringAndSize(text, &start, &length) < 0 || count_pairs(self, start, length, &pairs) < 0;
        Py_DECREF(text);
    }
    for (Py_ssize_t i = 0; i < pairs.used; i++) all += pairs.pairs[i].count;
    if (!failed && pairs.used > most) {
        found = Py_NewRef(Py_None);
    } else if (!failed) {
        found = weigh_pairs(self, &pairs, k1 * (1 - slope + slope * all / usual_length), step);
    }
    self->busy = 0;
    free(pairs.pairs);
    free(pairs.places);
    return found;
}

static PyMethodDef counter_methods[] = {
    {"weigh", counter_weigh, METH_VARARGS, NULL},
    {"weigh_pairs", counter_weigh_pairs, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot counter_slots[] = {
    {Py_tp_new, counter_new},
    {Py_tp_dealloc, counter_dealloc},
    {Py_tp_methods, counter_methods},
    {0, NULL},
};

static PyType_Spec counter_spec = {
    "evolvable_store._scoring.TermCounter", sizeof(TermCounter), 0, Py_TPFLAGS_DEFAULT, counter_slots};

typedef struct {
    uint32_t document, term;
    uint8_t field, weight;
} Noted;

typedef struct {
    size_t start; /* in the letters */
    uint32_t length, hash, count, first; /* of its postings, once they are sorted */
} GatheredTerm;

typedef struct {
    const char *start;
    uint32_t length, term;
} SortedTerm;

/* What stands before the term, the places and the weights of an entry. */
typedef struct {
    uint32_t block;
    uint16_t length; /* of the term */
    uint8_t field, count;
} EntryHead;

enum { ENTRY_HEAD = 8 };

typedef struct {
    uint32_t bucket, size;
    size_t start; /* in the bytes of the entries */
} Entry;

/* The postings of many documents. A term is kept once, as bytes. */
typedef struct {
    Noted *noted;
    long long *documents;
    GatheredTerm *terms;
    uint32_t *places; /* a hash table of numbers of terms, plus one; at most half of it is full */
    char *letters, *entry_bytes;
    Entry *entries;
    PyObject *rows;
    size_t letters_used, letters_room, entry_used, entry_bytes_room;
    Py_ssize_t used, room, document_count, document_room, term_count, term_room, place_room, entry_count, entry_room;
    int block_size, most, buckets;
} Gathered;

/* Makes room for one more element. */
static int reserve(void **array, Py_ssize_t used, Py_ssize_t *room, size_t size) {
    if (used < *room) return 0;
    Py_ssize_t more = *room ? 2 * *room : 4096;
    void *longer = more < UINT32_MAX / 2 ? realloc(*array, more * size) : NULL;
    if (longer == NULL) return PyErr_NoMemory(), -1;
    *array = longer;
    *room = more;
    return 0;
}

/* Makes room for so many more bytes. */
static int make_room(char **bytes, size_t used, size_t *room, size_t more) {
    if (used + more <= *room) return 0;
    size_t wanted = *room ? 2 * *room : 65536;
    while (wanted < used + more) wanted *= 2;
    char *longer = realloc(*bytes, wanted);
    if (longer == NULL) return PyErr_NoMemory(), -1;
    *bytes = longer;
    *room = wanted;
    return 0;
}

static int grow_places(Gathered *all) {
    Py_ssize_t room = all->place_room ? 2 * all->place_room : 8192;
    uint32_t *places = calloc(room, sizeof *places);
    if (places == NULL) return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < all->term_count; i++) {
        Py_ssize_t at = all->terms[i].hash & (room - 1);
        while (places[at]) at = (at + 1) & (room - 1);
        places[at] = (uint32_t)i + 1;
    }
    free(all->places);
    all->places = places;
    all->place_room = room;
    return 0;
}

/* Adds a term that is not known yet, at a free place of the table. */
static int add_term(Gathered *all, Py_ssize_t at, const char *start, size_t length, uint32_t hash) {
    if (reserve((void **)&all->terms, all->term_count, &all->term_room, sizeof *all->terms) < 0) return -1;
    if (make_room(&all->letters, all->letters_used, &all->letters_room, length) < 0) return -1;
    memcpy(all->letters + all->letters_used, start, length);
    all->terms[all->term_count] = (GatheredTerm){all->letters_used, (uint32_t)length, hash, 0, 0};
    all->letters_used += length;
    all->places[at] = (uint32_t)++all->term_count;
    return 0;
}

static int note_term(Gathered *all, const char *start, size_t length, int field, uint8_t weight) {
    uint64_t mixed = hash_seed;
    for (size_t i = 0; i < length; i++) {
        mixed = (mixed ^ (unsigned char)start[i]) * 0x9E3779B97F4A7C15u;
        mixed ^= mixed >> 29;
    }
    uint32_t hash = (uint32_t)(mixed ^ (mixed >> 32));
    if (length >= UINT32_MAX) return PyErr_SetString(PyExc_ValueError, "a term is too long"), -1;
    if (reserve((void **)&all->noted, all->used, &all->room, sizeof *all->noted) < 0) return -1;
    if (2 * all->term_count >= all->place_room && grow_places(all) < 0) return -1;
    Py_ssize_t mask = all->place_room - 1, at = hash & mask;
    for (; all->places[at]; at = (at + 1) & mask) {
        GatheredTerm *its = &all->terms[all->places[at] - 1];
        if (its->hash != hash || its->length != length || memcmp(all->letters + its->start, start, length)) continue;
        break;
    }
    if (!all->places[at] && add_term(all, at, start, length, hash) < 0) return -1;
    uint32_t term = all->places[at] - 1;
    all->terms[term].count++;
    all->noted[all->used++] = (Noted){(uint32_t)all->document_count - 1, term, (uint8_t)field, weight};
    return 0;
}

static int check_tuple(PyObject *object) {
    if (PyTuple_Check(object)) return 0;
    PyErr_SetString(PyExc_TypeError, "a document and a field are tuples");
    return -1;
}

/* Notes the terms of one field, which are given as one text with a line for each. */
static int note_field(Gathered *all, PyObject *given) {
    int field, failed = 0;
    PyObject *text;
    Py_buffer weights;
    Py_ssize_t size;
    if (check_tuple(given) < 0 || !PyArg_ParseTuple(given, "iUy*", &field, &text, &weights)) return -1;
    const char *start = PyUnicode_AsUTF8AndSize(text, &size), *end = start ? start + size : NULL;
    if (start == NULL) failed = 1;
    else if (field < 0 || field > 63) failed = (PyErr_SetString(PyExc_ValueError, "there is no such field"), 1);
    for (Py_ssize_t i = 0; !failed && i < weights.len && start <= end; i++) {
        const char *line = memchr(start, '\n', end - start);
        size_t length = (line ? line : end) - start;
        failed = note_term(all, start, length, field, ((const uint8_t *)weights.buf)[i]) < 0;
        start = line ? line + 1 : end + 1;
    }
    PyBuffer_Release(&weights);
    return failed ? -1 : 0;
}

static int note_document(Gathered *all, PyObject *document) {
    long long id;
    PyObject *fields;
    if (check_tuple(document) < 0 || !PyArg_ParseTuple(document, "LO!", &id, &PyList_Type, &fields)) return -1;
    if (id < 0) return PyErr_SetString(PyExc_ValueError, "no document has such a number"), -1;
    if (reserve((void **)&all->documents, all->document_count, &all->document_room, sizeof *all->documents) < 0)
        return -1;
    all->documents[all->document_count++] = id;
    for (Py_ssize_t i = 0; i < PyList_Size(fields); i++)
        if (note_field(all, PyList_GetItem(fields, i)) < 0) return -1;
    return 0;
}

/* Sorts the postings by term; those of a term stay in their order. */
static int sort_postings(Gathered *all) {
    Noted *sorted = malloc((all->used + 1) * sizeof *sorted);
    if (sorted == NULL) return PyErr_NoMemory(), -1;
    uint32_t first = 0;
    for (Py_ssize_t i = 0; i < all->term_count; i++) {
        all->terms[i].first = first;
        first += all->terms[i].count;
        all->terms[i].count = 0;
    }
    for (Py_ssize_t i = 0; i < all->used; i++) {
        GatheredTerm *its = &all->terms[all->noted[i].term];
        sorted[its->first + its->count++] = all->noted[i];
    }
    free(all->noted);
    all->noted = sorted;
    return 0;
}

/* How many of the postings from `here` on are of its field and block. */
static Py_ssize_t count_row(const Gathered *all, const Noted *here, const Noted *end, long long block) {
    Py_ssize_t count = 0;
    for (const Noted *its = here; its < end; its++)
        count += its->field == here->field && all->documents[its->document] / all->block_size == block;
    return count;
}

/* Writes the places and the weights of these. */
static void fill_row(
    const Gathered *all, const Noted *here, const Noted *end, long long block, char *places, char *weights) {
    for (const Noted *its = here; its < end; its++) {
        long long document = all->documents[its->document];
        if (its->field != here->field || document / all->block_size != block) continue;
        uint16_t within = (uint16_t)(document % all->block_size);
        memcpy(places, &within, sizeof within);
        places += sizeof within;
        *weights++ = (char)its->weight;
    }
}

/* Appends them to the rows; makes the term when it is the first of its rows. */
static int add_row(Gathered *all, const SortedTerm *sorted, PyObject **term, const Noted *here, const Noted *end,
                   long long block, Py_ssize_t count) {
    if (*term == NULL && (*term = PyUnicode_DecodeUTF8(sorted->start, sorted->length, NULL)) == NULL) return -1;
    PyObject *places = PyBytes_FromStringAndSize(NULL, 2 * count), *weights = PyBytes_FromStringAndSize(NULL, count);
    PyObject *row = places && weights ? Py_BuildValue("OiLOO", *term, here->field, block, places, weights) : NULL;
    int failed = row == NULL;
    if (!failed) {
        fill_row(all, here, end, block, PyBytes_AsString(places), PyBytes_AsString(weights));
        failed = PyList_Append(all->rows, row) < 0;
    }
    Py_XDECREF(places);
    Py_XDECREF(weights);
    Py_XDECREF(row);
    return failed ? -1 : 0;
}

static uint32_t crc32_of(const char *start, size_t length) {
    uint32_t rest = 0xFFFFFFFFu;
    for (size_t i = 0; i < length; i++) {
        rest ^= (unsigned char)start[i];
        for (int bit = 0; bit < 8; bit++) rest = rest >> 1 ^ (0xEDB88320u & (0u - (rest & 1)));
    }
    return ~rest;
}

/* Appends them to the entries of rare terms, as rare_postings.py describes those. */
static int add_entry(Gathered *all, const SortedTerm *sorted, const Noted *here, const Noted *end, long long block,
                     Py_ssize_t count) {
    size_t size = ENTRY_HEAD + sorted->length + 3 * count;
    if (reserve((void **)&all->entries, all->entry_count, &all->entry_room, sizeof *all->entries) < 0) return -1;
    if (make_room(&all->entry_bytes, all->entry_used, &all->entry_bytes_room, size) < 0) return -1;
    char *start = all->entry_bytes + all->entry_used;
    EntryHead head = {(uint32_t)block, (uint16_t)sorted->length, (uint8_t)here->field, (uint8_t)count};
    memcpy(start, &head, ENTRY_HEAD);
    memcpy(start + ENTRY_HEAD, sorted->start, sorted->length);
    char *places = start + ENTRY_HEAD + sorted->length;
    fill_row(all, here, end, block, places, places + 2 * count);
    uint32_t bucket = crc32_of(sorted->start, sorted->length) % (uint32_t)all->buckets;
    all->entries[all->entry_count++] = (Entry){bucket, (uint32_t)size, all->entry_used};
    all->entry_used += size;
    return 0;
}

static int add_rows(Gathered *all, const SortedTerm *sorted) {
    PyObject *term = NULL;
    const Noted *start = all->noted + all->terms[sorted->term].first, *end = start + all->terms[sorted->term].count;
    uint64_t fields = 0;
    int failed = 0;
    for (const Noted *its = start; its < end; its++) fields |= 1ull << its->field;
    for (int field = 0; field < 64 && fields >> field && !failed; field++) {
        long long block = -1;
        if (!(fields >> field & 1)) continue;
        for (const Noted *its = start; its < end && !failed; its++) {
            if (its->field != field || all->documents[its->document] / all->block_size == block) continue;
            block = all->documents[its->document] / all->block_size;
            Py_ssize_t count = count_row(all, its, end, block);
            if (count <= all->most && sorted->length <= UINT16_MAX && block <= UINT32_MAX)
                failed = add_entry(all, sorted, its, end, block, count) < 0;
            else
                failed = add_row(all, sorted, &term, its, end, block, count) < 0;
        }
    }
    Py_XDECREF(term);
    return failed ? -1 : 0;
}

/* Returns a list of the buckets with the bytes of their entries. */
static PyObject *entries_by_bucket(const Gathered *all) {
    size_t *sizes = calloc(all->buckets, sizeof *sizes);
    char **ends = calloc(all->buckets, sizeof *ends);
    PyObject *found = PyList_New(0);
    int failed = sizes == NULL || ends == NULL || found == NULL;
    if (sizes == NULL || ends == NULL) PyErr_NoMemory();
    for (Py_ssize_t i = 0; !failed && i < all->entry_count; i++) sizes[all->entries[i].bucket] += all->entries[i].size;
    for (int bucket = 0; !failed && bucket < all->buckets; bucket++) {
        if (!sizes[bucket]) continue;
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, sizes[bucket]);
        PyObject *pair = bytes ? Py_BuildValue("iO", bucket, bytes) : NULL;
        failed = pair == NULL || PyList_Append(found, pair) < 0;
        if (!failed) ends[bucket] = PyBytes_AsString(bytes);
        Py_XDECREF(bytes);
        Py_XDECREF(pair);
    }
    for (Py_ssize_t i = 0; !failed && i < all->entry_count; i++) {
        const Entry *its = &all->entries[i];
        memcpy(ends[its->bucket], all->entry_bytes + its->start, its->size);
        ends[its->bucket] += its->size;
    }
    free(sizes);
    free(ends);
    if (failed) Py_CLEAR(found);
    return found;
}

/* UTF-8 sorts as its code points do, and as SQLite does. */
static int compare_terms(const void *one, const void *other) {
    const SortedTerm *a = one, *b = other;
    int order = memcmp(a->start, b->start, a->length < b->length ? a->length : b->length);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

static PyObject *gather_postings(PyObject *module, PyObject *args) {
    PyObject *documents, *found = NULL;
    Gathered all = {0};
    if (!PyArg_ParseTuple(
            args, "O!iii:gather_postings", &PyList_Type, &documents, &all.block_size, &all.most, &all.buckets))
        return NULL;
    if (all.block_size < 1 || all.block_size > 1 << 16) {
        PyErr_SetString(PyExc_ValueError, "a row has 1 to 65536 places");
        return NULL;
    }
    if (all.most < 0 || all.most > UINT8_MAX || all.buckets < 1) {
        PyErr_SetString(PyExc_ValueError, "an entry has at most 255 places, and stands in a bucket");
        return NULL;
    }
    SortedTerm *sorted = NULL;
    for (Py_ssize_t i = 0; i < PyList_Size(documents); i++)
        if (note_document(&all, PyList_GetItem(documents, i)) < 0) goto done;
    if (sort_postings(&all) < 0) goto done;
    sorted = malloc((all.term_count + 1) * sizeof *sorted);
    if (sorted == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < all.term_count; i++)
        sorted[i] = (SortedTerm){all.letters + all.terms[i].start, all.terms[i].length, (uint32_t)i};
    qsort(sorted, all.term_count, sizeof *sorted, compare_terms);
    all.rows = PyList_New(0);
    if (all.rows == NULL) goto done;
    for (Py_ssize_t i = 0; i < all.term_count; i++)
        if (add_rows(&all, &sorted[i]) < 0) goto done;
    PyObject *entries = entries_by_bucket(&all);
    if (entries != NULL) found = Py_BuildValue("ON", all.rows, entries);
done:
    free(sorted);
    free(all.noted);
    free(all.documents);
    free(all.terms);
    free(all.places);
    free(all.letters);
    free(all.entries);
    free(all.entry_bytes);
    Py_XDECREF(all.rows);
    return found;
}

/* Appends what one entry says to a list. */
static int add_found(PyObject *found, const EntryHead *head, const char *term) {
    const char *places = term + head->length;
    PyObject *row = Py_BuildValue(
        "s#iIy#y#", term, (Py_ssize_t)head->length, (int)head->field, (unsigned int)head->block, places,
        (Py_ssize_t)2 * head->count, places + 2 * head->count, (Py_ssize_t)head->count);
    int failed = row == NULL || PyList_Append(found, row) < 0;
    Py_XDECREF(row);
    return failed ? -1 : 0;
}

static PyObject *read_entries(PyObject *module, PyObject *args) {
    Py_buffer data;
    const char *wanted = NULL;
    Py_ssize_t length = 0;
    if (!PyArg_ParseTuple(args, "y*|z#:read_entries", &data, &wanted, &length)) return NULL;
    const char *here = data.buf, *end = here + data.len;
    PyObject *found = PyList_New(0);
    int failed = found == NULL;
    while (!failed && here < end) {
        EntryHead head;
        size_t size = ENTRY_HEAD;
        if ((size_t)(end - here) >= ENTRY_HEAD) {
            memcpy(&head, here, ENTRY_HEAD);
            size += head.length + 3 * (size_t)head.count;
        }
        if ((size_t)(end - here) < size) {
            PyErr_SetString(PyExc_ValueError, "an entry is cut off");
            failed = 1;
        } else if (wanted == NULL || (head.length == length && !memcmp(here + ENTRY_HEAD, wanted, length))) {
            failed = add_found(found, &head, here + ENTRY_HEAD) < 0;
        }
        here += failed ? 0 : size;
    }
    PyBuffer_Release(&data);
    if (failed) Py_CLEAR(found);
    return found;
}

/* The scan */

enum { BEGINS = 1 << 12 };

typedef struct {
    const char *letters; /* of a text in `parts` */
    Py_ssize_t length;
    uint16_t next; /* the number, plus one, of another part that begins like it; 0: there is none */
} Part;

/* Texts that are looked for, all in one pass. */
typedef struct {
    PyObject_HEAD
    PyObject *parts;
    Part *each;
    Py_ssize_t count;
    uint16_t first[BEGINS]; /* by `begin_of`: the number, plus one, of a part that begins so; 0: none does */
    uint16_t single; /* the same for the parts of one byte */
} PartFinder;

/* The place of two bytes in the table: 12 bits, in which pairs of ASCII letters are nearly all apart. Dozens of finders
   are used in turn, so that their tables must fit the processor's cache together. */
static unsigned begin_of(const char *letters) {
    return ((unsigned char)letters[0] << 5 ^ (unsigned char)letters[1]) & (BEGINS - 1);
}

static int add_part(PartFinder *self, Py_ssize_t number) {
    Part *part = &self->each[number];
    part->letters = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(self->parts, number), &part->length);
    if (part->letters == NULL) return -1;
    if (part->length == 0) return PyErr_SetString(PyExc_ValueError, "a part is not empty"), -1;
    uint16_t *first = part->length == 1 ? &self->single : &self->first[begin_of(part->letters)];
    part->next = *first;
    *first = (uint16_t)(number + 1);
    return 0;
}

static PyObject *finder_new(PyTypeObject *type, PyObject *args, PyObject *options) {
    static char *names[] = {"parts", NULL};
    PyObject *parts;
    if (!PyArg_ParseTupleAndKeywords(args, options, "O!", names, &PyTuple_Type, &parts)) return NULL;
    Py_ssize_t count = PyTuple_Size(parts);
    if (count >= 1 << 16) {
        PyErr_SetString(PyExc_ValueError, "at most 65535 parts are looked for");
        return NULL;
    }
    PartFinder *self = (PartFinder *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    self->parts = Py_NewRef(parts);
    self->count = count;
    self->each = calloc(count + 1, sizeof *self->each);
    if (self->each == NULL) PyErr_NoMemory();
    for (Py_ssize_t number = 0; self->each != NULL && number < count; number++)
        if (add_part(self, number) < 0) break;
    if (PyErr_Occurred()) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void finder_dealloc(PyObject *object) {
    PartFinder *self = (PartFinder *)object;
    PyTypeObject *type = Py_TYPE(object);
    Py_XDECREF(self->parts);
    free(self->each);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyObject *finder_find(PyObject *object, PyObject *text) {
    PartFinder *self = (PartFinder *)object;
    Py_ssize_t length;
    const char *letters = PyUnicode_AsUTF8AndSize(text, &length);
    if (letters == NULL) return NULL;
    PyObject *found = PyList_New(0);
    for (uint16_t one = self->single; found != NULL && one; one = self->each[one - 1].next) {
        if (memchr(letters, self->each[one - 1].letters[0], length) == NULL) continue;
        if (PyList_Append(found, PyTuple_GetItem(self->parts, one - 1)) < 0) Py_CLEAR(found);
    }
    uint8_t *there = NULL; /* most texts have none */
    for (Py_ssize_t at = 0; found != NULL && at + 1 < length; at++) {
        for (uint16_t one = self->first[begin_of(letters + at)]; one; one = self->each[one - 1].next) {
            const Part *part = &self->each[one - 1];
            if (part->length > length - at || (there != NULL && there[one - 1])) continue;
            if (memcmp(letters + at, part->letters, part->length)) continue;
            if (there == NULL && (there = calloc(self->count, 1)) == NULL) PyErr_NoMemory();
            if (there == NULL || PyList_Append(found, PyTuple_GetItem(self->parts, one - 1)) < 0) {
                Py_CLEAR(found);
                break;
            }
            there[one - 1] = 1;
        }
    }
    free(there);
    return found;
}

static PyMethodDef finder_methods[] = {
    {"find", finder_find, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot finder_slots[] = {
    {Py_tp_new, finder_new},
    {Py_tp_dealloc, finder_dealloc},
    {Py_tp_methods, finder_methods},
    {0, NULL},
};

static PyType_Spec finder_spec = {
    "evolvable_store._scoring.PartFinder", sizeof(PartFinder), 0, Py_TPFLAGS_DEFAULT, finder_slots};

/* A word of a sentence in lower case, as a reader was given it, and what it is known as. */
typedef struct {
    char *letters; /* NULL in an empty place */
    Py_ssize_t length;
    uint64_t hash;
    PyObject *known;
} Word;

/* Reads sentences as the words that were met before. */
typedef struct {
    PyObject_HEAD
    PyObject *know;
    Word *words; /* a hash table; at most half of it is full */
    Py_ssize_t used, room;
} WordReader;

static void forget_words(WordReader *self) {
    for (Py_ssize_t at = 0; at < self->room; at++) {
        if (self->words[at].letters == NULL) continue;
        free(self->words[at].letters);
        Py_DECREF(self->words[at].known);
        self->words[at].letters = NULL;
    }
    self->used = 0;
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *options) {
    static char *names[] = {"know", "most", NULL};
    PyObject *know;
    Py_ssize_t most, room = 1024;
    if (!PyArg_ParseTupleAndKeywords(args, options, "On", names, &know, &most)) return NULL;
    while (room < 2 * most && room < 1 << 24) room *= 2;
    WordReader *self = (WordReader *)PyType_GenericAlloc(type, 0);
    if (self == NULL) return NULL;
    self->know = Py_NewRef(know);
    self->words = calloc(room, sizeof *self->words);
    if (self->words == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    self->room = room;
    return (PyObject *)self;
}

static void reader_dealloc(PyObject *object) {
    WordReader *self = (WordReader *)object;
    PyTypeObject *type = Py_TYPE(object);
    forget_words(self);
    free(self->words);
    Py_XDECREF(self->know);
    PyObject_Free(object);
    Py_DECREF(type);
}

/* Returns what a word is known as, a new reference. */
static PyObject *known_word(WordReader *self, const char *start, Py_ssize_t length) {
    uint64_t hash = hash_seed;
    for (Py_ssize_t i = 0; i < length; i++) {
        hash = (hash ^ (unsigned char)start[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    Py_ssize_t at = (Py_ssize_t)(hash >> 32) & (self->room - 1);
    for (; self->words[at].letters != NULL; at = (at + 1) & (self->room - 1)) {
        const Word *word = &self->words[at];
        if (word->hash == hash && word->length == length && !memcmp(word->letters, start, length))
            return Py_NewRef(word->known);
    }
    PyObject *known = PyObject_CallFunction(self->know, "s#", start, length);
    if (known == NULL) return NULL;
    char *letters = malloc(length);
    if (letters == NULL) return known; /* it is asked for again */
    if (2 * self->used >= self->room) forget_words(self);
    at = (Py_ssize_t)(hash >> 32) & (self->room - 1); /* the call may have added words */
    while (self->words[at].letters != NULL) at = (at + 1) & (self->room - 1);
    memcpy(letters, start, length);
    self->words[at] = (Word){letters, length, hash, Py_NewRef(known)};
    self->used++;
    return known;
}

static int is_small(char c) { return c >= 'a' && c <= 'z'; }

static int is_digit(char c) { return c >= '0' && c <= '9'; }

/* Decodes the character of a text in UTF-8 that is not ASCII. length: set to its bytes. */
static uint32_t wide_character(const unsigned char *at, Py_ssize_t *length) {
    *length = at[0] < 0xE0 ? 2 : at[0] < 0xF0 ? 3 : 4;
    uint32_t code = at[0] & (0xFF >> (*length + 1));
    for (Py_ssize_t i = 1; i < *length; i++) code = code << 6 | (at[i] & 0x3F);
    return code;
}

/* Returns the bytes of a letter that begins a word and may follow in one, 0 for another sign. */
static Py_ssize_t letter_at(const char *at, const char *end) {
    if (at >= end) return 0;
    if (is_small(*at)) return 1;
    if (!(*at & 0x80)) return 0;
    Py_ssize_t length;
    uint32_t code = wide_character((const unsigned char *)at, &length);
    return (code >= 0xC0 && code <= 0x24F) || (code >= 0x370 && code <= 0x52F) ? length : 0;
}

/* Returns whether a character is a sign that is a word by itself: 1, one of no word: 0, and -1 for one that may be a
   digit, of which Python knows. */
static int wide_sign(uint32_t code) {
    if ((code >= 0x3040 && code <= 0x30FF) || (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0xAC00 && code <= 0xD7AF))
        return 1;
    int plain = code <= 0x36F || (code >= 0x2000 && code <= 0xA4CF) || (code >= 0x1F300 && code <= 0x1FAFF);
    return plain ? 0 : -1;
}

/* Returns the end of the word that begins at a place, that place where none does, NULL where Python has to look. step:
   set to the bytes to go on by then. */
static const char *end_of_word(const char *at, const char *end, Py_ssize_t *step) {
    *step = 1;
    if (*at & 0x80 && !letter_at(at, end)) {
        int sign = wide_sign(wide_character((const unsigned char *)at, step));
        return sign < 0 ? NULL : sign ? at + *step : at;
    }
    Py_ssize_t length = letter_at(at + (*at == '.'), end);
    if (length) {
        for (const char *here = at + (*at == '.') + length;; here += length) {
            length = here < end && (is_digit(*here) || *here == '_' || *here == '\'' || *here == '-')
                ? 1 : letter_at(here, end);
            if (!length) return here;
        }
    }
    if (*at == '-') {
        const char *here = at + 1 + (at + 1 < end && at[1] == '-'), *first = here + 1;
        if (here >= end || !is_small(*here)) return at;
        for (here++; here < end && (is_small(*here) || *here == '-'); here++) {}
        return here > first ? here : at;
    }
    if (is_digit(*at)) {
        const char *here = at;
        while (here < end && is_digit(*here)) here++;
        return here < end && *here & 0x80 && !letter_at(here, end)
            && wide_sign(wide_character((const unsigned char *)here, step)) < 0 ? NULL : here;
    }
    return strchr("@~$|*<>", *at) != NULL && *at ? at + 1 : at;
}

static PyObject *reader_read(PyObject *object, PyObject *text) {
    WordReader *self = (WordReader *)object;
    Py_ssize_t length, step;
    const char *at = PyUnicode_AsUTF8AndSize(text, &length), *end = at + length;
    if (at == NULL) return NULL;
    PyObject *found = PyList_New(0);
    while (found != NULL && at < end) {
        const char *next = end_of_word(at, end, &step);
        if (next == NULL) {
            Py_DECREF(found);
            Py_RETURN_NONE;
        }
        if (next > at) {
            PyObject *known = known_word(self, at, next - at);
            if (known == NULL || PyList_Append(found, known) < 0) Py_CLEAR(found);
            Py_XDECREF(known);
        }
        at = next > at ? next : at + step;
    }
    return found;
}

static PyMethodDef reader_methods[] = {
    {"read", reader_read, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, reader_methods},
    {0, NULL},
};

static PyType_Spec reader_spec = {
    "evolvable_store._scoring.WordReader", sizeof(WordReader), 0, Py_TPFLAGS_DEFAULT, reader_slots};

enum { PLACES = 1 << 17 };

/* Appends the places of a tuple to others. Returns -1 with an error. */
static int gather_places(PyObject *its, uint32_t **places, Py_ssize_t *count, Py_ssize_t *room) {
    Py_ssize_t more = PyTuple_Size(its);
    if (more < 0) return -1;
    if (*count + more + 3 > *room) { /* and the pairs of a word */
        Py_ssize_t wider = 2 * (*count + more + 3);
        uint32_t *longer = realloc(*places, wider * sizeof *longer);
        if (longer == NULL) return PyErr_NoMemory(), -1;
        *places = longer;
        *room = wider;
    }
    for (Py_ssize_t i = 0; i < more; i++) {
        unsigned long place = PyLong_AsUnsignedLong(PyTuple_GetItem(its, i));
        if (place == (unsigned long)-1 && PyErr_Occurred()) return -1;
        (*places)[(*count)++] = (uint32_t)place;
    }
    return 0;
}

static PyObject *sum_places(PyObject *module, PyObject *args) {
    PyObject *words, *others;
    Py_buffer weights;
    unsigned int edge, pair, gap;
    if (!PyArg_ParseTuple(
            args, "O!O!y*III:sum_places", &PyList_Type, &words, &PyTuple_Type, &others, &weights, &edge, &pair, &gap))
        return NULL;
    uint32_t *places = NULL, before = edge, last = edge;
    Py_ssize_t count = 0, room = 0;
    int failed = weights.len != PLACES;
    if (failed) PyErr_SetString(PyExc_ValueError, "there are not 131072 weights");
    failed = failed || gather_places(others, &places, &count, &room) < 0;
    for (Py_ssize_t i = 0; !failed && i < PyList_Size(words); i++) {
        PyObject *word = PyList_GetItem(words, i), *its = PyTuple_GetItem(word, 1);
        failed = its == NULL || gather_places(its, &places, &count, &room) < 0;
        if (failed) break;
        uint32_t hash = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GetItem(word, 0));
        failed = PyErr_Occurred() != NULL;
        places[count++] = last * pair + hash;
        places[count++] = before * gap + hash;
        before = last;
        last = hash;
    }
    long sum = 0;
    if (!failed) {
        static uint8_t counted[PLACES / 8]; /* all 0 between two calls; nothing below runs another thread */
        const signed char *weight = weights.buf;
        places[count++] = last * pair + edge;
        for (Py_ssize_t i = 0; i < count; i++) {
            uint32_t place = places[i] & (PLACES - 1);
            if (counted[place >> 3] >> (place & 7) & 1) continue;
            counted[place >> 3] |= (uint8_t)(1 << (place & 7));
            sum += weight[place];
        }
        for (Py_ssize_t i = 0; i < count; i++) counted[(places[i] & (PLACES - 1)) >> 3] = 0;
    }
    free(places);
    PyBuffer_Release(&weights);
    return failed ? NULL : PyLong_FromLong(sum);
}

static int add_type(PyObject *module, const char *name, PyType_Spec *spec) {
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    if (type == NULL) return -1;
    int failed = PyModule_AddObjectRef(module, name, type);
    Py_DECREF(type);
    return failed;
}

static int executed(PyObject *module) {
    PyObject *some = PyUnicode_FromString("evolvable");
    if (some == NULL) return -1;
    hash_seed = (uint64_t)PyObject_Hash(some) * 0x9E3779B97F4A7C15u | 1;
    Py_DECREF(some);
    if (add_type(module, "Sums", &sums_spec) < 0 || add_type(module, "PartFinder", &finder_spec) < 0) return -1;
    if (add_type(module, "WordReader", &reader_spec) < 0) return -1;
    return add_type(module, "TermCounter", &counter_spec);
}

static PyMethodDef methods[] = {
    {"weights_at", weights_at, METH_VARARGS, NULL},
    {"gather_postings", gather_postings, METH_VARARGS, NULL},
    {"read_entries", read_entries, METH_VARARGS, NULL},
    {"sum_places", sum_places, METH_VARARGS, NULL},
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
