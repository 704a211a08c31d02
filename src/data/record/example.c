/* example.c - the wire format of Examples, parsed straight into columns.
 *
 * Example and SequenceExample have the same structure on the wire: field 1 is a map from names to
 * Features (features, context), field 2 a map from names to lists of Features (feature_lists). A
 * Feature has one of three lists. Writers usually lay out all records alike. So each entry of a map
 * is first tried in the common form (key, value, one packed list, each filling the enclosing one)
 * under the name that was at this position last time; anything else goes through the general
 * parser, which accepts everything that protobuf allows.
 *
 * Invariants: no byte outside the record is read; nothing is allocated for a record except room in
 * columns of varying lengths, which doubles; the contents of a list are checked against the
 * declared shape before they are written. */
#include "data/record/example.h"
#include "data/record/varint.h"

typedef const unsigned char *bytes;

/* Where a feature's values go. */
struct wf_example_dest {
    char *data;     /* items of the column; for a fixed shape: of the current element */
    int64_t cap;    /* items of room from `data` on */
    int64_t at;     /* items before the current element, if lengths vary */
    int64_t have;   /* items of the current element so far */
    int64_t n_step; /* of a sequence: steps, and items of each */
    int64_t step;
    int64_t seen; /* the last element that had this feature, + 1 */
};

enum { WIRE_VARINT, WIRE_64, WIRE_LEN, WIRE_GROUP, WIRE_GROUP_END, WIRE_32 };

static weft_status malformed(const struct wf_example_run *run, bytes p, const char *what)
{
    return wf_err(WEFT_EDATA, "not an Example: %s at byte %lld of the record", what,
                  (long long)(p - run->begin));
}

/* ---- the wire -------------------------------------------------------------------------------- */

struct field {
    uint32_t number;
    int wire;
    bytes p; /* the value; of WIRE_LEN n bytes */
    int64_t n;
    uint64_t v; /* of WIRE_VARINT */
};

/* The field at p; returns the position after it, or NULL with *st. */
static bytes next_field(const struct wf_example_run *run, bytes p, bytes end, struct field *f,
                        weft_status *st)
{
    bytes start = p;
    uint64_t tag, n = 0;

    p = wf_varint(p, end, &tag);
    if (!p || tag >> 3 == 0 || tag >> 3 > 0x1fffffff) {
        *st = malformed(run, start, "an invalid tag");
        return NULL;
    }
    f->number = (uint32_t)(tag >> 3);
    f->wire = (int)(tag & 7);
    switch (f->wire) {
    case WIRE_VARINT:
        f->p = p;
        p = wf_varint(p, end, &f->v);
        if (!p)
            *st = malformed(run, start, "an unterminated varint");
        return p;
    case WIRE_LEN:
        p = wf_varint(p, end, &n);
        if (!p || n > (uint64_t)(end - p)) {
            *st = malformed(run, start, "a length beyond the enclosing message");
            return NULL;
        }
        break;
    case WIRE_64: n = 8; break;
    case WIRE_32: n = 4; break;
    default: *st = malformed(run, start, "a group or an unknown wire type"); return NULL;
    }
    if (n > (uint64_t)(end - p)) {
        *st = malformed(run, start, "a truncated value");
        return NULL;
    }
    f->p = p;
    f->n = (int64_t)n;
    return p + n;
}

/* ---- putting values into columns ------------------------------------------------------------- */

static weft_status wrong_count(const struct wf_feature *f, int64_t n)
{
    return wf_err(WEFT_EDATA, "feature '%s': %lld%s values, but %lld are declared", f->name,
                  (long long)n, n > f->count ? " or more" : "", (long long)f->count);
}

/* Room for n more items; *to is where they go. */
static weft_status room(struct wf_example_run *run, int k, int64_t n, char **to)
{
    const struct wf_feature *f = &run->plan->f[k];
    struct wf_example_dest *d = &run->dest[k];
    int64_t need = d->at + d->have + n, cap;
    void *more = NULL;
    weft_status st;

    if (f->count >= 0 && n > f->count - d->have)
        return wrong_count(f, d->have + n);
    if (f->count < 0 && need > d->cap) {
        cap = wf_max_i64(need, 2 * d->cap);
        st = wf_block_alloc(run->b, cap * f->item, &more);
        if (st)
            return st;
        memcpy(more, d->data, (size_t)((d->at + d->have) * f->item));
        run->b->col[k].data = d->data = more;
        run->b->col[k].cap = d->cap = cap;
    }
    *to = d->data + (d->at + d->have) * f->item;
    d->have += n;
    return WEFT_OK;
}

static void floats_to(weft_dtype t, bytes p, int64_t n, char *to)
{
    float v;

    for (int64_t i = 0; i < n; i++) {
        memcpy(&v, p + 4 * i, 4);
        wf_set(to, t, i, v);
    }
}

static weft_status put_floats(struct wf_example_run *run, int k, bytes p, int64_t n_bytes)
{
    const struct wf_feature *f = &run->plan->f[k];
    char *to;
    weft_status st;

    if (n_bytes % 4)
        return malformed(run, p, "a truncated packed list of floats");
    st = room(run, k, n_bytes / 4, &to);
    if (st || !n_bytes)
        return st;
    if (f->type.dtype == WEFT_F32)
        memcpy(to, p, (size_t)n_bytes);
    else
        floats_to(f->type.dtype, p, n_bytes / 4, to);
    return WEFT_OK;
}

static weft_status narrow(const struct wf_feature *f, const int64_t *v, int64_t n, char *to)
{
    static const struct {
        weft_dtype t;
        int64_t lo, hi;
    } range[] = {{WEFT_I32, INT32_MIN, INT32_MAX}, {WEFT_U8, 0, 255}, {WEFT_I8, -128, 127}};
    weft_dtype t = f->type.dtype;

    if (t == WEFT_I64) {
        memcpy(to, v, (size_t)n * 8);
        return WEFT_OK;
    }
    for (int r = 0; r < WF_COUNT(range); r++)
        for (int64_t i = 0; range[r].t == t && i < n; i++)
            if (v[i] < range[r].lo || v[i] > range[r].hi)
                return wf_err(WEFT_EDATA, "feature '%s': %lld does not fit %s", f->name,
                              (long long)v[i], weft_dtype_name(t));
    for (int64_t i = 0; i < n; i++) {
        if (t == WEFT_BOOL)
            to[i] = v[i] != 0;
        else
            wf_set_int(to, t, i, v[i]);
    }
    return WEFT_OK;
}

/* A packed list of integers. */
static weft_status put_ints(struct wf_example_run *run, int k, bytes p, int64_t n_bytes)
{
    const struct wf_feature *f = &run->plan->f[k];
    struct wf_example_dest *d = &run->dest[k];
    int64_t max = 0, n;
    char *to;
    weft_status st;

    if (f->count >= 0 && f->type.dtype == WEFT_I64) {
        max = f->count - d->have;
        n = wf_varints(p, n_bytes, run->begin, (int64_t *)(void *)d->data + d->have, max);
        if (n >= 0 && n <= max) {
            d->have += n;
            return WEFT_OK;
        }
    } else {
        for (int64_t i = 0; i < n_bytes; i++)
            max += !(p[i] & 0x80);
        st = wf_grow(run->b->env->ctx, &run->wide, &run->cap_wide, max + 1, sizeof *run->wide);
        if (st)
            return st;
        n = wf_varints(p, n_bytes, run->begin, run->wide, max);
    }
    if (n < 0)
        return malformed(run, p, "an invalid packed list of integers");
    st = room(run, k, n, &to);
    return st ? st : narrow(f, run->wide, n, to);
}

static weft_status put_int(struct wf_example_run *run, int k, uint64_t v)
{
    int64_t x = (int64_t)v;
    char *to;
    weft_status st = room(run, k, 1, &to);

    return st ? st : narrow(&run->plan->f[k], &x, 1, to);
}

static weft_status put_text(struct wf_example_run *run, int k, bytes p, int64_t n)
{
    weft_str s = {(const char *)p, n};
    char *to;
    weft_status st = room(run, k, 1, &to);

    if (!st)
        memcpy(to, &s, sizeof s);
    return st;
}

/* ---- the general way ------------------------------------------------------------------------- */

static weft_status put_field(struct wf_example_run *run, int k, const struct field *x)
{
    if (x->number != 1)
        return WEFT_OK;
    switch (run->plan->f[k].list) {
    case WF_LIST_BYTES: return x->wire == WIRE_LEN ? put_text(run, k, x->p, x->n) : WEFT_OK;
    case WF_LIST_FLOAT:
        return x->wire == WIRE_LEN || x->wire == WIRE_32 ? put_floats(run, k, x->p, x->n) : WEFT_OK;
    default:
        return x->wire == WIRE_LEN      ? put_ints(run, k, x->p, x->n)
               : x->wire == WIRE_VARINT ? put_int(run, k, x->v)
                                        : WEFT_OK;
    }
}

/* The contents of a Feature: of several kinds of lists the last counts. *from is the first of the
 * lists that count. */
static weft_status last_list(const struct wf_example_run *run, bytes p, bytes end,
                             enum wf_list *list, bytes *from)
{
    struct field x;
    weft_status st = WEFT_OK;
    bytes at;

    for (*from = p; p < end;) {
        at = p;
        p = next_field(run, p, end, &x, &st);
        if (!p)
            return st;
        if (x.wire != WIRE_LEN || x.number > WF_LIST_INT64 || x.number == (uint32_t)*list)
            continue;
        *list = (enum wf_list)x.number;
        *from = at;
    }
    return WEFT_OK;
}

/* A Feature: its values go to feature k after the `start` items already there. *list is the kind
 * that came before, and is set to the kind it has; lists of one kind are joined. */
static weft_status parse_feature(struct wf_example_run *run, int k, bytes p, bytes end,
                                 int64_t start, enum wf_list *list)
{
    enum wf_list before = *list;
    struct field x, y;
    weft_status st = last_list(run, p, end, list, &p);

    if (st)
        return st;
    if (*list != before)
        run->dest[k].have = start;
    while (p < end && *list == run->plan->f[k].list) {
        p = next_field(run, p, end, &x, &st);
        if (x.wire != WIRE_LEN || x.number != (uint32_t)*list)
            continue;
        for (bytes q = x.p; q < x.p + x.n;) {
            q = next_field(run, q, x.p + x.n, &y, &st);
            if (q)
                st = put_field(run, k, &y);
            if (st)
                return st;
        }
    }
    return WEFT_OK;
}

static weft_status wrong_list(const struct wf_feature *f, enum wf_list list)
{
    static const char *const names[] = {"nothing", "bytes", "floats", "integers"};

    return wf_err(WEFT_EDATA, "feature '%s': holds %s, but %s is declared", f->name, names[list],
                  f->type.dtype == WEFT_STR ? "str" : weft_dtype_name(f->type.dtype));
}

/* One step of a sequence. */
static weft_status parse_step(struct wf_example_run *run, int k, bytes p, bytes end)
{
    const struct wf_feature *f = &run->plan->f[k];
    struct wf_example_dest *d = &run->dest[k];
    int64_t start = d->have, n;
    enum wf_list list = WF_LIST_NONE;
    weft_status st = parse_feature(run, k, p, end, start, &list);

    if (st)
        return st;
    if (list != WF_LIST_NONE && list != f->list)
        return wrong_list(f, list);
    n = d->have - start;
    if (f->steps_differ && !d->n_step)
        d->step = n;
    if (n != d->step || n % f->row)
        return wf_err(WEFT_EDATA, "feature '%s': step %lld has %lld values, not %lld", f->name,
                      (long long)d->n_step, (long long)n, (long long)d->step);
    d->n_step++;
    return WEFT_OK;
}

static weft_status parse_steps(struct wf_example_run *run, int k, bytes p, bytes end)
{
    struct field x;
    weft_status st = WEFT_OK;

    while (p < end && !st) {
        p = next_field(run, p, end, &x, &st);
        if (p && x.number == 1 && x.wire == WIRE_LEN)
            st = parse_step(run, k, x.p, x.p + x.n);
    }
    return st;
}

static int find(const struct wf_example *plan, bytes key, int64_t n, bool sequence)
{
    uint64_t at = wf_hash64(key, (size_t)n, sequence);

    for (;; at++) {
        int k = plan->slot[at & plan->slot_mask] - 1;

        if (k < 0 || (plan->f[k].name_n == n && plan->f[k].sequence == sequence &&
                      !memcmp(plan->f[k].name, key, (size_t)n)))
            return k;
    }
}

/* Feature k starts again in this element: if a key occurs twice, the last one counts. */
static void begin_feature(struct wf_example_run *run, int k)
{
    struct wf_example_dest *d = &run->dest[k];
    const struct wf_feature *f = &run->plan->f[k];

    d->have = d->n_step = 0;
    d->step = f->sequence && !f->steps_differ ? f->row : 0;
    run->n_seen += d->seen != run->i + 1;
    d->seen = run->i + 1;
}

static void unsee(struct wf_example_run *run, int k)
{
    run->dest[k].seen = 0;
    run->n_seen--;
}

static weft_status end_feature(struct wf_example_run *run, int k)
{
    const struct wf_feature *f = &run->plan->f[k];
    struct wf_example_dest *d = &run->dest[k];

    if (f->count >= 0 && d->have != f->count)
        return wrong_count(f, d->have);
    if (f->steps_differ && f->type.dim[0] >= 0 && d->n_step != f->type.dim[0])
        return wf_err(WEFT_EDATA, "feature '%s': %lld steps, but %lld are declared", f->name,
                      (long long)d->n_step, (long long)f->type.dim[0]);
    if (f->count < 0 && !f->sequence && d->have % f->row)
        return wf_err(WEFT_EDATA, "feature '%s': %lld values are not a multiple of rows of %lld",
                      f->name, (long long)d->have, (long long)f->row);
    return WEFT_OK;
}

/* An entry of a map, in any form. */
static weft_status parse_entry(struct wf_example_run *run, bytes p, bytes end, bool sequence,
                               int *found)
{
    struct field x, key = {.p = p};
    enum wf_list list = WF_LIST_NONE;
    weft_status st = WEFT_OK;
    int k;

    for (bytes q = p; q < end;) {
        q = next_field(run, q, end, &x, &st);
        if (!q)
            return st;
        if (x.number == 1 && x.wire == WIRE_LEN)
            key = x;
    }
    *found = k = find(run->plan, key.p, key.n, sequence);
    if (k < 0)
        return WEFT_OK;
    begin_feature(run, k);
    while (p < end) {
        p = next_field(run, p, end, &x, &st);
        if (x.number == 2 && x.wire == WIRE_LEN)
            st = sequence ? parse_steps(run, k, x.p, x.p + x.n)
                          : parse_feature(run, k, x.p, x.p + x.n, 0, &list);
        if (st)
            return st;
    }
    if (!sequence && list == WF_LIST_NONE) {
        unsee(run, k);
        return WEFT_OK;
    }
    if (!sequence && list != run->plan->f[k].list)
        return wrong_list(&run->plan->f[k], list);
    return end_feature(run, k);
}

/* ---- the usual way --------------------------------------------------------------------------- */

/* The n bytes after this tag and their length, if they are before `end`; otherwise NULL. */
static inline bytes enter(bytes p, bytes end, unsigned tag, int64_t *n)
{
    int64_t v;

    if (end - p < 2 || p[0] != tag)
        return NULL;
    v = p[1];
    p += 2;
    if (v & 0x80) {
        uint64_t more = 0;

        p = wf_varint(p, end, &more);
        if (!p || more >> 40)
            return NULL;
        v = (v & 0x7f) | (int64_t)(more << 7);
    }
    *n = v;
    return v <= end - p ? p : NULL;
}

static inline bool same_name(const struct wf_feature *f, bytes key, int64_t n)
{
    return f->name_n == n && !memcmp(f->name, key, (size_t)n);
}

/* An entry in the usual layout, of a feature that is not a sequence; *done is false if it is not,
 * and nothing has happened. */
static inline weft_status usual_entry(struct wf_example_run *run, bytes p, bytes end,
                                      int16_t *guess, bool *done)
{
    int64_t key_n, n;
    bytes key = enter(p, end, 0x0a, &key_n), q;
    const struct wf_feature *f;
    int k = *guess;
    weft_status st;

    *done = false;
    q = key ? enter(key + key_n, end, 0x12, &n) : NULL;
    if (!q || q + n != end)
        return WEFT_OK;
    if (k < 0 || !same_name(&run->plan->f[k], key, key_n)) {
        *guess = (int16_t)(k = find(run->plan, key, key_n, false));
        if (k < 0) {
            *done = true;
            return WEFT_OK;
        }
    }
    f = &run->plan->f[k];
    q = enter(q, end, (unsigned)f->list << 3 | WIRE_LEN, &n);
    if (!q || q + n != end)
        return WEFT_OK;
    q = enter(q, end, 0x0a, &n);
    if (!q || q + n != end)
        return WEFT_OK;
    *done = true;
    begin_feature(run, k);
    st = f->list == WF_LIST_INT64   ? put_ints(run, k, q, n)
         : f->list == WF_LIST_FLOAT ? put_floats(run, k, q, n)
                                    : put_text(run, k, q, n);
    return st ? st : end_feature(run, k);
}

/* ---- a record -------------------------------------------------------------------------------- */

static weft_status parse_map(struct wf_example_run *run, bytes p, bytes end, bool sequence)
{
    int16_t dummy = -1;
    struct field x;
    weft_status st = WEFT_OK;

    for (int64_t place = 0; p < end && !st; place++) {
        int16_t *guess = place < WF_EXAMPLE_ORDER ? &run->order[sequence][place] : &dummy;
        bool done = false;
        int64_t n;
        int k;
        bytes q = enter(p, end, 0x0a, &n);

        if (q && !sequence)
            st = usual_entry(run, q, q + n, guess, &done);
        if (done || st) {
            p = q + n;
            continue;
        }
        p = next_field(run, p, end, &x, &st);
        if (p && x.number == 1 && x.wire == WIRE_LEN)
            st = parse_entry(run, x.p, x.p + x.n, sequence, &k);
    }
    return st;
}

/* Values for features that the record does not have. */
static weft_status fill_missing(struct wf_example_run *run)
{
    for (int k = 0; k < run->plan->n; k++) {
        const struct wf_feature *f = &run->plan->f[k];
        struct wf_example_dest *d = &run->dest[k];
        char *to;
        weft_status st;

        if (d->seen == run->i + 1)
            continue;
        d->have = d->n_step = d->step = 0;
        if (!f->missing && f->count < 0)
            continue;
        if (!f->missing)
            return wf_err(WEFT_EDATA, "feature '%s' is missing and has no default", f->name);
        st = room(run, k, f->n_missing, &to);
        if (st)
            return st;
        memcpy(to, f->missing, (size_t)(f->n_missing * f->item));
        if (f->sequence) {
            d->step = f->row;
            d->n_step = f->row ? f->n_missing / f->row : 0;
        }
    }
    return WEFT_OK;
}

/* Closes element i in the columns of varying lengths. */
static void end_element(struct wf_example_run *run, int64_t i, bool empty)
{
    for (int k = 0; k < run->plan->n; k++) {
        const struct wf_feature *f = &run->plan->f[k];
        struct wf_example_dest *d = &run->dest[k];
        struct wf_col *col = &run->b->col[k];
        int64_t *shape;

        if (f->count >= 0) {
            d->data += f->count * f->item;
            continue;
        }
        d->have = empty ? 0 : d->have;
        d->at += d->have;
        col->offset[i + 1] = d->at;
        shape = col->shape + i * f->type.rank;
        memcpy(shape, f->type.dim, (size_t)f->type.rank * sizeof *shape);
        if (!f->sequence)
            shape[0] = d->have / f->row;
        if (f->sequence && shape[0] < 0)
            shape[0] = empty ? 0 : d->n_step;
        if (f->steps_differ)
            shape[1] = empty || !d->n_step ? 0 : d->step / f->row;
        if (empty && shape[0] > 0)
            shape[0] = 0;
    }
}

static weft_status parse_record(struct wf_example_run *run, bytes p, bytes end)
{
    struct field x;
    weft_status st = WEFT_OK;

    while (p < end && !st) {
        p = next_field(run, p, end, &x, &st);
        if (!p || x.wire != WIRE_LEN)
            continue;
        if (x.number == 1)
            st = parse_map(run, x.p, x.p + x.n, false);
        else if (x.number == 2 && run->plan->n_sequence)
            st = parse_map(run, x.p, x.p + x.n, true);
    }
    if (!st && run->n_seen < run->plan->n)
        st = fill_missing(run);
    return st;
}

weft_status wf_example_parse(struct wf_example_run *run, int64_t i, const char *record, int64_t n)
{
    weft_status st;

    run->i = i;
    run->n_seen = 0;
    run->begin = (bytes)record;
    st = parse_record(run, run->begin, run->begin + n);
    end_element(run, i, st != WEFT_OK);
    return st;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

weft_status wf_example_run_new(weft_ctx *ctx, const struct wf_example *plan,
                               struct wf_example_run **out)
{
    size_t bytes_dest = (size_t)plan->n * sizeof(struct wf_example_dest);
    struct wf_example_run *run = wf_alloc(ctx, sizeof *run + bytes_dest);

    if (!run)
        return wf_err_nomem(ctx, sizeof *run + bytes_dest, "example");
    run->plan = plan;
    run->dest = (struct wf_example_dest *)(void *)(run + 1);
    memset(run->order, -1, sizeof run->order);
    *out = run;
    return WEFT_OK;
}

void wf_example_run_free(weft_ctx *ctx, struct wf_example_run *run)
{
    if (!run)
        return;
    wf_free(ctx, run->wide);
    wf_free(ctx, run);
}

weft_status wf_example_begin(struct wf_example_run *run, struct wf_block *b)
{
    weft_status st = WEFT_OK;

    run->b = b;
    for (int k = 0; k < run->plan->n && !st; k++) {
        const struct wf_feature *f = &run->plan->f[k];
        struct wf_example_dest *d = &run->dest[k];
        /* About as much as the last block needed. */
        int64_t cap = wf_max_i64(d->at + d->at / 4, 4 * b->n);

        st = wf_block_col(b, k, &f->type, cap);
        *d = (struct wf_example_dest){.data = b->col[k].data, .cap = cap};
    }
    return st;
}
