/* plan.c - the job of a parameter server as bytes.
 *
 * Kept true: whatever is read satisfies check_job, and nothing else; so the merge layer can trust
 * the offsets, dims and axes of a job that came from elsewhere. */
#include "ps/plan.h"

#include <math.h>
#include <stdlib.h>

#include "base/bytes.h"
#include "ps/store.h"

enum { HEAD = 12 };
enum { VAR_PLAIN, VAR_TABLE, VAR_COPIED };

static const char magic[4] = {'w', 'f', 'p', 'j'};

/* Elements of all vectors: no size in bytes overflows. */
static const int64_t max_elements = (int64_t)1 << 48;

/* Between two steps at which rows of a table are forgotten. */
static const int64_t most_steps = (int64_t)1 << 48;

/* ---- writing --------------------------------------------------------------------------------- */

static void put_text(struct wf_buf *out, const char *text)
{
    size_t n = strlen(text);

    if (n > UINT16_MAX) {
        if (!out->st)
            out->st =
                wf_err(WEFT_ELIMIT, "a name of %zu bytes; at most %d are possible", n, UINT16_MAX);
        return;
    }
    wf_buf_u8(out, n & 255);
    wf_buf_u8(out, n >> 8);
    wf_buf_add(out, text, (int64_t)n);
}

static void put_numbers(struct wf_buf *out, const double *v, int n)
{
    wf_buf_le32(out, (uint32_t)n);
    for (int i = 0; i < n; i++)
        wf_buf_f64(out, v[i]);
}

static void put_var(struct wf_buf *out, const struct wf_var *v)
{
    const struct wf_constraint *c = &v->constraint;

    put_text(out, v->name);
    wf_buf_u8(out, v->table ? VAR_TABLE : v->copied ? VAR_COPIED : VAR_PLAIN);
    wf_buf_u8(out, (unsigned)v->rank);
    for (int i = 0; i < v->rank; i++)
        wf_buf_le64(out, (uint64_t)v->dim[i]);
    wf_buf_le64(out, (uint64_t)v->count);
    wf_buf_le64(out, (uint64_t)v->offset);
    wf_buf_f64(out, v->penalty.l1);
    wf_buf_f64(out, v->penalty.l2);
    wf_buf_f64(out, v->penalty.orthogonal);
    wf_buf_u8(out, v->penalty.columns);
    wf_buf_u8(out, (unsigned)c->kind);
    wf_buf_f64(out, c->min);
    wf_buf_f64(out, c->max);
    wf_buf_f64(out, c->rate);
    wf_buf_u8(out, (unsigned)c->n_axes);
    for (int i = 0; i < c->n_axes; i++)
        wf_buf_u8(out, (unsigned)c->axes[i]);
    wf_buf_le32(out, (uint32_t)v->server);
    if (!v->table)
        return;
    put_text(out, v->init.kind ? v->init.kind : "");
    wf_buf_f64(out, v->init.a);
    wf_buf_f64(out, v->init.b);
    wf_buf_le64(out, v->init.seed);
    wf_buf_le64(out, (uint64_t)v->evict.every);
    wf_buf_le64(out, (uint64_t)v->evict.unused);
    wf_buf_le64(out, (uint64_t)v->evict.min_count);
}

static void put_plan(struct wf_buf *out, const struct wf_ps_job *job)
{
    const struct wf_ps_plan *p = &job->plan;

    wf_buf_le32(out, (uint32_t)p->n_pieces);
    wf_buf_le32(out, (uint32_t)p->n_shards);
    wf_buf_le32(out, (uint32_t)p->n_rounds);
    wf_buf_le32(out, (uint32_t)p->n_blocks);
    wf_buf_le64(out, (uint64_t)p->save_every);
    wf_buf_le64(out, (uint64_t)p->retry_ns);
    wf_buf_le64(out, (uint64_t)p->n_steps);
    wf_buf_le32(out, (uint32_t)p->window);
    wf_buf_le32(out, (uint32_t)p->stale);
    wf_buf_le32(out, (uint32_t)p->inflight);
    wf_buf_le64(out, (uint64_t)p->gate_every);
    wf_buf_le64(out, (uint64_t)p->gate_first);
    wf_buf_le64(out, (uint64_t)job->cut_bytes);
    wf_buf_le64(out, (uint64_t)job->n_logs);
    wf_buf_le32(out, (uint32_t)job->logs.n_batches);
    wf_buf_le32(out, (uint32_t)job->logs.n_means);
    wf_buf_le32(out, (uint32_t)job->logs.n_slots);
    for (int i = 0; i < job->logs.n_means; i++) /* that of the first is not used */
        wf_buf_le32(out, i == 0 || job->rules.whole ? 0 : (uint32_t)job->logs.mean_group[i]);
}

weft_status wf_ps_job_write(const struct wf_ps_job *job, struct wf_buf *out)
{
    const struct wf_rules *r = &job->rules;
    int64_t at = out->len;

    wf_buf_add(out, magic, sizeof magic);
    wf_buf_le32(out, WF_PS_JOB_VERSION);
    wf_buf_le32(out, 0); /* the checksum, below */
    put_plan(out, job);
    wf_buf_le64(out, (uint64_t)r->n_dense);
    wf_buf_le64(out, (uint64_t)r->n_sums);
    wf_buf_le32(out, (uint32_t)r->n_groups);
    wf_buf_u8(out, r->whole);
    wf_buf_u8(out, r->uncut);
    wf_buf_u8(out, r->copies);
    put_text(out, r->optim->name);
    put_numbers(out, r->attrs, r->optim->n_attrs);
    put_text(out, r->schedule ? r->schedule->name : "");
    put_numbers(out, r->schedule_attrs, r->schedule ? r->n_schedule : 0);
    wf_buf_le32(out, (uint32_t)r->n_vars);
    for (int i = 0; i < r->n_vars; i++)
        put_var(out, &r->var[i]);
    if (!out->st)
        wf_put_le32((uint8_t *)out->data + at + 8,
                    wf_crc32c(0, out->data + at + HEAD, out->len - at - HEAD));
    return out->st;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A job that was read, and its memory. */
struct owned {
    struct wf_ps_job job;
    weft_ctx *ctx;
    struct wf_arena arena;
    bool no_memory;
};

void wf_ps_job_free(struct wf_ps_job *job)
{
    struct owned *o = (struct owned *)job;

    if (!o)
        return;
    wf_arena_free(&o->arena);
    wf_free(o->ctx, o);
}

/* NULL: the bytes end, or there is no memory. */
static void *get(struct owned *o, int64_t n, size_t size)
{
    void *p = wf_arena_alloc(&o->arena, (size_t)(n + 1) * size);

    if (!p)
        o->no_memory = true;
    return p;
}

static const char *take_text(struct owned *o, struct wf_bytes *b)
{
    unsigned low = wf_bytes_u8(b);
    int64_t n = low | wf_bytes_u8(b) << 8;
    const uint8_t *p = wf_bytes_take(b, n);
    char *text = p ? get(o, n, 1) : NULL;

    if (!text)
        return "";
    memcpy(text, p, (size_t)n);
    if (memchr(text, 0, (size_t)n) || !wf_utf8_ok(text)) {
        b->short_of = true;
        return "";
    }
    return text;
}

static bool take_bool(struct wf_bytes *b)
{
    unsigned v = wf_bytes_u8(b);

    if (v > 1)
        b->short_of = true;
    return v == 1;
}

/* How many numbers follow; they are taken if there are at most `max`. */
static int take_numbers(struct wf_bytes *b, double *to, int max)
{
    uint32_t n = wf_bytes_u32(b);

    if (n > (uint32_t)max || n > (uint64_t)(b->n - b->at) / 8) {
        b->short_of = true;
        return 0;
    }
    for (uint32_t i = 0; i < n; i++)
        to[i] = wf_bytes_f64(b);
    return (int)n;
}

static void take_var(struct owned *o, struct wf_bytes *b, struct wf_var *v)
{
    struct wf_constraint *c = &v->constraint;
    unsigned kind;

    v->name = take_text(o, b);
    kind = wf_bytes_u8(b);
    b->short_of |= kind > VAR_COPIED;
    v->table = kind == VAR_TABLE;
    v->copied = kind == VAR_COPIED;
    v->rank = (int)wf_bytes_u8(b);
    for (int i = 0; i < v->rank; i++) {
        int64_t dim = wf_bytes_i64(b);

        if (i < WEFT_MAX_RANK)
            v->dim[i] = dim;
    }
    v->count = wf_bytes_i64(b);
    v->offset = wf_bytes_i64(b);
    v->penalty.l1 = wf_bytes_f64(b);
    v->penalty.l2 = wf_bytes_f64(b);
    v->penalty.orthogonal = wf_bytes_f64(b);
    v->penalty.columns = take_bool(b);
    c->kind = (enum wf_constraint_kind)wf_bytes_u8(b);
    c->min = wf_bytes_f64(b);
    c->max = wf_bytes_f64(b);
    c->rate = wf_bytes_f64(b);
    c->n_axes = (int)wf_bytes_u8(b);
    for (int i = 0; i < c->n_axes; i++) {
        int64_t axis = wf_bytes_u8(b);

        if (i < WEFT_MAX_RANK)
            c->axes[i] = axis;
    }
    v->server = wf_bytes_i32(b);
    if (!v->table)
        return;
    v->init.name = v->name;
    v->init.kind = take_text(o, b);
    v->init.a = wf_bytes_f64(b);
    v->init.b = wf_bytes_f64(b);
    v->init.seed = (uint64_t)wf_bytes_i64(b);
    v->evict.every = wf_bytes_i64(b);
    v->evict.unused = wf_bytes_i64(b);
    v->evict.min_count = wf_bytes_i64(b);
}

static void take_logs(struct owned *o, struct wf_bytes *b)
{
    struct wf_log_rules *l = &o->job.logs;
    uint32_t n_batches = wf_bytes_u32(b), n_means = wf_bytes_u32(b), n_slots = wf_bytes_u32(b);
    int *group;

    if (n_batches > WF_PS_MAX_SHARDS || n_slots > WF_PS_MAX_SLOTS || n_means > WF_PS_MAX_MEANS ||
        n_means > (uint64_t)(b->n - b->at) / 4) {
        b->short_of = true;
        return;
    }
    group = get(o, n_means, sizeof *group);
    for (uint32_t i = 0; i < n_means && group; i++)
        group[i] = wf_bytes_i32(b);
    *l = (struct wf_log_rules){.n_batches = (int)n_batches,
                               .n_means = (int)n_means,
                               .mean_group = group,
                               .n_slots = (int)n_slots};
}

static void take_plan(struct wf_bytes *b, struct wf_ps_job *job)
{
    struct wf_ps_plan *p = &job->plan;

    p->n_pieces = wf_bytes_i32(b);
    p->n_shards = wf_bytes_i32(b);
    p->n_rounds = wf_bytes_i32(b);
    p->n_blocks = wf_bytes_i32(b);
    p->save_every = wf_bytes_i64(b);
    p->retry_ns = wf_bytes_i64(b);
    p->n_steps = wf_bytes_i64(b);
    p->window = wf_bytes_i32(b);
    p->stale = wf_bytes_i32(b);
    p->inflight = wf_bytes_i32(b);
    p->gate_every = wf_bytes_i64(b);
    p->gate_first = wf_bytes_i64(b);
    job->cut_bytes = wf_bytes_i64(b);
    job->n_logs = wf_bytes_i64(b);
}

static weft_status take_update(struct owned *o, struct wf_bytes *b, struct wf_rules *r)
{
    int64_t room = (b->n - b->at) / 8;
    const char *name = take_text(o, b);
    double *list = get(o, room, sizeof *list);
    int n;

    if (o->no_memory)
        return wf_err_nomem(o->ctx, 0, "job of a server");
    r->optim = wf_optim_find(name);
    if (!r->optim)
        return wf_err(WEFT_EPEER,
                      "a job with the optimizer '%.100s', which this build does not have", name);
    n = take_numbers(b, r->attrs, WF_OPTIM_MAX_ATTRS);
    if (n != r->optim->n_attrs)
        return wf_err(WEFT_EPEER, "a job whose optimizer '%s' has %d attributes; here it has %d",
                      name, n, r->optim->n_attrs);
    name = take_text(o, b);
    r->n_schedule = take_numbers(b, list, (int)wf_min_i64(room, INT32_MAX));
    if (o->no_memory)
        return wf_err_nomem(o->ctx, 0, "job of a server");
    if (*name == '\0')
        return r->n_schedule ? wf_err(WEFT_EPEER, "a job with attributes of no schedule") : WEFT_OK;
    r->schedule_attrs = list;
    r->schedule = wf_schedule_find(name);
    if (!r->schedule)
        return wf_err(WEFT_EPEER,
                      "a job with the schedule '%.100s', which this build does not have", name);
    if (r->n_schedule < r->schedule->n_attrs)
        return wf_err(WEFT_EPEER, "a job whose schedule '%s' has %d attributes; here it has %d",
                      name, r->n_schedule, r->schedule->n_attrs);
    return WEFT_OK;
}

static weft_status take_job(struct owned *o, struct wf_bytes *b)
{
    struct wf_rules *r = &o->job.rules;
    uint32_t n_vars;
    weft_status st;

    take_plan(b, &o->job);
    take_logs(o, b);
    r->n_dense = wf_bytes_i64(b);
    r->n_sums = wf_bytes_i64(b);
    r->n_groups = wf_bytes_i32(b);
    r->whole = take_bool(b);
    r->uncut = take_bool(b);
    r->copies = take_bool(b);
    st = take_update(o, b, r);
    if (st)
        return st;
    n_vars = wf_bytes_u32(b);
    /* a variable has at least 64 bytes: no list is made longer than what exists */
    if (n_vars > WF_PS_MAX_VARS || n_vars > (uint64_t)(b->n - b->at) / 64)
        return wf_err(WEFT_EPEER, "a job of %lld bytes with %u variables", (long long)b->n, n_vars);
    r->var = get(o, n_vars, sizeof *r->var);
    for (uint32_t i = 0; i < n_vars && r->var && !b->short_of; i++, r->n_vars++)
        take_var(o, b, &r->var[i]);
    return o->no_memory ? wf_err_nomem(o->ctx, 0, "job of a server")
           : b->short_of || b->at != b->n
               ? wf_err(WEFT_EPEER, "the bytes of a job do not fit together")
               : WEFT_OK;
}

/* ---- what is allowed ------------------------------------------------------------------------- */

static weft_status out_of_range(const char *what, int64_t value)
{
    return wf_err(WEFT_EPEER, "a job with %s %lld, which is out of range", what, (long long)value);
}

static weft_status check_plan(const struct wf_ps_job *job)
{
    const struct wf_ps_plan *p = &job->plan;
    const struct {
        const char *what;
        int64_t value, low, high;
    } row[] = {{"n_pieces", p->n_pieces, 1, WF_PS_MAX_PIECES},
               {"n_shards", p->n_shards, 1, WF_PS_MAX_SHARDS},
               {"n_blocks", p->n_blocks, 1, WF_PS_MAX_BLOCKS},
               {"save_every", p->save_every, 0, INT64_MAX},
               {"retry_ns", p->retry_ns, 1, INT64_MAX / 4},
               {"n_steps", p->n_steps, 0, /* leases are numbered */
                ((int64_t)1 << 62) / (p->window ? wf_max_i64(p->n_shards, 1) : 1)},
               {"window", p->window, 0, WF_PS_MAX_WINDOW},
               {"stale", p->stale, p->window ? -1 : 0, p->window ? INT32_MAX : 0},
               {"inflight", p->inflight, p->window ? 1 : 0, p->window ? WF_PS_MAX_INFLIGHT : 0},
               {"gate_every", p->gate_every, 0, p->window ? INT64_MAX / 4 : 0},
               {"gate_first", p->gate_first, 0, p->gate_every > 0 ? p->gate_every - 1 : 0},
               {"cut_bytes", job->cut_bytes, 1, INT64_MAX},
               {"n_logs", job->n_logs, 0, INT32_MAX},
               {"n_groups", job->rules.n_groups, 1, WF_PS_MAX_GROUPS},
               {"n_dense", job->rules.n_dense, 0, max_elements},
               {"n_sums", job->rules.n_sums, (int64_t)job->rules.n_groups + 1, max_elements}};

    for (int i = 0; i < WF_COUNT(row); i++)
        if (row[i].value < row[i].low || row[i].value > row[i].high)
            return out_of_range(row[i].what, row[i].value);
    if (p->n_rounds != (p->window ? 0 : wf_ps_rounds(&job->rules)))
        return wf_err(WEFT_EPEER, "a job with %d rounds of norms; its optimizer needs %d",
                      p->n_rounds, p->window ? 0 : wf_ps_rounds(&job->rules));
    if (job->rules.copies && (!p->window || !job->rules.whole))
        return wf_err(WEFT_EPEER, "a job whose workers give copies without leases, or in parts");
    if (job->rules.whole && ((p->n_shards != 1 && !job->rules.copies) || job->rules.n_groups != 1))
        return wf_err(WEFT_EPEER, "a job of %d shards and %d groups of losses, and not divided",
                      p->n_shards, job->rules.n_groups);
    if (job->rules.n_dense / wf_max_i64(job->cut_bytes / (int64_t)sizeof(float), WF_NORM_BLOCK) >
        WF_PS_MAX_PIECES)
        return wf_err(WEFT_EPEER,
                      "a job with %lld parameters in pieces of %lld bytes: too many pieces",
                      (long long)job->rules.n_dense, (long long)job->cut_bytes);
    return WEFT_OK;
}

/* The sums that are logged are those of batches; how many of them are metrics follows. */
static weft_status check_logs(struct wf_ps_job *job)
{
    struct wf_log_rules *l = &job->logs;
    int64_t fixed, each;

    if (l->n_slots < 0 || l->n_slots > WF_PS_MAX_SLOTS)
        return out_of_range("batches of validation data in a step", l->n_slots);
    if (l->n_batches == 0)
        return l->n_means ? wf_err(WEFT_EPEER, "a job with means of no batches") : WEFT_OK;
    fixed = wf_logs_step(&job->rules, l); /* without metrics */
    each = (int64_t)l->n_batches + l->n_slots;
    for (int i = 0; i < l->n_means; i++)
        if (l->mean_group[i] < 0 || l->mean_group[i] >= job->rules.n_groups)
            return out_of_range("a mean of group", l->mean_group[i]);
    if (l->n_means < 1 || job->n_logs < fixed || (job->n_logs - fixed) % each != 0)
        return wf_err(WEFT_EPEER, "a job with %lld sums for the logs of %d batches with %d means",
                      (long long)job->n_logs, l->n_batches, l->n_means);
    l->n_metrics = (job->n_logs - fixed) / each;
    return WEFT_OK;
}

static weft_status bad_var(const struct wf_var *v, const char *what)
{
    return wf_err(WEFT_EPEER, "a job whose variable '%.100s' %s", v->name, what);
}

static bool is_size(double x)
{
    return x >= 0 && x < INFINITY;
}

static weft_status check_weight(const struct wf_var *v)
{
    const struct wf_penalty *p = &v->penalty;
    const struct wf_constraint *c = &v->constraint;
    unsigned seen = 0;

    if (!is_size(p->l1) || !is_size(p->l2) || !is_size(p->orthogonal))
        return bad_var(v, "has a penalty that is not a number of 0 or more");
    if (p->orthogonal != 0 && (v->rank != 2 || v->table))
        return bad_var(v, "has an orthogonal penalty and is not a matrix");
    if ((int)c->kind < WF_CONSTRAINT_NONE || c->kind > WF_CONSTRAINT_UNIT)
        return bad_var(v, "has an unknown constraint");
    if (!(c->min >= 0) || !(c->max >= 0) || !(c->rate >= 0 && c->rate <= 1))
        return bad_var(v, "has a constraint whose bounds are out of range");
    if (c->n_axes < 0 || c->n_axes > v->rank)
        return bad_var(v, "has a constraint with too many axes");
    for (int i = 0; i < c->n_axes; i++) {
        if (c->axes[i] < 0 || c->axes[i] >= v->rank || seen >> c->axes[i] & 1)
            return bad_var(v, "has a constraint along an axis that it does not have, or twice");
        seen |= 1u << c->axes[i];
    }
    return WEFT_OK;
}

static weft_status check_table(const struct wf_var *v)
{
    if (!wf_initial_by_rows(v->init.kind))
        return wf_err(
            WEFT_EPEER,
            "a job whose table '%.100s' has the initializer '%.100s', which does not give "
            "rows one by one",
            v->name, v->init.kind);
    if (v->penalty.l1 != 0 || v->penalty.l2 != 0 || v->penalty.orthogonal != 0 ||
        v->constraint.kind != WF_CONSTRAINT_NONE)
        return bad_var(v, "is a table with a penalty or a constraint");
    if (v->evict.every < 0 || v->evict.unused < (v->evict.every > 0) || v->evict.min_count < 0 ||
        v->evict.every > most_steps || v->evict.unused > most_steps ||
        v->evict.min_count > most_steps)
        return bad_var(v, "is a table that forgets rows at steps that cannot be");
    return WEFT_OK;
}

static weft_status check_var(const struct wf_rules *r, const struct wf_var *v)
{
    int64_t count = 1;

    if (*v->name == '\0')
        return wf_err(WEFT_EPEER, "a job with a variable that has no name");
    if (v->rank < 0 || v->rank > WEFT_MAX_RANK)
        return bad_var(v, "has too many dimensions");
    for (int i = 0; i < v->rank; i++)
        if (v->dim[i] < 0 || v->dim[i] > max_elements || !wf_mul_i64(count, v->dim[i], &count) ||
            count > max_elements)
            return bad_var(v, "is too large");
    if (count != v->count)
        return wf_err(WEFT_EPEER,
                      "a job whose variable '%.100s' has %lld elements; its shape says %lld",
                      v->name, (long long)v->count, (long long)count);
    if (v->table && (v->rank != 2 || v->dim[1] < 1 || v->dim[0] < 1))
        return bad_var(v, "is a table without rows");
    if (v->table && (v->dim[1] > WF_PS_MAX_WIDTH || v->dim[0] > WF_PS_MAX_ROWS))
        return bad_var(v, "is a table that is too large");
    if (v->server < 0 || v->server > WF_PS_MAX_SERVERS)
        return bad_var(v, "is placed on a server that cannot be");
    if (v->table)
        return check_table(v);
    if (v->copied && !r->copies)
        return bad_var(v, "is given as a copy, in a job without copies");
    if (!v->table && (v->offset < 0 || v->offset > r->n_dense || count > r->n_dense - v->offset))
        return bad_var(v, "does not lie in the vectors");
    return check_weight(v);
}

static int by_offset(const void *a, const void *b)
{
    const struct wf_var *x = *(const struct wf_var *const *)a,
                        *y = *(const struct wf_var *const *)b;

    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* No element belongs to two variables. */
static weft_status check_overlap(struct owned *o)
{
    const struct wf_rules *r = &o->job.rules;
    const struct wf_var **v = get(o, r->n_vars, sizeof *v);
    int n = 0;

    if (!v)
        return wf_err_nomem(o->ctx, 0, "job of a server");
    for (int i = 0; i < r->n_vars; i++)
        if (!r->var[i].table && r->var[i].count > 0)
            v[n++] = &r->var[i];
    qsort(v, (size_t)n, sizeof *v, by_offset);
    for (int i = 1; i < n; i++)
        if (v[i]->offset < v[i - 1]->offset + v[i - 1]->count)
            return wf_err(WEFT_EPEER, "a job whose variables '%.100s' and '%.100s' overlap",
                          v[i - 1]->name, v[i]->name);
    return WEFT_OK;
}

static weft_status check_job(struct owned *o)
{
    const struct wf_rules *r = &o->job.rules;
    const char *what = wf_optim_check(r->optim, r->attrs);
    weft_status st;

    if (!what && r->schedule)
        what = wf_schedule_check(r->schedule, r->schedule_attrs,
                                 r->schedule_attrs + r->schedule->n_attrs,
                                 r->n_schedule - r->schedule->n_attrs);
    if (what)
        return wf_err(WEFT_EPEER, "a job whose optimizer is not valid: %s", what);
    st = check_plan(&o->job);
    if (!st)
        st = check_logs(&o->job);
    for (int i = 0; i < r->n_vars && !st; i++)
        if (r->var[i].table && o->job.plan.n_blocks > WF_PS_MAX_ROW_BLOCKS)
            st = out_of_range("n_blocks", o->job.plan.n_blocks);
    for (int i = 0; i < r->n_vars && !st; i++)
        st = check_var(r, &r->var[i]);
    return st ? st : check_overlap(o);
}

weft_status wf_ps_job_read(weft_ctx *ctx, const void *bytes, int64_t n, struct wf_ps_job **out)
{
    const uint8_t *p = bytes;
    struct wf_bytes b = {p, n, HEAD, false};
    struct owned *o;
    weft_status st;

    if (n < HEAD || memcmp(p, magic, sizeof magic) != 0)
        return wf_err(WEFT_EPEER, "%lld bytes are not the job of a parameter server", (long long)n);
    if (wf_get_le32(p + 4) != WF_PS_JOB_VERSION)
        return wf_err(WEFT_EPEER, "a job of version %u; this is version %d", wf_get_le32(p + 4),
                      WF_PS_JOB_VERSION);
    if (wf_get_le32(p + 8) != wf_crc32c(0, p + HEAD, n - HEAD))
        return wf_err(WEFT_EPEER, "a job is damaged: its checksum is wrong");
    o = wf_alloc(ctx, sizeof *o);
    if (!o)
        return wf_err_nomem(ctx, sizeof *o, "job of a server");
    o->ctx = ctx;
    wf_arena_init(&o->arena, ctx);
    st = take_job(o, &b);
    if (!st)
        st = check_job(o);
    if (st)
        wf_ps_job_free(&o->job);
    else
        *out = &o->job;
    return st;
}

weft_status wf_ps_job_cut(weft_ctx *ctx, const struct wf_ps_job *job, struct wf_cut **out)
{
    struct wf_cut *c;
    weft_status st = wf_cut_new(ctx, &job->rules, job->cut_bytes, &c);

    if (st)
        return st;
    if (c->n_pieces != job->plan.n_pieces) {
        st = wf_err(WEFT_EPEER, "the parameters make %d pieces of %lld bytes here, and %d there",
                    c->n_pieces, (long long)job->cut_bytes, job->plan.n_pieces);
        wf_cut_free(c);
        return st;
    }
    *out = c;
    return WEFT_OK;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* The first difference becomes the error. */
static weft_status differ(const char *what, double here, double there)
{
    return wf_err(WEFT_EPEER, "%s is %.17g here and %.17g there", what, here, there);
}

static weft_status same_int(const char *what, int64_t here, int64_t there)
{
    return here == there ? WEFT_OK
                         : wf_err(WEFT_EPEER, "%s is %lld here and %lld there", what,
                                  (long long)here, (long long)there);
}

static weft_status same_text(const char *what, const char *here, const char *there)
{
    return strcmp(here, there) == 0
               ? WEFT_OK
               : wf_err(WEFT_EPEER, "%s is '%s' here and '%s' there", what, here, there);
}

static weft_status same_update(const struct wf_rules *a, const struct wf_rules *b)
{
    weft_status st = same_text("the optimizer", a->optim->name, b->optim->name);

    for (int i = 0; i < a->optim->n_attrs && !st; i++)
        if (memcmp(&a->attrs[i], &b->attrs[i], sizeof *a->attrs) != 0)
            st = wf_err_wrap(differ(a->optim->attrs[i].name, a->attrs[i], b->attrs[i]), "%s",
                             a->optim->name);
    if (!st)
        st = same_text("the schedule of the learning rate", a->schedule ? a->schedule->name : "",
                       b->schedule ? b->schedule->name : "");
    if (!st && a->schedule)
        st = same_int("the number of the schedule's attributes", a->n_schedule, b->n_schedule);
    for (int i = 0; !st && a->schedule && i < a->n_schedule; i++)
        if (memcmp(&a->schedule_attrs[i], &b->schedule_attrs[i], sizeof(double)) != 0)
            st = wf_err_wrap(differ(i < a->schedule->n_attrs ? a->schedule->attrs[i].name
                                                             : "a value of its list",
                                    a->schedule_attrs[i], b->schedule_attrs[i]),
                             "%s", a->schedule->name);
    return st;
}

static void shape_text(const struct wf_var *v, char *to, size_t room)
{
    size_t n = (size_t)wf_snprintf(to, room, "[");

    for (int i = 0; i < v->rank && n < room; i++)
        n += (size_t)wf_snprintf(to + n, room - n, i ? ",%lld" : "%lld", (long long)v->dim[i]);
    if (n < room)
        wf_snprintf(to + n, room - n, "]");
}

static void server_text(const struct wf_var *v, char *to, size_t room)
{
    wf_snprintf(to, room, v->server ? "ps/%d" : "any server", v->server - 1);
}

static bool same_weight(const struct wf_var *a, const struct wf_var *b)
{
    const struct wf_penalty *p = &a->penalty, *q = &b->penalty;
    const struct wf_constraint *c = &a->constraint, *d = &b->constraint;

    return p->l1 == q->l1 && p->l2 == q->l2 && p->orthogonal == q->orthogonal &&
           p->columns == q->columns && c->kind == d->kind && c->min == d->min && c->max == d->max &&
           c->rate == d->rate && c->n_axes == d->n_axes &&
           memcmp(c->axes, d->axes, (size_t)c->n_axes * sizeof *c->axes) == 0;
}

static weft_status same_var(int i, const struct wf_var *a, const struct wf_var *b)
{
    char x[200], y[200];

    if (strcmp(a->name, b->name) != 0)
        return wf_err(WEFT_EPEER, "variable %d is '%s' here and '%s' there", i, a->name, b->name);
    if (a->rank != b->rank || memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) != 0) {
        shape_text(a, x, sizeof x);
        shape_text(b, y, sizeof y);
        return wf_err(WEFT_EPEER, "variable '%s' is %s here and %s there", a->name, x, y);
    }
    if (a->table != b->table)
        return wf_err(WEFT_EPEER, "variable '%s' is %s table here and %s table there", a->name,
                      a->table ? "a" : "not a", b->table ? "a" : "not a");
    if (a->server != b->server) {
        server_text(a, x, sizeof x);
        server_text(b, y, sizeof y);
        return wf_err(WEFT_EPEER, "variable '%s' is placed on %s here and on %s there", a->name, x,
                      y);
    }
    if (!a->table && a->offset != b->offset)
        return wf_err(WEFT_EPEER, "variable '%s' is at %lld of the vectors here and at %lld there",
                      a->name, (long long)a->offset, (long long)b->offset);
    if (a->table && (strcmp(a->init.kind, b->init.kind) != 0 || a->init.a != b->init.a ||
                     a->init.b != b->init.b))
        return wf_err(WEFT_EPEER, "table '%s' has different initializers here and there", a->name);
    if (a->table && a->init.seed != b->init.seed)
        return wf_err(WEFT_EPEER, "table '%s' has the seed %llu here and %llu there", a->name,
                      (unsigned long long)a->init.seed, (unsigned long long)b->init.seed);
    if (a->table && memcmp(&a->evict, &b->evict, sizeof a->evict) != 0)
        return wf_err(WEFT_EPEER,
                      "table '%s' forgets rows unused for %lld steps, every %lld steps, here, and "
                      "%lld and %lld there",
                      a->name, (long long)a->evict.unused, (long long)a->evict.every,
                      (long long)b->evict.unused, (long long)b->evict.every);
    if (!same_weight(a, b))
        return wf_err(WEFT_EPEER,
                      "variable '%s' has a different penalty or constraint here and there",
                      a->name);
    if (a->copied != b->copied)
        return wf_err(WEFT_EPEER, "variable '%s' is given as %s here and as %s there", a->name,
                      a->copied ? "a copy" : "a change", b->copied ? "a copy" : "a change");
    return WEFT_OK;
}

weft_status wf_ps_job_same(const struct wf_ps_job *here, const struct wf_ps_job *there)
{
    const struct wf_ps_plan *p = &here->plan, *q = &there->plan;
    const struct wf_rules *a = &here->rules, *b = &there->rules;
    const struct {
        const char *what;
        int64_t here, there;
    } row[] = {
        {"the number of shards", p->n_shards, q->n_shards},
        {"the number of variables", a->n_vars, b->n_vars},
        {"the number of parameters", a->n_dense, b->n_dense},
        {"the number of groups of losses", a->n_groups, b->n_groups},
        {"whether gradients are sent undivided", a->whole, b->whole},
        {"whether variables are cut", !a->uncut, !b->uncut},
        {"whether workers update copies", a->copies, b->copies},
        {"the number of sums", a->n_sums, b->n_sums},
        {"the number of sums for logs", here->n_logs, there->n_logs},
        {"the number of batches of a step", here->logs.n_batches, there->logs.n_batches},
        {"the number of validation batches of a step", here->logs.n_slots, there->logs.n_slots},
        {"the number of losses", here->logs.n_means, there->logs.n_means},
        {"the size of a piece in bytes", here->cut_bytes, there->cut_bytes},
        {"the number of pieces", p->n_pieces, q->n_pieces},
        {"the number of rounds of norms", p->n_rounds, q->n_rounds},
        {"the number of blocks of a piece", p->n_blocks, q->n_blocks},
        {"the number of steps", p->n_steps, q->n_steps},
        {"the consistency, as a window of leases,", p->window, q->window},
        {"the bound on staleness", p->stale, q->stale},
        {"the number of pushes in flight", p->inflight, q->inflight},
        {"the number of steps of an epoch", p->gate_every, q->gate_every},
        {"the first step of an epoch", p->gate_first, q->gate_first},
        {"the number of steps between checkpoints", p->save_every, q->save_every},
        {"the time before a message is repeated, in ns,", p->retry_ns, q->retry_ns}};
    weft_status st = same_update(a, b);

    for (int i = 0; i < 2 && !st; i++) /* shards and variables first: they say most */
        st = same_int(row[i].what, row[i].here, row[i].there);
    for (int i = 0; i < a->n_vars && !st; i++)
        st = same_var(i, &a->var[i], &b->var[i]);
    for (int i = 2; i < WF_COUNT(row) && !st; i++)
        st = same_int(row[i].what, row[i].here, row[i].there);
    return st;
}
