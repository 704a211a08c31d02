/* holder.c - a strategy for tests that holds the tables. */
#include "support/holder.h"

#include <stdlib.h>

#include "base/base.h"

void holder_init(struct holder *h, uint64_t seed, int n_stores)
{
    *h = (struct holder){.scramble = {.seed = seed, .n_stores = n_stores, .n_updaters = 1}};
    pthread_mutex_init(&h->lock, NULL);
}

void holder_free(struct holder *h)
{
    for (int i = 0; i < h->n_tables; i++) {
        free(h->table[i].id);
        free(h->table[i].rows);
        for (int k = 0; k < WEFT_MAX_SLOTS; k++)
            free(h->table[i].slot[k]);
    }
    pthread_mutex_destroy(&h->lock);
}

static struct held_table *find_table(struct holder *h, const weft_table *t)
{
    int i = 0;

    while (i < h->n_tables && strcmp(h->table[i].name, t->name) != 0)
        i++;
    if (i == HOLDER_TABLES)
        abort();
    if (i == h->n_tables)
        wf_snprintf(h->table[h->n_tables++].name, sizeof h->table[i].name, "%s", t->name);
    h->table[i].table = *t;
    return &h->table[i];
}

/* The row's position, -1 if it does not exist. */
static int64_t find_row(const struct held_table *t, int64_t id)
{
    for (int64_t i = 0; i < t->n; i++)
        if (t->id[i] == id)
            return i;
    return -1;
}

static weft_status count(struct holder *h)
{
    struct scramble *s = &h->scramble;

    return ++s->n_calls == s->fail_at ? wf_err(WEFT_EPEER, "call %d fails", s->fail_at) : WEFT_OK;
}

static weft_status need_rows(void *self, const weft_table *table, int64_t t, int64_t number,
                             int64_t n, const int64_t *ids, float *rows)
{
    struct holder *h = self;
    struct held_table *held;
    weft_status st;

    (void)t;
    pthread_mutex_lock(&h->lock);
    st = count(h);
    held = find_table(h, table);
    *(number < 0 ? &h->n_evaluated : &h->n_asked) += n;
    for (int64_t i = 0; i < n && !st; i++) {
        int64_t at = find_row(held, ids[i]);

        for (int64_t k = 0; k < i; k++)
            if (ids[k] == ids[i])
                h->scramble.bad = true; /* they must be distinct */
        if (at < 0)
            st = weft_table_init(table, 1, &ids[i], rows + i * table->width);
        else
            memcpy(rows + i * table->width, held->rows + at * table->width,
                   (size_t)table->width * sizeof *rows);
    }
    pthread_mutex_unlock(&h->lock);
    return st;
}

static weft_status ready_rows(void *self, const weft_table *table, int group, int64_t t,
                              int64_t number, int64_t n, const int64_t *ids, const float *rows,
                              void *event)
{
    struct holder *h = self;
    weft_status st;

    (void)t;
    pthread_mutex_lock(&h->lock);
    st = count(h);
    if (number < 0 || group < 0 || n < 1 || !rows || event)
        h->scramble.bad = true;
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= table->n_rows)
            h->scramble.bad = true;
    h->n_told += n;
    pthread_mutex_unlock(&h->lock);
    return st;
}

static void *grown(void *p, int64_t n, int64_t width)
{
    p = realloc(p, (size_t)(n * width) * sizeof(float));
    if (!p)
        abort();
    return p;
}

static weft_status new_row(struct held_table *t, int64_t id)
{
    int64_t width = t->table.width;

    if (t->n == t->cap) {
        t->cap = 2 * t->cap + 8;
        t->id = grown(t->id, t->cap, 2);
        t->rows = grown(t->rows, t->cap, width);
        for (int k = 0; k < t->table.n_slots; k++)
            t->slot[k] = grown(t->slot[k], t->cap, width);
    }
    t->id[t->n] = id;
    for (int k = 0; k < t->table.n_slots; k++)
        for (int64_t i = 0; i < width; i++)
            t->slot[k][t->n * width + i] = t->table.slot_init[k];
    return weft_table_init(&t->table, 1, &id, t->rows + t->n++ * width);
}

static weft_status rows_at(void *self, const weft_table *table, int64_t t, int64_t n,
                           const int64_t *ids, weft_table_memory *memory, int64_t *at)
{
    struct holder *h = self;
    struct held_table *held = find_table(h, table);
    weft_status st = count(h);

    (void)t;
    for (int64_t i = 0; i < n && !st; i++) {
        at[i] = find_row(held, ids[i]);
        if (at[i] < 0) {
            at[i] = held->n;
            st = new_row(held, ids[i]);
        }
    }
    memory->rows = held->rows;
    memcpy(memory->slot, held->slot, sizeof held->slot);
    return st;
}

static weft_status apply(void *self, weft_work *w, int64_t t)
{
    (void)self;
    (void)t;
    return weft_work_update(w);
}

/* The other calls are those of scramble. */
static weft_status open_holder(weft_ctx *ctx, void *arg, void **self, int *replicas, int *local,
                               int *first)
{
    return scramble_strategy.open(ctx, arg, self, replicas, local, first);
}

static weft_status compute(void *self, weft_work *w, int64_t t, int64_t first, int64_t n)
{
    return scramble_strategy.compute(self, w, t, first, n);
}

const weft_strategy holder_strategy = {.size = sizeof holder_strategy,
                                       .name = "holder",
                                       .doc = "for tests",
                                       .open = open_holder,
                                       .compute = compute,
                                       .need_rows = need_rows,
                                       .ready_rows = ready_rows,
                                       .rows_at = rows_at,
                                       .apply = apply};

/* ---- everything, as bytes -------------------------------------------------------------------- */

static size_t put(char *to, size_t at, const void *from, size_t n)
{
    if (to && n)
        memcpy(to + at, from, n);
    return at + n;
}

static size_t put_table(const struct held_table *t, const weft_table *table, char *to, size_t at)
{
    size_t bytes = (size_t)table->width * sizeof(float);
    float *row = malloc(bytes + 1);

    for (int k = -1; k < table->n_slots; k++)
        for (int64_t id = 0; id < table->n_rows; id++) {
            int64_t pos = t && to ? find_row(t, id) : -1;

            if (pos >= 0) {
                at = put(to, at, (k < 0 ? t->rows : t->slot[k]) + pos * table->width, bytes);
                continue;
            }
            for (int64_t i = 0; i < table->width && k >= 0; i++)
                row[i] = table->slot_init[k];
            if (k < 0 && to && weft_table_init(table, 1, &id, row))
                abort();
            at = put(to, at, row, bytes);
        }
    free(row);
    return at;
}

static size_t put_all(struct holder *h, const struct wf_store *s, char *to)
{
    size_t at = 0;

    for (int64_t i = 0; i < s->n_seg; i++) {
        const struct wf_segment *seg = &s->seg[i];
        size_t bytes = (size_t)wf_type_bytes(&seg->type);
        weft_table table = {.name = seg->name,
                            .n_rows = seg->type.dim[0],
                            .width = seg->type.dim[1],
                            .n_slots = seg->n_slots,
                            .inside = {s->ctx, seg}};

        if (seg->remote) {
            memcpy(table.slot_init, seg->slot_init, sizeof seg->slot_init);
            at = put_table(find_table(h, &table), &table, to, at);
            continue;
        }
        at = put(to, at, wf_store_data(s, seg), bytes);
        for (int k = 0; k < seg->n_slots; k++)
            at = put(to, at, wf_store_slot(s, seg, k), bytes);
    }
    return at;
}

char *holder_bytes(struct holder *h, const struct wf_store *s, size_t *n)
{
    char *bytes = malloc(put_all(h, s, NULL) + 1);

    *n = bytes ? put_all(h, s, bytes) : 0;
    return bytes;
}
