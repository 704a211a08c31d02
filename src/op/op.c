/* op.c - the op table of a context, and helpers for shape rules.
 *
 * The rows of ops.def are constant; their attribute texts are parsed once per context, so that the
 * library has no mutable globals. After wf_ops_ensure the built-in part never changes. */
#include <stdio.h>
#include <stdlib.h>

#include "op/infer.h"
#include "weft/sys/op.h"

#define MAX_USER_OPS 256

struct registry {
    struct wf_arena arena;
    struct wf_op rows[WF_N_OPS + MAX_USER_OPS];
    _Atomic int n;
    _Atomic bool writing; /* a registration is in progress: a second one is refused, not blocked */
};

static const struct wf_op builtin[WF_N_OPS] = {
#define OP(name_, in_min, in_max, out_, attrs_, infer_, grad_, ref_, cast_, flop_, flags_, doc_) \
    {.name = #name_,                                                                             \
     .n_in_min = in_min,                                                                         \
     .n_in_max = in_max,                                                                         \
     .n_out = out_,                                                                              \
     .attrs = attrs_,                                                                            \
     .infer = infer_,                                                                            \
     .cast = WF_CAST_##cast_,                                                                    \
     .flags = flags_,                                                                            \
     .doc = doc_,                                                                                \
     .id = WF_OP_##name_},
#include "op/ops.def"
#undef OP
};

/* ---- the table ------------------------------------------------------------------------------- */

static weft_status parse_attrs(struct wf_arena *arena, struct wf_op *op)
{
    struct wf_attr_spec spec[WF_MAX_ATTRS], *own;
    weft_status st = wf_attr_specs(arena, op->name, op->attrs, spec, &op->n_attrs);
    size_t bytes = sizeof *own * (size_t)op->n_attrs;

    if (st)
        return wf_err_wrap(st, "op table");
    op->attr = own = wf_arena_alloc(arena, bytes + 1);
    if (!own)
        return wf_err_nomem(arena->ctx, bytes, "op table");
    memcpy(own, spec, bytes);
    return WEFT_OK;
}

static void registry_free(weft_ctx *ctx)
{
    struct registry *r = atomic_load(&ctx->ops);

    if (r)
        wf_arena_free(&r->arena);
    wf_free(ctx, r);
}

static weft_status registry_new(weft_ctx *ctx, struct registry **out)
{
    struct registry *r = wf_alloc(ctx, sizeof *r);
    weft_status st = WEFT_OK;

    if (!r)
        return wf_err_nomem(ctx, sizeof *r, "op table");
    wf_arena_init(&r->arena, ctx);
    memcpy(r->rows, builtin, sizeof builtin);
    for (int i = 0; i < WF_N_OPS && !st; i++)
        st = parse_attrs(&r->arena, &r->rows[i]);
    if (st) {
        wf_arena_free(&r->arena);
        wf_free(ctx, r);
        return st;
    }
    atomic_store(&r->n, WF_N_OPS);
    *out = r;
    return WEFT_OK;
}

weft_status wf_ops_ensure(weft_ctx *ctx)
{
    struct registry *r = NULL;
    void *none = NULL;
    weft_status st;

    if (atomic_load(&ctx->ops))
        return WEFT_OK;
    st = registry_new(ctx, &r);
    if (st)
        return st;
    if (atomic_compare_exchange_strong(&ctx->ops, &none, r)) {
        atomic_store(&ctx->ops_free, registry_free);
    } else { /* another thread was first */
        wf_arena_free(&r->arena);
        wf_free(ctx, r);
    }
    return WEFT_OK;
}

static struct registry *registry_of(const weft_ctx *ctx)
{
    return atomic_load(&((weft_ctx *)(uintptr_t)ctx)->ops);
}

int wf_op_count(const weft_ctx *ctx)
{
    return atomic_load(&registry_of(ctx)->n);
}

const struct wf_op *wf_op_row(const weft_ctx *ctx, int id)
{
    struct registry *r = registry_of(ctx);

    return id >= 0 && id < atomic_load(&r->n) ? &r->rows[id] : NULL;
}

const struct wf_op *wf_op_find(const weft_ctx *ctx, const char *name)
{
    int n = wf_op_count(ctx);

    for (int i = 0; i < n; i++)
        if (!strcmp(wf_op_row(ctx, i)->name, name))
            return wf_op_row(ctx, i);
    return NULL;
}

/* ---- user ops -------------------------------------------------------------------------------- */

static weft_status check_user_op(weft_ctx *ctx, const weft_user_op *u)
{
    if (!u->name || !*u->name || strlen(u->name) > 64)
        return wf_err(WEFT_EINVAL, "user op: needs a name of 1 to 64 characters");
    for (const char *p = u->name; *p; p++)
        if (!((*p >= 'a' && *p <= 'z') ||
              (p > u->name && ((*p >= '0' && *p <= '9') || strchr("_.", *p)))))
            return wf_err(WEFT_EINVAL, "user op '%s': a name must match [a-z][a-z0-9_.]*", u->name);
    if (wf_op_find(ctx, u->name))
        return wf_err(WEFT_EEXIST, "user op '%s': the name is taken", u->name);
    if (u->n_in < 0 || u->n_in > WF_MAX_OUT || u->n_out < 1 || u->n_out > WF_MAX_OUT)
        return wf_err(WEFT_EINVAL, "user op '%s': %d inputs and %d outputs", u->name, u->n_in,
                      u->n_out);
    if (!u->infer || !u->run)
        return wf_err(WEFT_EINVAL, "user op '%s': infer and run must be given", u->name);
    return WEFT_OK;
}

struct weft_op_call {
    const struct wf_op *op;
    const struct wf_attr *attr;
    struct wf_pool *pool;
};

static weft_status infer_user(struct wf_infer *r)
{
    weft_op_call call = {r->op, r->attr, NULL};
    weft_tensor in[WF_MAX_OUT], out[WF_MAX_OUT] = {{0}};
    weft_status st;

    for (int i = 0; i < r->n_in && i < WF_MAX_OUT; i++)
        in[i] = weft_view(r->in[i].dtype, NULL, r->in[i].rank, r->in[i].dim);
    st = r->op->user->infer(&call, in, out);
    if (st)
        return wf_err_wrap(st, "%s", r->op->name);
    for (int i = 0; i < r->n_out; i++) {
        if (out[i].dtype <= WEFT_NONE || out[i].dtype >= WEFT_N_DTYPES || out[i].rank < 0 ||
            out[i].rank > WEFT_MAX_RANK)
            return wf_infer_err(r, WEFT_EINVAL, "its shape rule left output %d without a type", i);
        r->out[i] = wf_type_of(out[i].dtype, out[i].rank, out[i].dim);
    }
    return WEFT_OK;
}

weft_status wf_user_op_run(const struct wf_call *c)
{
    weft_op_call call = {c->op, c->attr, c->pool};
    weft_tensor in[WF_MAX_OUT], out[WF_MAX_OUT];

    for (int i = 0; i < c->n_in && i < WF_MAX_OUT; i++)
        in[i] =
            weft_view(c->in[i].type.dtype, c->in[i].data, c->in[i].type.rank, c->in[i].type.dim);
    for (int i = 0; i < c->n_out; i++)
        out[i] = weft_view(c->out[i].type.dtype, c->out[i].data, c->out[i].type.rank,
                           c->out[i].type.dim);
    return c->op->user->run(&call, in, out);
}

weft_status weft_op_register(weft_ctx *ctx, const weft_user_op *given)
{
    struct registry *r;
    struct wf_op *op;
    weft_user_op u, *copy;
    weft_status st = wf_ops_ensure(ctx);

    if (!st)
        st = wf_opts_take(&u, sizeof u, given, "weft_user_op");
    if (!st)
        st = check_user_op(ctx, &u);
    if (st)
        return st;
    r = registry_of(ctx);
    if (atomic_exchange(&r->writing, true))
        return wf_err(WEFT_ESTATE, "user op '%s': another registration is in progress", u.name);
    if (atomic_load(&r->n) == WF_N_OPS + MAX_USER_OPS) {
        st = wf_err(WEFT_ELIMIT, "user op '%s': at most %d per context", u.name, MAX_USER_OPS);
        goto out;
    }
    op = &r->rows[atomic_load(&r->n)];
    copy = wf_arena_alloc(&r->arena, sizeof *copy);
    *op = (struct wf_op){.n_in_min = u.n_in,
                         .n_in_max = u.n_in,
                         .n_out = u.n_out,
                         .infer = infer_user,
                         .cast = WF_CAST_LEAVE,
                         .flags = u.random ? WF_RANDOM : 0,
                         .doc = "user op",
                         .user = copy};
    op->name = wf_arena_strdup(&r->arena, u.name);
    op->attrs = wf_arena_strdup(&r->arena, u.attrs ? u.attrs : "");
    op->id = atomic_load(&r->n);
    if (!copy || !op->name || !op->attrs) {
        st = wf_err_nomem(ctx, sizeof *copy, "user op");
        goto out;
    }
    *copy = u;
    copy->name = op->name;
    copy->attrs = op->attrs;
    st = parse_attrs(&r->arena, op);
    if (!st)
        atomic_fetch_add(&r->n, 1);
out:
    atomic_store(&r->writing, false);
    return st;
}

int64_t weft_op_call_int(const weft_op_call *call, const char *attr)
{
    return wf_attr_int(call->op, call->attr, attr);
}

double weft_op_call_float(const weft_op_call *call, const char *attr)
{
    return wf_attr_float(call->op, call->attr, attr);
}

void weft_op_call_parallel(const weft_op_call *call, int64_t n_tiles,
                           void (*fn)(void *arg, int64_t tile, int thread), void *arg)
{
    wf_pool_for(call->pool, n_tiles, fn, arg);
}

weft_status weft_op_call_error(weft_status st, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    wf_errv(st, fmt, args);
    va_end(args);
    return st;
}

/* ---- helpers for shape rules ----------------------------------------------------------------- */

weft_status wf_infer_err(const struct wf_infer *r, weft_status st, const char *fmt, ...)
{
    char shapes[512] = "", one[WF_TYPE_TEXT];
    int at = 0;
    va_list args;

    for (int i = 0; i < r->n_in && i < 4; i++)
        at += snprintf(shapes + at, sizeof shapes - (size_t)at, "%s%s", i ? " x " : "",
                       wf_type_text(&r->in[i], one));
    va_start(args, fmt);
    wf_errv(st, fmt, args);
    va_end(args);
    return wf_err_wrap(st, "%s: %s%s", r->op->name, shapes, r->n_in > 4 ? " x …" : "");
}

weft_status wf_axis(const struct wf_infer *r, int64_t axis, int rank, int *out)
{
    int64_t a = axis < 0 ? axis + rank : axis;

    if (a < 0 || a >= rank)
        return wf_infer_err(r, WEFT_ERANGE, "axis %lld does not exist in rank %d", (long long)axis,
                            rank);
    *out = (int)a;
    return WEFT_OK;
}

weft_status wf_same_dim(const struct wf_infer *r, int64_t a, int64_t b, const char *what,
                        int64_t *out)
{
    if (a >= 0 && b >= 0 && a != b)
        return wf_infer_err(r, WEFT_ESHAPE, "%s differ (%lld, %lld)", what, (long long)a,
                            (long long)b);
    *out = a >= 0 ? a : b >= 0 ? b : a == b ? a : WEFT_ANY;
    return WEFT_OK;
}

weft_status wf_broadcast(const struct wf_infer *r, const struct wf_type *a, const struct wf_type *b,
                         struct wf_type *out)
{
    struct wf_type t = {.dtype = a->dtype, .rank = a->rank > b->rank ? a->rank : b->rank};

    for (int i = 0; i < t.rank; i++) {
        int64_t x = i < t.rank - a->rank ? 1 : a->dim[i - (t.rank - a->rank)];
        int64_t y = i < t.rank - b->rank ? 1 : b->dim[i - (t.rank - b->rank)];

        if (x >= 0 && y >= 0 && x != y && x != 1 && y != 1)
            return wf_infer_err(r, WEFT_ESHAPE, "cannot broadcast: sizes %lld and %lld at axis %d",
                                (long long)x, (long long)y, i);
        /* A known size above 1 wins over a symbol, which must then be that size or 1. */
        t.dim[i] = x == y ? x : x == 1 ? y : y == 1 ? x : x > 1 ? x : y > 1 ? y : WEFT_ANY;
        if (x == 0 || y == 0)
            t.dim[i] = 0;
    }
    *out = t;
    return WEFT_OK;
}

/* ---- attributes by name ---------------------------------------------------------------------- */

const struct wf_attr *wf_attr(const struct wf_op *op, const struct wf_attr *values,
                              const char *name)
{
    return wf_attr_find(op->attr, op->n_attrs, values, name);
}

int64_t wf_attr_int(const struct wf_op *op, const struct wf_attr *values, const char *name)
{
    return wf_attr(op, values, name)->i;
}

double wf_attr_float(const struct wf_op *op, const struct wf_attr *values, const char *name)
{
    return wf_attr(op, values, name)->f;
}

const char *wf_attr_str(const struct wf_op *op, const struct wf_attr *values, const char *name)
{
    const char *s = wf_attr(op, values, name)->s;

    return s ? s : "";
}
