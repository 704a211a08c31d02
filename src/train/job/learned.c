/* learned.c - what the pipeline of a job learns, and where it is read from if it was learned
 * before.
 *
 * Items are named after what their stage does and to which columns, so that the job that made them
 * finds them again: "standardize length,width", "lookup city top=100". */
#include <stdio.h>

#include "ckpt/ckpt.h"
#include "train/job/data.h"
#include "train/saved/load.h"
#include "weft/data_image.h"

/* ---- names ----------------------------------------------------------------------------------- */

static int times_named(const struct wf_job_plan *p, int stage, int item, const char *name)
{
    size_t len = strlen(name);
    int times = 0;

    for (int i = 0; i <= stage; i++)
        for (int k = 0; k < (i < stage ? p->stage[i].items.n : item); k++) {
            const char *other = p->stage[i].items.name[k];

            times +=
                strncmp(other, name, len) == 0 && (!other[len] || !strncmp(other + len, " #", 2));
        }
    return times;
}

weft_status wf_job_name_items(weft_job_run *run, struct wf_job_plan *p, int i)
{
    struct wf_job_stage *s = &p->stage[i];
    struct wf_arena *a = &run->data->arena;
    weft_status st = wf_stage_items(a, s->row, s->spec, s->n_specs, s->value, &s->items);

    for (int k = 0; k < s->items.n && !st; k++) { /* the second of a name is "... #2" */
        int times = times_named(p, i, k, s->items.name[k]);
        size_t room = strlen(s->items.name[k]) + 16;
        char *name = times ? wf_arena_alloc(a, room) : NULL;

        if (times && !name)
            return wf_err_nomem(run->ctx, 0, "the job");
        if (times) {
            snprintf(name, room, "%s #%d", s->items.name[k], times + 1);
            s->items.name[k] = name;
        }
    }
    return st;
}

/* ---- learned before -------------------------------------------------------------------------- */

static bool learns(const struct wf_job_plan *p)
{
    for (int i = 0; i < p->n; i++)
        if (p->stage[i].pass >= 0)
            return true;
    return false;
}

/* Takes what is available. A model written by an earlier version or by a C program has nothing: as
 * before, everything is learned from all of the current training data. */
static weft_status take(weft_job_run *run, const struct wf_saved *from, const char *path)
{
    char *text = NULL;
    int64_t n = 0;
    int n_cols;
    weft_status st = wf_saved_learned(from, &text, &n);

    if (st && st != WEFT_ENOENT)
        return wf_err_wrap(st, "%s", path);
    if (!st)
        st = weft_learned_parse(run->ctx, text, n, &run->learned);
    weft_text_free(run->ctx, text);
    if (!st && !weft_learned_columns(run->learned, WF_LEARNED_COLUMNS, &n_cols)) {
        weft_learned_free(run->learned); /* not from a job */
        run->learned = NULL;
        st = WEFT_ENOENT;
    }
    if (st == WEFT_ENOENT) {
        run->whole = true;
        if (learns(run->plan))
            wf_log(run->ctx, WEFT_LOG_WARN,
                   "%s does not contain what its pipeline has learned (it was written by an "
                   "earlier version): vocabularies and statistics are computed from data.train as "
                   "it is now, and are correct only if it has not changed",
                   path);
        return WEFT_OK;
    }
    if (st)
        return wf_err_wrap(st, "%s", path);
    run->known = true;
    run->learned_from = wf_arena_strdup(&run->data->arena, path);
    return run->learned_from ? WEFT_OK : wf_err_nomem(run->ctx, 0, "the job");
}

/* The newest checkpoint whose manifest and learned values are valid: all checkpoints of a run
 * contain the same. If all of them are damaged, the code that loads the weights reports it; nothing
 * is learned again because a file could not be read just now. */
static weft_status look_at_checkpoints(weft_job_run *run, const char *dir, bool *found)
{
    struct wf_ckpt_name *name = NULL;
    int64_t n = 0;
    weft_status st = wf_ckpt_scan(run->ctx, dir, &n, &name), damaged = WEFT_EPARSE;

    *found = false;
    for (int64_t i = n - 1; i >= 0 && !st && !*found; i--) {
        struct wf_saved from = {.ctx = run->ctx};
        char path[WF_CKPT_PATH];

        st = wf_ckpt_join(path, dir, name[i].name);
        if (!st)
            st = weft_ckpt_open(run->ctx, path, &from.ckpt);
        if (!st)
            st = take(run, &from, path);
        wf_saved_close(&from);
        *found = !st;
        if (st && st != WEFT_ENOMEM && st != WEFT_ELIMIT) { /* try the previous one */
            damaged = damaged == WEFT_EPARSE ? st : damaged;
            st = WEFT_OK;
        }
    }
    wf_free(run->ctx, name);
    if (!st && !*found && n && damaged != WEFT_EPARSE)
        return wf_err(damaged, "%s: %lld checkpoints, but none can be read (%s)", dir, (long long)n,
                      weft_status_name(damaged));
    return st == WEFT_ENOENT ? WEFT_OK : st;
}

static weft_status look_at_file(weft_job_run *run, const char *path, bool *found)
{
    struct wf_saved from = {0};
    struct wf_file_info info;
    weft_status st;

    if (run->ctx->fs->stat(run->ctx->fs->arg, path, &info))
        return WEFT_OK;
    st = wf_saved_open(run->ctx, path, &from);
    if (!st)
        st = take(run, &from, path);
    wf_saved_close(&from);
    *found = !st;
    return st;
}

static bool is_learned(const weft_job_run *run, const char *name)
{
    return weft_learned_vocab(run->learned, name) || weft_learned_stats(run->learned, name);
}

/* Weights from another model's file come with the vocabularies and statistics they were trained
 * with, if this job has the same stages; the rest is learned. */
static weft_status take_from_base(weft_job_run *run)
{
    const struct wf_job_plan *p = run->plan;
    const char *path = run->job->base.file;
    weft_learned *base = NULL;
    int n = 0, n_all = 0;
    weft_status st = weft_learned_load(run->ctx, path, &base);

    if (st == WEFT_ENOENT)
        return WEFT_OK; /* written by an earlier version, or missing: reported elsewhere */
    for (int i = 0; i < p->n && !st; i++)
        for (int k = 0; k < p->stage[i].items.n && !st; k++) {
            bool moved = false;

            st = wf_learned_move(run->learned, base, p->stage[i].items.name[k], &moved);
            n += moved;
            n_all++;
        }
    weft_learned_free(base);
    if (!st && n)
        wf_log(run->ctx, WEFT_LOG_INFO, "%d of %d vocabularies and statistics come from %s", n,
               n_all, path);
    return st ? wf_yaml_wrap(&run->job->yaml, run->job->base.file_node, st) : WEFT_OK;
}

weft_status wf_job_look_back(weft_job_run *run)
{
    const weft_job *job = run->job;
    bool found = false;
    weft_status st = WEFT_OK;

    if (job->checkpoint_dir && *job->checkpoint_dir)
        st = look_at_checkpoints(run, job->checkpoint_dir, &found);
    if (!st && !found && run->trained && job->save && *job->save)
        st = look_at_file(run, job->save, &found);
    if (!st && !found && run->trained && job->base.file && !job->base.layers)
        st = look_at_file(run, job->base.file, &found);
    if (!st && !run->learned)
        st = weft_learned_new(run->ctx, &run->learned);
    if (!st && !found && job->base.file)
        st = take_from_base(run);
    return st;
}

/* ---- learned now ----------------------------------------------------------------------------- */

static weft_status read_words(weft_job_run *run, const struct wf_job_stage *s)
{
    const char *file = wf_job_path(run->job, wf_job_arg(s, s->value, "vocabulary")->s);
    weft_status st = WEFT_OK;

    for (int k = 0; k < s->items.n && !st; k++) {
        weft_vocab *v = NULL;

        if (is_learned(run, s->items.name[k]))
            continue;
        st = weft_vocab_read(run->ctx, file, &v);
        if (!st)
            st = weft_learned_add_vocab(run->learned, s->items.name[k], v);
    }
    return st;
}

/* The items of the stages that learn before stage i; where[]: their stages. */
static int list_items(const weft_job_run *run, int i, weft_learn *what, int *where)
{
    const struct wf_job_plan *p = run->plan;
    int n = 0;

    for (int j = i; j < p->n; j++) {
        const struct wf_job_stage *s = &p->stage[j];

        for (int k = 0; k < s->items.n && s->pass == i; k++) {
            if (is_learned(run, s->items.name[k]))
                continue; /* comes from the model this one starts with */
            n++;
            if (!what)
                continue;
            where[n - 1] = j;
            what[n - 1] = (weft_learn){.name = s->items.name[k],
                                       .kind = s->row->flags & WF_STAGE_STATS ? WEFT_LEARNED_STATS
                                                                              : WEFT_LEARNED_VOCAB,
                                       .columns = s->items.column[k]};
            if (s->row->flags & WF_STAGE_WORDS)
                what[n - 1].top = wf_job_arg(s, s->value, "top")->i;
        }
    }
    return n;
}

weft_status wf_job_learn(weft_job_run *run, const struct wf_job_plan *p, int i, weft_ds s)
{
    const struct wf_job_stage *here = &p->stage[i];
    int n = list_items(run, i, NULL, NULL), bad = -1;
    weft_learn *what;
    int *where;
    weft_status st = WEFT_OK;

    if ((here->row->flags & WF_STAGE_LEARNS) && here->pass < 0) {
        st = read_words(run, here);
        return st ? wf_yaml_wrap(&run->job->yaml, here->item,
                                 wf_err_wrap(st, "%s", here->row->name))
                  : WEFT_OK;
    }
    if (!n)
        return WEFT_OK;
    what = wf_alloc_n(run->ctx, n, sizeof *what);
    where = wf_alloc_n(run->ctx, n, sizeof *where);
    if (what && where) {
        list_items(run, i, what, where);
        st = wf_learned_from(run->learned, run->data, s, n, what, &bad);
        here = &p->stage[bad >= 0 ? where[bad] : i];
    } else {
        st = wf_err_nomem(run->ctx, 0, "the job");
    }
    wf_free(run->ctx, what);
    wf_free(run->ctx, where);
    return st ? wf_yaml_wrap(&run->job->yaml, here->item, wf_err_wrap(st, "%s", here->row->name))
              : WEFT_OK;
}

static weft_status learn_classes(weft_job_run *run)
{
    const char *const *name;
    weft_vocab *v = NULL;
    weft_str *word;
    int n;
    weft_status st;

    if (weft_ds_image_classes(run->data, run->train, &n, &name))
        return WEFT_OK;
    word = wf_alloc_n(run->ctx, n + 1, sizeof *word);
    if (!word)
        return wf_err_nomem(run->ctx, 0, "the job");
    for (int i = 0; i < n; i++)
        word[i] = (weft_str){name[i], (int64_t)strlen(name[i])};
    st = weft_vocab_new(run->ctx, n, word, &v);
    if (!st)
        st = weft_learned_add_vocab(run->learned, WF_LEARNED_CLASSES, v);
    wf_free(run->ctx, word);
    return st;
}

/* The fingerprint of the training data's files. Warns when a run resumes with other data. */
static weft_status look_at_files(weft_job_run *run)
{
    const char *then = weft_learned_text(run->learned, WF_LEARNED_FINGERPRINT);
    char now[20];
    uint64_t f = 0;
    weft_status st = wf_files_fingerprint(run->ctx, run->job->train.path, &f);

    if (st)
        return st;
    snprintf(now, sizeof now, "%016llx", (unsigned long long)f);
    if (!run->known)
        return f ? weft_learned_add_text(run->learned, WF_LEARNED_FINGERPRINT, now) : WEFT_OK;
    run->data_changed = then && f && strcmp(then, now) != 0;
    if (run->data_changed && !run->trained)
        wf_log(run->ctx, WEFT_LOG_WARN,
               "data.train is not the data that %s was trained on (fingerprint %s, now %s): "
               "vocabularies and statistics are taken from the checkpoint, training continues on "
               "the new samples",
               run->learned_from, then, now);
    return WEFT_OK;
}

weft_status wf_job_learn_source(weft_job_run *run)
{
    const weft_column *col;
    int n;
    weft_status st = look_at_files(run);

    if (st || run->known)
        return st;
    st = weft_ds_columns(run->data, run->train, &n, &col);
    if (!st)
        st = weft_learned_add_columns(run->learned, WF_LEARNED_SOURCE, n, col);
    return st ? st : learn_classes(run);
}

weft_status wf_job_learn_columns(weft_job_run *run)
{
    const weft_column *col;
    int n;
    weft_status st;

    if (run->known)
        return WEFT_OK;
    st = weft_ds_columns(run->data, run->train, &n, &col);
    if (!st)
        st = weft_learned_add_columns(run->learned, WF_LEARNED_COLUMNS, n, col);
    return st ? st : wf_job_carry(run);
}

/* ---- sources like the training data's -------------------------------------------------------- */

bool wf_job_may_lack(const weft_job_run *run, const char *column)
{
    const struct wf_job_plan *p = run->plan;
    int n;
    const weft_column *col = weft_learned_columns(run->learned, WF_LEARNED_SOURCE, &n);
    size_t len = strlen(column), m;

    for (int i = 0; i < n; i++)
        if (col[i].role != WEFT_FEATURE && strcmp(col[i].name, column) == 0)
            return true;
    for (int i = 0; i < p->n; i++) {
        const char *list, *name;

        if (strcmp(p->stage[i].row->name, "label") != 0)
            continue;
        list = wf_job_arg(&p->stage[i], p->stage[i].value, "columns")->s;
        while (wf_next_name(&list, &name, &m))
            if (m == len && memcmp(name, column, len) == 0)
                return true;
    }
    return false;
}

/* The type a CSV file's first rows suggest is replaced by the type used in training, if the values
 * can be read that way: integers as any type, numbers as floating-point or text. */
static const char *wider(weft_dtype here, weft_dtype training)
{
    if (here == training || here == WEFT_STR)
        return NULL;
    if (training == WEFT_STR)
        return "str";
    if (here == WEFT_F32)
        return training == WEFT_F64 ? "f64" : NULL;
    return here == WEFT_I64 ? weft_dtype_name(training) : NULL;
}

/* Types of columns that had a wider type in training, in the format of weft_csv_opts.types. */
static weft_status types_of_training(weft_job_run *run, const char *path, int n,
                                     const weft_column *col, const char **out)
{
    int n_train;
    const weft_column *train = weft_learned_columns(run->learned, WF_LEARNED_SOURCE, &n_train);
    struct wf_map number;
    struct wf_buf b;
    int64_t k;
    weft_status st = WEFT_OK;

    wf_map_init(&number, run->ctx);
    wf_buf_init(&b, run->ctx, 1 << 26);
    for (int i = 0; i < n_train && !st; i++)
        st = wf_map_put(&number, train[i].name, i);
    for (int i = 0; i < n && !st; i++) {
        const char *type =
            wf_map_get(&number, col[i].name, &k) ? wider(col[i].dtype, train[k].dtype) : NULL;

        if (type)
            wf_buf_printf(&b, "%s#%d:%s", b.len ? ", " : "", i, type);
        else if (col[i].dtype == WEFT_STR && wf_map_get(&number, col[i].name, &k) &&
                 train[k].dtype != WEFT_STR)
            wf_log(run->ctx, WEFT_LOG_WARN,
                   "%s: column '%s' is text, but it was %s in training: declare its type (types) "
                   "if it should be that",
                   path, col[i].name, weft_dtype_name(train[k].dtype));
    }
    if (!st && b.len) {
        *out = b.st ? NULL : wf_arena_strdup(&run->data->arena, b.data);
        st = *out ? WEFT_OK : wf_err_nomem(run->ctx, 0, "the job");
    }
    wf_buf_free(&b);
    wf_map_free(&number);
    return st;
}

/* A list of names without the labels that are missing in the columns; NULL if none is left. */
static weft_status labels_there(weft_job_run *run, int n, const weft_column *col, const char **list)
{
    const char *at = *list, *p;
    struct wf_buf b;
    size_t m;

    wf_buf_init(&b, run->ctx, 1 << 20);
    while (wf_next_name(&at, &p, &m)) {
        char name[WF_NAME_MAX];
        bool there = false;

        snprintf(name, sizeof name, "%.*s", (int)m, p);
        for (int i = 0; i < n && !there; i++)
            there = strcmp(col[i].name, name) == 0;
        if (there || !wf_job_may_lack(run, name))
            wf_buf_printf(&b, "%s%s", b.len ? ", " : "", name);
    }
    *list = b.st || !b.len ? NULL : wf_arena_strdup(&run->data->arena, b.data);
    wf_buf_free(&b);
    return b.st || (b.len && !*list) ? wf_err_nomem(run->ctx, 0, "the job") : WEFT_OK;
}

/* The columns that had a role in training and that this file has, if the job does not name them. */
static weft_status labels_of_training(weft_job_run *run, int n, const weft_column *col,
                                      weft_role role, const char **list)
{
    int n_train;
    const weft_column *train = weft_learned_columns(run->learned, WF_LEARNED_SOURCE, &n_train);
    struct wf_buf b;

    wf_buf_init(&b, run->ctx, 1 << 20);
    for (int k = 0; k < n_train; k++)
        for (int i = 0; i < n && train[k].role == role; i++)
            if (strcmp(col[i].name, train[k].name) == 0)
                wf_buf_printf(&b, "%s%s", b.len ? ", " : "", col[i].name);
    *list = b.st || !b.len ? NULL : wf_arena_strdup(&run->data->arena, b.data);
    wf_buf_free(&b);
    return b.st || (b.len && !*list) ? wf_err_nomem(run->ctx, 0, "the job") : WEFT_OK;
}

/* Inspects the columns of the file without reading its rows. */
static weft_status look_at_csv(weft_job_run *run, const struct wf_job_source *src,
                               weft_open_opts *o)
{
    int n;
    const weft_column *col;
    weft_data *d = NULL;
    weft_status st = weft_data_new(run->ctx, &d);

    if (!st)
        st = weft_ds_columns(
            d, weft_ds_open(d, src->path, WEFT_OPTS(weft_open_opts, .format = o->format)), &n,
            &col);
    if (!st && !o->types)
        st = types_of_training(run, src->path, n, col, &o->types);
    if (!st && run->trained && !o->label)
        st = labels_of_training(run, n, col, WEFT_LABEL, &o->label);
    if (!st && run->trained && !o->weight)
        st = labels_of_training(run, n, col, WEFT_WEIGHT, &o->weight);
    if (!st && run->trained && o->label)
        st = labels_there(run, n, col, &o->label);
    if (!st && run->trained && o->weight)
        st = labels_there(run, n, col, &o->weight);
    weft_data_free(d);
    return st;
}

weft_status wf_job_classes(const weft_job_run *run, int *n, const char *const **name)
{
    const weft_vocab *v = weft_learned_vocab(run->learned, WF_LEARNED_CLASSES);
    const char **list;

    *n = v ? (int)weft_vocab_size(v) : 0;
    list = wf_arena_alloc(&run->data->arena, (size_t)(*n + 1) * sizeof *list);
    for (int i = 0; i < *n && list; i++)
        list[i] = weft_vocab_word(v, i).data; /* followed by a NUL */
    *name = list;
    return list ? WEFT_OK : wf_err_nomem(run->ctx, 0, "the job");
}

weft_status wf_job_source_like_training(weft_job_run *run, const struct wf_job_source *src,
                                        weft_open_opts *o)
{
    int n;
    weft_status st = WEFT_OK;

    if (!weft_learned_columns(run->learned, WF_LEARNED_SOURCE, &n))
        return WEFT_OK;
    if (o->format == WEFT_FORMAT_UNKNOWN)
        st = weft_format_of(run->ctx, src->path, &o->format);
    if (!st && o->format == WEFT_FORMAT_CSV)
        st = look_at_csv(run, src, o);
    if (!st && o->format == WEFT_FORMAT_IMAGES)
        st = wf_job_classes(run, &o->n_classes, &o->classes);
    return st;
}
