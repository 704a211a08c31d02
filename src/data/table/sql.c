/* sql.c - shared by the sources of SQL queries. */
#include "data/table/sql.h"

#define TEXT_BYTES (64 << 10)

weft_status wf_sql_copy(struct wf_sql_text *t, const char *p, int64_t n, weft_str *out)
{
    weft_status st;
    void *room = NULL;

    if (n > t->room) {
        st = wf_block_alloc(t->b, wf_max_i64(n, TEXT_BYTES), &room);
        if (st)
            return st;
        t->p = room;
        t->room = wf_max_i64(n, TEXT_BYTES);
    }
    if (n)
        memcpy(t->p, p, (size_t)n);
    *out = (weft_str){t->p, n};
    t->p += n;
    t->room -= n;
    t->n += n;
    return WEFT_OK;
}

weft_status wf_sql_null(const struct wf_field *f, char *to)
{
    union wf_field_value v = {.s = {"", 0}};

    if (!f->has_default && f->kind != WF_FIELD_STR)
        return wf_err(WEFT_EDATA,
                      "column '%s': the value is NULL, which %s cannot hold: give a default, or "
                      "declare it f32",
                      f->name, wf_field_kind_name[f->kind]);
    wf_field_store(f->kind, f->has_default ? &f->missing : &v, to);
    return WEFT_OK;
}

weft_status wf_sql_mismatch(const struct wf_field *f, const char *p, int64_t n)
{
    char shown[WF_FIELD_SHOWN];

    return wf_err(WEFT_EDATA, "column '%s': '%s' is not a valid %s", f->name,
                  wf_field_show(p, n, shown), wf_field_kind_name[f->kind]);
}

weft_status wf_sql_columns(struct wf_ds *ds, int n, const char **name,
                           const enum wf_field_kind *kind, const weft_sql_opts *o,
                           struct wf_row_layout *layout)
{
    struct wf_table t = {
        .d = ds->data,
        .names = {.n = n, .name = name},
        .types = o->types,
        .label = o->label,
        .weight = o->weight,
        .defaults = o->defaults,
    };
    weft_status st = wf_table_begin(&t);

    for (int i = 0; i < n && !st; i++)
        if (!t.declared[i])
            t.kind[i] = kind[i];
    return st ? st : wf_table_finish(&t, ds, layout);
}

/* The pipeline's copy of a query, blanks and semicolons at its end dropped. */
static weft_status copy_query(weft_data *d, const char *query, const char **out)
{
    int64_t n = query ? (int64_t)strlen(query) : 0;

    while (n > 0 && strchr(" \t\r\n;", query[n - 1]))
        n--;
    if (!n)
        return wf_err(WEFT_EINVAL, "the query is empty");
    *out = wf_table_text(d, query, n);
    return *out ? WEFT_OK : WEFT_ENOMEM;
}

/* ---- the skeleton ---------------------------------------------------------------------------- */

bool wf_sql_stopping(const struct wf_sql_state *t)
{
    return t->env && atomic_load_explicit(&t->env->stopping, memory_order_relaxed);
}

weft_status wf_sql_open(struct wf_stage *s)
{
    const struct wf_sql *src = s->ds->param;
    struct wf_sql_state *t = wf_alloc(s->env->ctx, src->calls->state_bytes);

    if (!t)
        return wf_env_nomem(s->env, (int64_t)src->calls->state_bytes, s->ds->name);
    t->env = s->env;
    s->state = t;
    return WEFT_OK;
}

void wf_sql_close(struct wf_stage *s)
{
    const struct wf_sql *src = s->ds->param;

    if (s->state)
        src->calls->finish(src, s->state);
    wf_free(s->env->ctx, s->state);
    s->state = NULL;
}

weft_status wf_sql_reset(struct wf_stage *s, int64_t epoch)
{
    const struct wf_sql *src = s->ds->param;
    struct wf_sql_state *t = s->state;

    src->calls->finish(src, t);
    t->epoch = epoch;
    t->id = 0;
    t->ended = false;
    return WEFT_OK;
}

weft_status wf_sql_save(struct wf_stage *s, struct wf_buf *out)
{
    const struct wf_sql_state *t = s->state;

    wf_put_i64(out, t->epoch);
    wf_put_i64(out, t->id);
    return out->st;
}

weft_status wf_sql_position(struct wf_stage *s, struct wf_reader *r, int64_t *id)
{
    int64_t epoch = wf_get_i64(r);

    *id = wf_get_range(r, 0, INT64_MAX, "a row number");
    return r->st ? r->st : wf_sql_reset(s, epoch);
}

weft_status wf_sql_too_few(int64_t n, int64_t id)
{
    return wf_err(WEFT_EDATA, "the query has %lld rows now, the position is after row %lld",
                  (long long)n, (long long)id);
}

weft_ds wf_sql_new(weft_data *d, const struct wf_ds_kind *kind, const struct wf_sql_calls *calls,
                   size_t bytes, const char *where, const char *query, const weft_sql_opts *opts,
                   wf_sql_build_fn *build)
{
    weft_sql_opts o;
    struct wf_ds *ds;
    struct wf_sql *src;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_sql_opts");

    if (st)
        return wf_ds_fail(d, kind->name, st);
    ds = wf_ds_new(d, kind, 0, NULL, bytes);
    if (!ds)
        return wf_ds_handle(NULL);
    src = ds->param;
    src->calls = calls;
    if (o.name) {
        ds->name = wf_table_text(d, o.name, (int64_t)strlen(o.name));
        st = ds->name ? WEFT_OK : WEFT_ENOMEM;
    }
    if (!st)
        st = copy_query(d, query, &src->query);
    if (!st)
        st = build(ds, where, &o);
    return st ? wf_ds_fail(d, kind->name, st) : wf_ds_handle(ds);
}
