#include "follow.h"

#include <stdlib.h>

size_t run_place(const run *r, uint64_t label, const atom *a, int behind)
{
    size_t low = 0, high = r->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = r->label[middle] != label ? (r->label[middle] < label ? -1 : 1)
                                              : compare_atoms(&r->atoms[middle], a);
        if (order < 0 || (behind && order == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- tasks: a heap by label, and a table from labels to tasks ---- */

typedef struct {
    uint64_t label;
    int32_t was, pushed;           /* its level at the start; at least this it is now */
    uint8_t touched, held;         /* it gained or lost atoms; what held it may have moved */
} task;

typedef struct {
    const change *what;
    const forest *before;
    forest *after;
    task *tasks;
    size_t *heap, *table;          /* places in `tasks`; in the table 0 is nobody and p + 1 is p */
    moved *found;
    size_t count, waiting, done;
    size_t room;                   /* for tasks, a power of two; the table has twice as many slots */
    size_t spent, limit;           /* atoms that moved, and how many may */
    int32_t was, is;               /* of the move that dependents are being told of */
} work;

static size_t *slot_of(const work *w, uint64_t label)
{
    size_t last = 2 * w->room - 1, place = (size_t)((label * UINT64_C(0x9E3779B97F4A7C15)) >> 20) & last;
    while (w->table[place] && w->tasks[w->table[place] - 1].label != label)
        place = (place + 1) & last;
    return &w->table[place];
}

static int resized(void **array, size_t bytes)
{
    void *larger = realloc(*array, bytes);
    if (larger)
        *array = larger;
    return larger != NULL;
}

static int grow(work *w)
{
    size_t room = w->room ? 2 * w->room : 64;
    size_t *table = calloc(2 * room, sizeof *table);
    if (!table || !resized((void **)&w->tasks, room * sizeof *w->tasks) ||
        !resized((void **)&w->heap, room * sizeof *w->heap) || !resized((void **)&w->found, room * sizeof *w->found)) {
        free(table);
        return FAILED;
    }
    free(w->table);
    w->table = table;
    w->room = room;
    for (size_t i = 0; i < w->count; i++)
        *slot_of(w, w->tasks[i].label) = i + 1;
    return FOLLOWED;
}

/* The task of a rule, made if there is none: NULL without memory. It moves when others are made. */
static task *task_of(work *w, uint64_t label, int32_t was)
{
    if (w->count == w->room && grow(w))
        return NULL;
    size_t *slot = slot_of(w, label);
    if (*slot)
        return &w->tasks[*slot - 1];
    size_t mine = w->count++, place = w->waiting++;
    *slot = mine + 1;
    w->tasks[mine] = (task){label, was, NONE, 0, 0};
    for (; place && w->tasks[w->heap[(place - 1) / 2]].label > label; place = (place - 1) / 2)
        w->heap[place] = w->heap[(place - 1) / 2];
    w->heap[place] = mine;
    return &w->tasks[mine];
}

static task next_task(work *w)
{
    size_t first = w->heap[0], last = w->heap[--w->waiting], place = 0;
    for (size_t child = 1; child < w->waiting; child = 2 * place + 1) {
        if (child + 1 < w->waiting && w->tasks[w->heap[child + 1]].label < w->tasks[w->heap[child]].label)
            child++;
        if (w->tasks[w->heap[child]].label >= w->tasks[last].label)
            break;
        w->heap[place] = w->heap[child];
        place = child;
    }
    w->heap[place] = last;
    return w->tasks[first];
}

/* ---- one rule ---- */

static extent extent_of(const atom *a, uint64_t label, int32_t level)
{
    return (extent){box_of(a), label, label, level, level};
}

static int tell(void *context, const extent *found)
{
    work *w = context;
    task *t = w->count - w->done > w->limit ? NULL : task_of(w, found->first, found->most);
    if (!t)
        return w->count - w->done > w->limit ? TOO_MANY : FAILED;
    if (w->is >= found->most && w->is >= t->pushed)
        t->pushed = w->is + 1;
    t->held |= w->is < w->was && found->most == w->was + 1;
    return FOLLOWED;
}

/* Tell the rules behind an atom that its level moved. */
static int tell_dependents(work *w, const atom *a, uint64_t label, int32_t was, int32_t is)
{
    box where = box_of(a);
    w->was = was;
    w->is = is;
    if (w->spent++ >= w->limit)
        return TOO_MANY;
    return tree_each_behind(w->after->root[root_of(a)], &where, label, is, is < was ? was + 1 : INT32_MAX, tell, w);
}

typedef struct {
    work *w;
    uint64_t label;
    int32_t level;                 /* the highest found, or the one to give */
    int32_t enough;
} visit;

static int look_before(void *context, const atom *a)
{
    visit *v = context;
    box where = box_of(a);
    v->level = tree_highest_before(v->w->after->root[root_of(a)], &where, v->label, v->level, v->enough);
    return v->level >= v->enough;
}

static int give_level(void *context, const atom *a)
{
    visit *v = context;
    int32_t was;
    extent what = extent_of(a, v->label, NONE);
    if (tree_set_level(&v->w->after->root[root_of(a)], &what, v->level, &was))
        return FAILED;
    return was == v->level ? FOLLOWED : tell_dependents(v->w, a, v->label, was, v->level);
}

static int any_atom(void *context, const atom *a)
{
    (void)context;
    (void)a;
    return 1;
}

/* The rows of one rule in a run. */
static run rows_of(const run *all, uint64_t label)
{
    size_t low = 0, high = all->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (all->label[middle] < label)
            low = middle + 1;
        else
            high = middle;
    }
    while (high < all->count && all->label[high] == label)
        high++;
    return (run){all->label + low, all->atoms + low, high - low};
}

/* Whether an atom that the rule lost may have been the one that was held where it was. */
static int lost_its_hold(const work *w, const task *t, const run *gone)
{
    for (size_t i = 0; i < gone->count && t->was > 0; i++) {
        box where = box_of(&gone->atoms[i]);
        const node *root = w->before->root[root_of(&gone->atoms[i])];
        if (tree_highest_before(root, &where, t->label, t->was - 2, t->was - 1) >= t->was - 1)
            return 1;
    }
    return 0;
}

static int32_t level_now(work *w, const task *t, const run *gone, const run *come)
{
    list *now = w->what->now;
    visit v = {w, t->label, NONE, INT32_MAX};
    if (t->touched && !now->each(now, t->label, any_atom, NULL))
        return NONE;
    for (size_t i = 0; i < come->count; i++)
        look_before(&v, &come->atoms[i]);
    int32_t level = v.level + 1 > t->pushed ? v.level + 1 : t->pushed;
    if (level > t->was || (!t->held && !lost_its_hold(w, t, gone)))
        return level > t->was ? level : t->was;
    v.enough = t->was - 1;
    now->each(now, t->label, look_before, &v);
    return v.level + 1;
}

static int carry_out(work *w, const task *t, int32_t *is)
{
    const run none = {NULL, NULL, 0};
    run gone = t->touched ? rows_of(&w->what->gone, t->label) : none;
    run come = t->touched ? rows_of(&w->what->come, t->label) : none;
    *is = level_now(w, t, &gone, &come);
    visit v = {w, t->label, *is, 0};
    int result = FOLLOWED;
    for (size_t i = 0; !result && t->was != NONE && i < gone.count; i++)
        result = tell_dependents(w, &gone.atoms[i], t->label, t->was, NONE);
    if (*is == t->was)
        for (size_t i = 0; !result && i < come.count; i++)
            result = give_level(&v, &come.atoms[i]);
    else if (!result && *is != NONE)
        result = w->what->now->each(w->what->now, t->label, give_level, &v);
    return result;
}

/* ---- the change ---- */

static int exchange_atoms(work *w)
{
    const change *c = w->what;
    for (size_t i = 0; i < c->gone.count; i++) {
        extent what = extent_of(&c->gone.atoms[i], c->gone.label[i], NONE);
        if (tree_remove(&w->after->root[root_of(&c->gone.atoms[i])], &what))
            return FAILED;
    }
    for (size_t i = 0; i < c->come.count; i++) {
        extent what = extent_of(&c->come.atoms[i], c->come.label[i], NONE);
        if (tree_insert(&w->after->root[root_of(&c->come.atoms[i])], &what))
            return FAILED;
    }
    for (size_t i = 0; i < c->touched_count; i++) {
        task *t = task_of(w, c->touched[i].label, c->touched[i].was);
        if (!t)
            return FAILED;
        t->touched = 1;
    }
    return FOLLOWED;
}

static int run_through(work *w)
{
    int result = exchange_atoms(w);
    while (!result && w->waiting) {
        task t = next_task(w);
        moved m = {t.label, t.was, NONE};
        result = carry_out(w, &t, &m.is);
        w->found[w->done++] = m;
    }
    return result;
}

outcome follow(const forest *before, forest *after, const change *what, moved **found, size_t *found_count)
{
    work w = {.what = what, .before = before, .after = after, .limit = what->limit + what->gone.count + what->come.count};
    int result = run_through(&w);
    free(w.tasks);
    free(w.heap);
    free(w.table);
    *found = w.found;
    *found_count = w.done;
    return result;
}
