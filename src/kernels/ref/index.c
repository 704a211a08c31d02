/* index.c - reference kernels of ops that find elements by index.
 *
 * Sums of several addends for one place run over the addends in index order, in double. */
#include "kernels/ref/ref.h"
#include "op/shape.h"

static int64_t get_int(const struct wf_tensor *t, int64_t i)
{
    return wf_get_int(t->data, t->type.dtype, i);
}

static void zero(const struct wf_tensor *t)
{
    if (wf_type_bytes(&t->type))
        memset(t->data, 0,
               (size_t)wf_type_bytes(&t->type)); /* all zero bits are 0 in every dtype */
}

/* Are all of the integers in 0..n-1? */
static weft_status check_range(const struct wf_call *c, const struct wf_tensor *ids, int64_t n)
{
    int64_t count = wf_count(ids);

    for (int64_t i = 0; i < count; i++) {
        int64_t id = get_int(ids, i);

        if (id < 0 || id >= n)
            return wf_err(WEFT_EDATA, "%s: index %lld at position %lld is not in 0..%lld",
                          c->op->name, (long long)id, (long long)i, (long long)n - 1);
    }
    return WEFT_OK;
}

static void move(const struct wf_tensor *to, int64_t i, const struct wf_tensor *from, int64_t j,
                 int64_t n)
{
    size_t size = (size_t)weft_dtype_size(to->type.dtype);

    if (n)
        memcpy((char *)to->data + (size_t)i * size, (const char *)from->data + (size_t)j * size,
               (size_t)n * size);
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* Addends and the places they go to. The first addend of a place does the sum of all of them, in
 * double, so that little memory is needed: a later one is skipped. */
enum { COLUMNS = 256 };

struct addends {
    const struct wf_tensor *to, *from;
    int64_t n; /* addends */
    int64_t (*place)(const void *arg, int64_t k);
    const void *arg;
};

static bool is_first(const struct addends *a, int64_t k)
{
    int64_t place = a->place(a->arg, k);

    for (int64_t i = 0; i < k; i++)
        if (a->place(a->arg, i) == place)
            return false;
    return true;
}

/* The sum of elements [at, at + n) of the rows of all addends from the k-th on that share its place,
 * into [to_at, to_at + n). */
static void add_part(const struct addends *a, int64_t k, int64_t width, int64_t at, int64_t from_at,
                     int64_t to_at, int64_t n)
{
    int64_t place = a->place(a->arg, k);
    double sum[COLUMNS] = {0};
    uint64_t whole[COLUMNS] = {0};
    bool ints = wf_is_int(a->to->type.dtype);

    for (int64_t j = k; j < a->n; j++) {
        if (a->place(a->arg, j) != place)
            continue;
        for (int64_t i = 0; i < n; i++) {
            if (ints)
                whole[i] += (uint64_t)get_int(a->from, from_at + j * width + at + i);
            else
                sum[i] += ref_get(a->from, from_at + j * width + at + i);
        }
    }
    for (int64_t i = 0; i < n; i++) {
        if (ints)
            wf_set_int(a->to->data, a->to->type.dtype, to_at + i, (int64_t)whole[i]);
        else
            ref_set(a->to, to_at + i, sum[i]);
    }
}

/* to[place(k)·width + i + to_at] += from[k·width + i + from_at] for i in 0..width-1 and all k. */
static void add_rows(const struct addends *a, int64_t width, int64_t to_at, int64_t from_at)
{
    for (int64_t k = 0; k < a->n; k++) {
        int64_t row = to_at + a->place(a->arg, k) * width;

        if (!is_first(a, k))
            continue;
        for (int64_t at = 0; at < width; at += COLUMNS)
            add_part(a, k, width, at, from_at, row + at, wf_min_i64(COLUMNS, width - at));
    }
}

/* Places that stand in a tensor of ids from `at` on, `step` apart. */
struct id_list {
    const struct wf_tensor *ids;
    int64_t at, step;
};

static int64_t place_of_id(const void *arg, int64_t k)
{
    const struct id_list *l = arg;

    return get_int(l->ids, l->at + k * l->step);
}

static weft_status scatter_rows(const struct wf_call *c, const struct wf_tensor *ids,
                                const struct wf_tensor *rows)
{
    const struct wf_tensor *y = &c->out[0];
    struct id_list list = {ids, 0, 1};
    struct addends a = {y, rows, wf_count(ids), place_of_id, &list};
    weft_status st = check_range(c, ids, y->type.dim[0]);

    if (st)
        return st;
    zero(y);
    add_rows(&a, wf_type_part(&y->type, 1, y->type.rank), 0, 0);
    return WEFT_OK;
}

weft_status wf_ref_scatter_add(const struct wf_call *c)
{
    return scatter_rows(c, &c->in[0], &c->in[1]);
}

weft_status wf_ref_embedding_grad(const struct wf_call *c)
{
    return scatter_rows(c, &c->in[0], &c->in[1]);
}

/* ---- gather ---------------------------------------------------------------------------------- */

weft_status wf_ref_gather(const struct wf_call *c)
{
    const struct wf_tensor *ids = &c->in[1];
    struct wf_gather_dims d = wf_gather_dims(&c->in[0].type, &ids->type, wf_call_int(c, "axis"),
                                             wf_call_int(c, "batch_dims"));
    weft_status st = check_range(c, ids, d.n);

    for (int64_t b = 0; b < d.batch && !st; b++)
        for (int64_t o = 0; o < d.outer; o++)
            for (int64_t k = 0; k < d.k; k++) {
                int64_t from = (b * d.outer + o) * d.n + get_int(ids, b * d.k + k);

                move(&c->out[0], ((b * d.outer + o) * d.k + k) * d.inner, &c->in[0], from * d.inner,
                     d.inner);
            }
    return st;
}

weft_status wf_ref_gather_grad(const struct wf_call *c)
{
    const struct wf_tensor *ids = &c->in[1];
    struct wf_gather_dims d = wf_gather_dims(&c->out[0].type, &ids->type, wf_call_int(c, "axis"),
                                             wf_call_int(c, "batch_dims"));
    weft_status st = check_range(c, ids, d.n);

    if (st)
        return st;
    zero(&c->out[0]);
    for (int64_t b = 0; b < d.batch; b++)
        for (int64_t o = 0; o < d.outer; o++) {
            struct id_list list = {ids, b * d.k, 1};
            struct addends a = {&c->out[0], &c->in[0], d.k, place_of_id, &list};

            add_rows(&a, d.inner, (b * d.outer + o) * d.n * d.inner,
                     (b * d.outer + o) * d.k * d.inner);
        }
    return WEFT_OK;
}

weft_status wf_ref_embedding(const struct wf_call *c)
{
    const struct wf_tensor *table = &c->in[0], *ids = &c->in[1];
    int64_t n = wf_count(ids), width = table->type.dim[1];
    weft_status st = check_range(c, ids, table->type.dim[0]);

    for (int64_t k = 0; k < n && !st; k++)
        move(&c->out[0], k * width, table, get_int(ids, k) * width, width);
    return st;
}

/* ---- gather_nd ------------------------------------------------------------------------------- */

/* Index vectors into the first `depth` axes of a type. */
struct id_vectors {
    const struct wf_tensor *ids;
    const struct wf_type *into;
    int64_t depth;
};

static int64_t place_of_vector(const void *arg, int64_t k)
{
    const struct id_vectors *v = arg;
    int64_t at = 0;

    for (int64_t a = 0; a < v->depth; a++)
        at = at * v->into->dim[a] + get_int(v->ids, k * v->depth + a);
    return at;
}

static weft_status check_vectors(const struct wf_call *c, const struct id_vectors *v, int64_t n)
{
    for (int64_t i = 0; i < n * v->depth; i++) {
        int64_t id = get_int(v->ids, i), size = v->into->dim[i % v->depth];

        if (id < 0 || id >= size)
            return wf_err(WEFT_EDATA, "%s: index %lld at position [%lld,%lld] is not in 0..%lld",
                          c->op->name, (long long)id, (long long)(i / v->depth),
                          (long long)(i % v->depth), (long long)size - 1);
    }
    return WEFT_OK;
}

static struct id_vectors vectors_of(const struct wf_tensor *ids, const struct wf_type *into)
{
    return (struct id_vectors){ids, into, ids->type.dim[ids->type.rank - 1]};
}

weft_status wf_ref_gather_nd(const struct wf_call *c)
{
    const struct wf_type *x = &c->in[0].type, *ix = &c->in[1].type;
    struct id_vectors v = vectors_of(&c->in[1], x);
    int64_t n = wf_type_part(ix, 0, ix->rank - 1), width = wf_type_part(x, (int)v.depth, x->rank);
    weft_status st = check_vectors(c, &v, n);

    for (int64_t k = 0; k < n && !st; k++)
        move(&c->out[0], k * width, &c->in[0], place_of_vector(&v, k) * width, width);
    return st;
}

weft_status wf_ref_scatter_nd_add(const struct wf_call *c)
{
    const struct wf_type *y = &c->out[0].type, *ix = &c->in[0].type;
    struct id_vectors v = vectors_of(&c->in[0], y);
    struct addends a = {&c->out[0], &c->in[1], wf_type_part(ix, 0, ix->rank - 1), place_of_vector,
                        &v};
    weft_status st = check_vectors(c, &v, a.n);

    if (st)
        return st;
    zero(&c->out[0]);
    add_rows(&a, wf_type_part(y, (int)v.depth, y->rank), 0, 0);
    return WEFT_OK;
}

/* ---- take_along ------------------------------------------------------------------------------ */

weft_status wf_ref_take_along(const struct wf_call *c)
{
    const struct wf_type *x = &c->in[0].type, *ix = &c->in[1].type;
    int axis = wf_axis_of(wf_call_int(c, "axis"), x->rank);
    int64_t n = x->dim[axis], k = ix->dim[axis], inner = wf_type_part(x, axis + 1, x->rank);
    int64_t count = wf_type_count(ix);
    weft_status st = check_range(c, &c->in[1], n);

    for (int64_t i = 0; i < count && !st; i++)
        move(&c->out[0], i, &c->in[0],
             (i / (k * inner) * n + get_int(&c->in[1], i)) * inner + i % inner, 1);
    return st;
}

weft_status wf_ref_take_along_grad(const struct wf_call *c)
{
    const struct wf_tensor *dy = &c->in[0], *ids = &c->in[1], *dx = &c->out[0];
    int axis = wf_axis_of(wf_call_int(c, "axis"), dx->type.rank);
    int64_t n = dx->type.dim[axis], k = ids->type.dim[axis];
    int64_t outer = wf_type_part(&dx->type, 0, axis);
    int64_t inner = wf_type_part(&dx->type, axis + 1, dx->type.rank);
    weft_status st = check_range(c, ids, n);

    if (st)
        return st;
    zero(dx);
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < inner; i++)
            for (int64_t j = 0; j < k; j++) {
                int64_t at = (o * k + j) * inner + i, to;

                to = (o * n + get_int(ids, at)) * inner + i;
                if (wf_is_int(dx->type.dtype))
                    wf_set_int(dx->data, dx->type.dtype, to, get_int(dx, to) + get_int(dy, at));
                else
                    ref_set(dx, to, ref_get(dx, to) + ref_get(dy, at));
            }
    return WEFT_OK;
}

/* ---- one_hot --------------------------------------------------------------------------------- */

weft_status wf_ref_one_hot(const struct wf_call *c)
{
    const struct wf_tensor *ids = &c->in[0], *y = &c->out[0];
    int axis = wf_axis_of(wf_call_int(c, "axis"), y->type.rank);
    int64_t depth = y->type.dim[axis], inner = wf_type_part(&y->type, axis + 1, y->type.rank);
    int64_t n = wf_count(y);
    double on = wf_call_float(c, "on"), off = wf_call_float(c, "off");
    weft_status st = wf_call_int(c, "allow_outside") ? WEFT_OK : check_range(c, ids, depth);

    for (int64_t i = 0; i < n && !st; i++) {
        int64_t id = get_int(ids, i / (depth * inner) * inner + i % inner);

        ref_set(y, i, id == i / inner % depth ? on : off);
    }
    return st;
}
