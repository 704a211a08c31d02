/* describe.c - a dataset's part of a fingerprint: the same text that a saved position has, its
 * columns, and what is in the files of its sources. */
#include "base/fprint.h"
#include "data/data.h"

static void describe_stages(char *text, struct wf_fprint *f)
{
    for (char *line = text; *line && !f->st;) {
        char *end = line + strcspn(line, "\n"), *stage, key[64];

        if (*end)
            *end++ = 0;
        stage = strchr(line, ':'); /* "3: batch n=32 <- 2" */
        wf_snprintf(key, sizeof key, "stage %.*s of the data", stage ? (int)(stage - line) : 0,
                    line);
        wf_fp_add(f, WF_FP_DATA, key, NULL, "'%s'", stage ? stage + 2 : line);
        line = end;
    }
}

static void describe_columns(const struct wf_ds *ds, struct wf_fprint *f)
{
    static const char *const roles[] = {"feature", "label", "weight"};

    for (int c = 0; c < ds->n_cols && !f->st; c++) {
        const weft_column *col = &ds->col[c];
        struct wf_type t = wf_column_type(col);
        char key[300], type[WF_TYPE_TEXT];

        wf_snprintf(key, sizeof key, "column '%.256s'", col->name);
        wf_fp_add(f, WF_FP_DATA, key, NULL, "%s %s", roles[col->role], wf_type_text(&t, type));
    }
}

struct sources {
    bool *seen; /* by the number of a node */
    int n;      /* sources with files so far */
    struct wf_fprint *f;
};

/* Depth first, each node once. What cannot be read now has no fingerprint: reading it for training
 * will say why. */
static weft_status describe_files(const struct wf_ds *ds, struct sources *all)
{
    const char *path, *slash;
    char key[300], more[48] = "", which[32] = "";
    uint64_t content = 0;
    int64_t n = 1;
    weft_status st = WEFT_OK;

    if (all->seen[ds->id])
        return WEFT_OK;
    all->seen[ds->id] = true;
    for (int i = 0; i < ds->n_in && !st; i++)
        st = describe_files(ds->in[i], all);
    if (!st)
        st = wf_ds_fingerprint(ds, &content);
    if (st || !content)
        return st == WEFT_ENOMEM || st == WEFT_ELIMIT ? st : WEFT_OK;
    path = ds->kind->file(ds, 0);
    slash = strrchr(path, '/');
    while (ds->kind->file(ds, n))
        n++;
    if (n > 1)
        wf_snprintf(more, sizeof more, " and %lld more files", (long long)n - 1);
    if (all->n++ > 0)
        wf_snprintf(which, sizeof which, " (source %d)", all->n);
    wf_snprintf(key, sizeof key, "the content of '%.200s'%s%s", slash ? slash + 1 : path, more,
                which);
    wf_fp_add(all->f, WF_FP_DATA, key, NULL, "%016llx", (unsigned long long)content);
    return all->f->st;
}

weft_status wf_ds_describe(const weft_data *d, weft_ds s, struct wf_fprint *f)
{
    const struct wf_ds *ds = wf_ds_node(d, s);
    struct sources all = {.f = f};
    char *text = NULL;
    weft_status st = weft_ds_text(d, s, &text);

    if (st)
        return st;
    all.seen = wf_alloc_n(d->ctx, d->n + 1, sizeof *all.seen);
    st = all.seen ? WEFT_OK : wf_err_nomem(d->ctx, (size_t)d->n, "fingerprint");
    if (!st) {
        describe_stages(text, f);
        describe_columns(ds, f);
        st = describe_files(ds, &all);
    }
    wf_free(d->ctx, all.seen);
    wf_free(d->ctx, text);
    return st ? st : f->st;
}
