/* data.c - the data of a job: one plan, and the parts built from it.
 *
 * The order is: sources, the stages up to the first one that learns, the test and validation
 * shares, what the stages learn (from the training part only, in as few passes as possible), the
 * other stages. So no held-out sample affects training. What was learned before (in the checkpoint
 * a run resumes from, or in the model being evaluated) is not learned again: then parts are opened
 * on demand, and the training data may be missing. */
#include <stdio.h>

#include "train/job/data.h"

#define TEST_SALT 0x9e3779b97f4a7c15u /* seed of the test part's selection */

/* ---- the plan -------------------------------------------------------------------------------- */

bool weft_job_stage_at(int i, const char **name, const char **attrs, const char **doc)
{
    return weft_ds_stage_at(i, name, attrs, NULL, doc);
}

/* The arguments of a stage in a job: those of its row, plus `when`. */
static weft_status read_args(weft_job_run *run, struct wf_job_stage *s, const char *args)
{
    static const char *const words[] = {"all", "train", "eval"};
    struct wf_arena *a = &run->data->arena;
    bool train = s->row->flags & WF_STAGE_TRAIN;
    size_t room = strlen(s->row->attrs) + 16;
    char *attrs = wf_arena_alloc(a, room);
    const char *when;
    weft_status st;

    s->spec = wf_arena_alloc(a, WF_MAX_ATTRS * sizeof *s->spec);
    s->value = wf_arena_alloc(a, WF_MAX_ATTRS * sizeof *s->value);
    if (!attrs || !s->spec || !s->value)
        return wf_err_nomem(run->ctx, 0, "the job");
    snprintf(attrs, room, "%s when:s=%s", s->row->attrs, train ? "train" : "all");
    st = wf_attr_specs(a, s->row->name, attrs, s->spec, &s->n_specs);
    if (!st)
        st = wf_attr_values(a, s->row->name, s->spec, s->n_specs, args, s->value);
    if (st)
        return st;
    when = wf_job_arg(s, s->value, "when")->s;
    for (int i = 0; i < WF_COUNT(words); i++)
        if (strcmp(words[i], when) == 0) {
            s->when = (enum wf_job_when)i;
            return WEFT_OK;
        }
    return wf_err(WEFT_EINVAL, "%s: when must be all, train or eval, not '%s'", s->row->name, when);
}

/* Whether an argument of the stage is text. */
static bool takes_text(const struct wf_stage_row *row, const char *name)
{
    size_t n = strlen(name);

    for (const char *p = row->attrs; *p; p += strspn(p, " ")) {
        if (strncmp(p, name, n) == 0 && p[n] == ':')
            return p[n + 1] == 's';
        p += strcspn(p, " ");
    }
    return false;
}

/* The arguments of a stage as attributes. Text may be given as a list: columns: [a, b]. */
static weft_status stage_attrs(const weft_job *job, const struct wf_stage_row *row,
                               const struct wf_yaml_node *args, const char **out)
{
    struct wf_arena *arena = (struct wf_arena *)&job->yaml.arena;
    struct wf_yaml_node map, *copy;
    weft_status st = WEFT_OK;

    if (!args)
        return wf_job_attrs(job, NULL, NULL, out);
    map = *args;
    map.item = wf_arena_alloc(arena, (size_t)(map.n + 1) * sizeof *map.item);
    if (!map.item)
        return wf_err_nomem(arena->ctx, 0, "the pipeline");
    for (int64_t i = 0; i < map.n && !st; i++) {
        map.item[i] = args->item[i];
        if (args->item[i]->kind != WF_YAML_LIST || !takes_text(row, args->key[i]->text))
            continue;
        map.item[i] = copy = wf_arena_alloc(arena, sizeof *copy);
        if (!copy)
            return wf_err_nomem(arena->ctx, 0, "the pipeline");
        *copy = (struct wf_yaml_node){.kind = WF_YAML_SCALAR,
                                      .quoted = true,
                                      .line = args->item[i]->line,
                                      .column = args->item[i]->column};
        st = wf_job_read_text(job, args->item[i], args->key[i]->text, &copy->text);
    }
    return st ? st : wf_job_attrs(job, &map, NULL, out);
}

static weft_status read_stage(weft_job_run *run, struct wf_job_plan *p, int i,
                              const struct wf_yaml_node *item)
{
    struct wf_job_stage *s = &p->stage[i];
    struct wf_yaml_node *args = NULL;
    const char *name = NULL, *attrs = NULL;
    weft_status st = wf_job_item(run->job, item, &name, &args);

    s->item = item;
    s->pass = -1;
    if (st)
        return st;
    st = wf_stage_find(name, &s->row);
    if (st)
        return wf_yaml_wrap(&run->job->yaml, item, st);
    st = stage_attrs(run->job, s->row, args, &attrs);
    if (st)
        return st;
    st = read_args(run, s, attrs);
    if (!st)
        st = wf_job_name_items(run, p, i);
    return st ? wf_yaml_wrap(&run->job->yaml, item, st) : WEFT_OK;
}

/* Whether the stage needs a pass over the data to learn. */
static bool needs_pass(const struct wf_job_stage *s)
{
    const struct wf_attr *file =
        s->row->flags & WF_STAGE_WORDS ? wf_job_arg(s, s->value, "vocabulary") : NULL;

    return (s->row->flags & WF_STAGE_LEARNS) && !(file && file->s && *file->s);
}

static bool any_in(struct wf_map *set, const char *list)
{
    char name[WF_NAME_MAX];
    const char *p;
    size_t n;
    int64_t i;

    while (wf_next_name(&list, &p, &n)) {
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        if (n >= sizeof name || wf_map_get(set, name, &i))
            return true;
    }
    return false;
}

/* The columns that the stage changes. */
static weft_status add_touched(weft_job_run *run, const struct wf_job_stage *s, struct wf_map *set)
{
    static const char *const keys[] = {"to", "column", "columns"};
    weft_status st = WEFT_OK;

    for (int k = 0; k < ((s->row->flags & WF_STAGE_READS) ? 1 : WF_COUNT(keys)); k++) {
        const struct wf_attr *v = wf_job_arg(s, s->value, keys[k]);
        const char *list = v && v->s ? v->s : "", *p;
        size_t n;

        while (!st && wf_next_name(&list, &p, &n)) {
            char *name = wf_arena_alloc(&run->data->arena, n + 1);

            if (!name)
                return wf_err_nomem(run->ctx, 0, "the job");
            memcpy(name, p, n);
            st = wf_map_put(set, name, 1);
        }
    }
    return st;
}

/* Whether the validation share must be taken before this stage: batches cannot be split, and a
 * stage that applies to one part only and changes the number of samples needs that part. */
static bool comes_after(const struct wf_job_stage *s)
{
    return (s->row->flags & WF_STAGE_AFTER) ||
           (s->when != WF_WHEN_ALL && (s->row->flags & WF_STAGE_ROWS));
}

/* Finds the stages that learn in one pass: those after the first of a group whose columns have not
 * been changed since, and that see the same samples. */
static weft_status plan_passes(weft_job_run *run, struct wf_job_plan *p)
{
    struct wf_map touched;
    int group = -1;
    weft_status st = WEFT_OK;

    wf_map_init(&touched, run->ctx);
    p->learns_at = p->after_at = p->n;
    for (int i = 0; i < p->n && !st; i++) {
        struct wf_job_stage *s = &p->stage[i];

        if (needs_pass(s)) {
            if (group < 0 || any_in(&touched, wf_job_arg(s, s->value, "columns")->s)) {
                wf_map_free(&touched);
                wf_map_init(&touched, run->ctx);
                group = i;
            }
            s->pass = group;
            p->learns_at = p->learns_at < p->n ? p->learns_at : i;
        }
        if (p->after_at == p->n && comes_after(s))
            p->after_at = i;
        if (s->row->flags & WF_STAGE_ROWS)
            group = -1;
        st = add_touched(run, s, &touched);
    }
    wf_map_free(&touched);
    p->split_at = p->learns_at < p->after_at ? p->learns_at : p->after_at;
    return st;
}

static bool splits_training(const weft_job *job)
{
    return job->validation_split > 0 || job->test_split > 0;
}

/* Neighboring samples are stacked within all samples or within one part, never from a random
 * choice. */
static weft_status check_split(const weft_job_run *run, const struct wf_job_plan *p)
{
    const weft_job *job = run->job;

    if (!splits_training(job) || strcmp(job->validation_by, "random") != 0)
        return WEFT_OK;
    for (int i = p->split_at; i < p->n; i++)
        if (p->stage[i].row->flags & WF_STAGE_STACKS)
            return wf_yaml_err(&job->yaml, p->stage[i].item, WEFT_EINVAL,
                               "%s stacks neighboring samples, but `%s` before it %s, so "
                               "data.validation_by: random would pick samples one by one: use "
                               "validation_by: last or data.validation",
                               p->stage[i].row->name, p->stage[p->split_at].row->name,
                               p->split_at == p->learns_at
                                   ? "learns from the training samples"
                                   : "changes the number of samples of one part");
    return WEFT_OK;
}

static weft_status make_plan(weft_job_run *run)
{
    const struct wf_yaml_node *list = run->job->pipeline;
    struct wf_job_plan *p = wf_arena_alloc(&run->data->arena, sizeof *p);
    bool none = !list || (list->kind == WF_YAML_SCALAR && !*list->text);
    weft_status st = WEFT_OK;

    if (!p)
        return wf_err_nomem(run->ctx, 0, "the job");
    run->plan = p;
    if (none)
        return WEFT_OK;
    if (list->kind != WF_YAML_LIST)
        return wf_yaml_err(&run->job->yaml, list, WEFT_EINVAL,
                           "data.pipeline must be a list of stages");
    p->stage = wf_arena_alloc(&run->data->arena, (size_t)(list->n + 1) * sizeof *p->stage);
    if (!p->stage)
        return wf_err_nomem(run->ctx, 0, "the job");
    for (; p->n < list->n && !st; p->n++)
        st = read_stage(run, p, p->n, list->item[p->n]);
    if (!st)
        st = plan_passes(run, p);
    return st;
}

/* ---- sources --------------------------------------------------------------------------------- */

static weft_status open_source(weft_job_run *run, const struct wf_job_source *src, weft_ds *out)
{
    const weft_job *job = run->job;
    weft_format format = WEFT_FORMAT_UNKNOWN;
    bool skip = src->on_error && strcmp(src->on_error, "skip") == 0;
    weft_open_opts o;
    weft_status st;

    if (!src->node)
        return WEFT_OK;
    if (src->format && (format = weft_format_parse(src->format)) == WEFT_FORMAT_UNKNOWN)
        return wf_yaml_err(&job->yaml, src->node, WEFT_EINVAL, "no format '%s'", src->format);
    if (src->on_error && !skip && strcmp(src->on_error, "stop") != 0)
        return wf_yaml_err(&job->yaml, src->node, WEFT_EINVAL,
                           "on_error must be stop or skip, not '%s'", src->on_error);
    o = (weft_open_opts){.size = sizeof o,
                         .format = format,
                         .columns = src->columns,
                         .label = src->label,
                         .weight = src->weight,
                         .types = src->types,
                         .query = src->query,
                         .index = src->index,
                         .height = src->height,
                         .width = src->width,
                         .channels = (int)src->channels,
                         .on_error = skip ? WEFT_ON_ERROR_SKIP : WEFT_ON_ERROR_STOP};
    st = wf_job_source_like_training(run, src, &o);
    if (st)
        return wf_yaml_wrap(&job->yaml, src->node, st);
    run->data->empty_labels = run->trained && !skip; /* such data may be predicted */
    *out = weft_ds_open(run->data, src->path, &o);
    if (src->skip)
        *out = weft_ds_skip(run->data, *out, src->skip);
    if (src->take)
        *out = weft_ds_take(run->data, *out, src->take);
    st = weft_data_status(run->data);
    return st ? wf_yaml_wrap(&job->yaml, src->node, st) : WEFT_OK;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Takes a share of *from, which keeps the rest. The shares of two keys are chosen independently. */
static weft_status hold_out(weft_job_run *run, const char *key, double share, uint64_t salt,
                            weft_ds *from, weft_ds *out)
{
    const weft_job *job = run->job;
    const struct wf_yaml_node *data = wf_yaml_get(job->yaml.root, "data");
    bool random = strcmp(job->validation_by, "random") == 0;
    weft_status st = wf_plan_hold_out(
        run->data, &(struct wf_hold){share, random, (uint64_t)job->seed + salt}, from, out);

    if (st == WEFT_EINVAL)
        st = wf_err_wrap(st,
                         "data.%s (set index: true to know the number of samples, or "
                         "validation_by: random, which does not need it)",
                         key);
    return st ? wf_yaml_wrap(&job->yaml, wf_yaml_get(data, key), st) : WEFT_OK;
}

/* Takes the test and validation shares out of the training data as it is at this point. The test
 * part does not depend on validation_split. `others`: the same samples without the train-only
 * stages, from which the shares are then taken; {0}: there are no such stages. */
static weft_status split(weft_job_run *run, weft_ds others)
{
    const weft_job *job = run->job;
    const struct {
        const char *key;
        double share;
        uint64_t salt;
        weft_ds *out;
    } shares[] = {
        {"test_split", job->test_split, TEST_SALT, &run->test},
        {"validation_split", job->validation_split, 0, &run->validation},
    };
    weft_status st = WEFT_OK;

    for (int i = 0; i < WF_COUNT(shares) && !st; i++) {
        if (!(shares[i].share > 0))
            continue;
        st = hold_out(run, shares[i].key, shares[i].share, shares[i].salt, &run->train,
                      shares[i].out);
        if (!st && others.id)
            st = hold_out(run, shares[i].key, shares[i].share, shares[i].salt, &others,
                          shares[i].out);
    }
    return st;
}

/* The list without labels that are missing in data to be predicted; "" if none is left. */
static weft_status leave_out_labels(weft_job_run *run, weft_ds s, struct wf_attr *v)
{
    const struct wf_ds *ds = wf_ds_node(run->data, s);
    const char *list = v->s, *p;
    struct wf_buf b;
    size_t n;

    wf_buf_init(&b, run->ctx, 1 << 20);
    while (wf_next_name(&list, &p, &n)) {
        char name[WF_NAME_MAX];

        snprintf(name, sizeof name, "%.*s", (int)n, p);
        if (n < sizeof name && wf_ds_find(ds, name) < 0 && wf_job_may_lack(run, name))
            continue;
        wf_buf_printf(&b, "%s%.*s", b.len ? ", " : "", (int)n, p);
    }
    v->s = b.st ? NULL : wf_arena_strdup(&run->data->arena, b.data ? b.data : "");
    wf_buf_free(&b);
    return v->s ? WEFT_OK : wf_err_nomem(run->ctx, 0, "the job");
}

static bool is_for(const struct wf_job_stage *stage, enum wf_job_part part)
{
    return stage->when == WF_WHEN_ALL || (stage->when == WF_WHEN_TRAIN) == (part == WF_TRAIN);
}

/* Whether the stage only concerns a label that this part does not have. */
static bool lacks_label(const weft_job_run *run, const struct wf_job_stage *stage, weft_ds s)
{
    const struct wf_attr *column = wf_job_arg(stage, stage->value, "column");
    const struct wf_ds *ds = wf_ds_node(run->data, s);

    return column && column->s && ds && wf_ds_find(ds, column->s) < 0 &&
           wf_job_may_lack(run, column->s);
}

static weft_status add_stage(weft_job_run *run, const struct wf_job_stage *stage,
                             enum wf_job_part part, weft_ds *s)
{
    static const char *const suffixes[WF_N_PARTS] = {NULL, ".validation", ".test"};
    struct wf_attr value[WF_MAX_ATTRS], *columns;
    struct wf_adding a = {.d = run->data,
                          .s = *s,
                          .row = stage->row,
                          .n_specs = stage->n_specs,
                          .spec = stage->spec,
                          .value = value,
                          .learned = run->learned,
                          .items = stage->items,
                          .learned_from = run->learned_from,
                          .seed = (uint64_t)run->job->seed,
                          .dir = run->job->dir,
                          .suffix = suffixes[part]};
    weft_status st = WEFT_OK;

    if (!is_for(stage, part))
        return WEFT_OK;
    memcpy(value, stage->value, sizeof value);
    columns = (struct wf_attr *)wf_job_arg(stage, value, "columns");
    if (part == WF_TEST && run->trained && lacks_label(run, stage, *s))
        return WEFT_OK; /* filters on the label, which data to be predicted lacks */
    if (part == WF_TEST && run->trained && columns && columns->s && *columns->s) {
        st = leave_out_labels(run, *s, columns);
        if (!st && !*columns->s)
            return WEFT_OK;
    }
    if (!st) {
        *s = stage->row->add(&a);
        st = weft_data_status(run->data);
    }
    return st ? wf_yaml_wrap(&run->job->yaml, stage->item, st) : WEFT_OK;
}

static weft_status open_sources(weft_job_run *run, const bool *want)
{
    const weft_job *job = run->job;
    weft_status st = want[WF_TRAIN] ? open_source(run, &job->train, &run->train) : WEFT_OK;

    if (!st && want[WF_TRAIN])
        st = wf_job_learn_source(run);
    if (!st && want[WF_VALIDATION])
        st = open_source(run, &job->validation, &run->validation);
    if (!st && want[WF_TEST])
        st = open_source(run, &job->test, &run->test);
    return st;
}

/* Adds stage i to all parts. Before the split, *others is the training data without train-only
 * stages, starting with the first such stage: validation samples are taken from it. */
static weft_status add_to_parts(weft_job_run *run, const bool *want, int i, bool before_split,
                                weft_ds *others)
{
    const struct wf_job_stage *stage = &run->plan->stage[i];
    weft_ds *each[WF_N_PARTS] = {&run->train, &run->validation, &run->test};
    weft_status st = WEFT_OK;

    if (before_split && stage->when != WF_WHEN_ALL && !others->id)
        *others = run->train;
    for (int k = 0; k < WF_N_PARTS && !st; k++)
        if (want[k] && each[k]->id)
            st = add_stage(run, stage, (enum wf_job_part)k, each[k]);
    if (!st && before_split && others->id)
        st = add_stage(run, stage, WF_VALIDATION, others);
    return st;
}

/* The requested parts, from their sources through all stages. */
static weft_status build(weft_job_run *run, const bool *want)
{
    const struct wf_job_plan *p = run->plan;
    bool splits = want[WF_TRAIN] && splits_training(run->job);
    /* whole: as earlier versions learned */
    int split_at = run->whole ? p->after_at : p->split_at;
    weft_ds others = {0};
    weft_status st = open_sources(run, want);

    for (int i = 0; i <= p->n && !st; i++) {
        if (splits && i == split_at)
            st = split(run, others);
        if (i == p->n || st)
            break;
        if (!run->known)
            st = wf_job_learn(run, p, i, run->train);
        if (!st)
            st = add_to_parts(run, want, i, splits && i < split_at, &others);
    }
    for (int k = 0; k < WF_N_PARTS && !st; k++)
        run->opened[k] = run->opened[k] || want[k];
    if (!st && want[WF_TRAIN])
        st = wf_job_learn_columns(run);
    return st;
}

weft_status wf_job_open_data(weft_job_run *run)
{
    static const bool all[WF_N_PARTS] = {true, true, true};
    const weft_job *job = run->job;
    weft_status st = weft_data_new(run->ctx, &run->data);

    if (!st)
        st = make_plan(run);
    if (!st)
        st = wf_job_look_back(run);
    if (!st && !run->whole)
        st = check_split(run, run->plan);
    if (st || (run->trained && run->known))
        return st;
    st = build(run, all);
    if (!st && !run->trained && job->shuffle && !weft_ds_addressable(run->data, run->train))
        st = wf_plan_shuffle(run->data, (uint64_t)job->seed, job->shuffle_buffer, &run->train);
    return st;
}

weft_status wf_job_columns(const weft_job_run *run, int *n, const weft_column **col)
{
    if (run->train.id)
        return weft_ds_columns(run->data, run->train, n, col);
    *col = weft_learned_columns(run->learned, WF_LEARNED_COLUMNS, n);
    return *col ? WEFT_OK : wf_err(WEFT_ESTATE, "the columns of the training data are unknown");
}

/* Parts that come from one source are opened together. */
static void open_together(const weft_job *job, bool *want)
{
    bool validation = job->validation_split > 0, test = job->test_split > 0;

    if ((want[WF_TRAIN] && (validation || test)) || (want[WF_VALIDATION] && validation) ||
        (want[WF_TEST] && test)) {
        want[WF_TRAIN] = true;
        want[WF_VALIDATION] = want[WF_VALIDATION] || validation;
        want[WF_TEST] = want[WF_TEST] || test;
    }
}

weft_status weft_job_open_part(weft_job_run *run, const char *part, weft_ds *out)
{
    static const char *const names[WF_N_PARTS] = {"train", "validation", "test"};
    const weft_ds *each[WF_N_PARTS] = {&run->train, &run->validation, &run->test};
    bool want[WF_N_PARTS] = {false};
    int k = 0;
    weft_status st = WEFT_OK;

    while (k < WF_N_PARTS && strcmp(names[k], part) != 0)
        k++;
    if (k == WF_N_PARTS)
        return wf_err(WEFT_EINVAL, "no part '%s'; there are train, validation and test", part);
    want[k] = true;
    open_together(run->job, want);
    if (!run->opened[k])
        st = build(run, want);
    if (!st)
        *out = *each[k];
    return st;
}

weft_status weft_job_open_source(weft_job_run *run, const char *part, weft_ds *out)
{
    const weft_job *job = run->job;
    bool test = strcmp(part, "test") == 0, validation = strcmp(part, "validation") == 0;

    if (!test && !validation && strcmp(part, "train") != 0)
        return wf_err(WEFT_EINVAL, "no part '%s'; there are train, validation and test", part);
    *out = (weft_ds){0};
    return open_source(run,
                       test && !(job->test_split > 0)               ? &job->test
                       : validation && !(job->validation_split > 0) ? &job->validation
                                                                    : &job->train,
                       out);
}

weft_ds weft_job_dataset(const weft_job_run *run, const char *part)
{
    weft_ds s = {0};

    /* Opening a part for the first time does not change anything the caller has seen. */
    return weft_job_open_part((weft_job_run *)run, part, &s) ? (weft_ds){0} : s;
}
