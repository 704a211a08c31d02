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

weft_status wf_sql_null(const struct wf_field *f)
{
    return wf_err(WEFT_EDATA,
                  "column '%s': the value is NULL, and %s cannot represent that: give a default, "
                  "or declare it f32",
                  f->name, wf_field_kind_name[f->kind]);
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

weft_status wf_sql_query(weft_data *d, const char *query, const char **out)
{
    int64_t n = query ? (int64_t)strlen(query) : 0;

    while (n > 0 && strchr(" \t\r\n;", query[n - 1]))
        n--;
    if (!n)
        return wf_err(WEFT_EINVAL, "the query is empty");
    *out = wf_table_text(d, query, n);
    return *out ? WEFT_OK : WEFT_ENOMEM;
}
