/* find.c - which tasks a job has: the first description that is there, and which task this is. */
#include "cluster/spec.h"

#include "base/number.h"

void wf_cluster_init(weft_cluster *c, weft_ctx *ctx, const char *transport)
{
    *c = (weft_cluster){.ctx = ctx, .transport = transport ? transport : "tls", .process = -1};
    wf_buf_init(&c->text, ctx, 2 * WF_MAX_CLUSTER_TEXT);
}

void wf_cluster_clear(weft_cluster *c)
{
    wf_free(c->ctx, c->task);
    wf_buf_free(&c->text);
    c->task = NULL;
}

void weft_cluster_free(weft_cluster *c)
{
    if (!c)
        return;
    wf_cluster_clear(c);
    wf_free(c->ctx, c);
}

/* ---- variables ------------------------------------------------------------------------------- */

const char *wf_env_get(const char *const *env, const char *name)
{
    size_t n = strlen(name);

    for (int i = 0; env && env[i]; i++)
        if (strncmp(env[i], name, n) == 0 && env[i][n] == '=')
            return env[i][n + 1] ? env[i] + n + 1 : NULL;
    return NULL;
}

weft_status wf_env_int(const char *const *env, const char *name, int64_t min, int64_t max,
                       bool *there, int64_t *out)
{
    const char *text = wf_env_get(env, name);
    int64_t v;

    *there = text != NULL;
    if (!text)
        return WEFT_OK;
    if (!wf_text_i64(text, &v) || v < min || v > max)
        return wf_err(WEFT_EINVAL, "%s=%.40s: a number from %lld to %lld is expected", name, text,
                      (long long)min, (long long)max);
    *out = v;
    return WEFT_OK;
}

/* ---- sources --------------------------------------------------------------------------------- */

static weft_status from_file(weft_cluster *c, const char *path)
{
    char *text;
    int64_t n;
    weft_status st = wf_file_read(c->ctx, path, WF_MAX_CLUSTER_TEXT, &text, &n);

    if (st)
        return st;
    st = wf_from_yaml(c, path, text, n);
    wf_free(c->ctx, text);
    return st;
}

static weft_status fill(weft_cluster *c, const weft_cluster_opts *o)
{
    const char *tf = wf_env_get(o->env, "TF_CONFIG");
    bool there = false;
    weft_status st;

    if (o->tasks)
        return wf_from_text(c, o->tasks);
    if (o->file)
        return from_file(c, o->file);
    st = tf ? wf_from_tf_config(c, tf, &there) : WEFT_OK;
    if (!st && !there)
        st = wf_from_torchrun(c, o, &there);
    if (!st && !there)
        st = wf_from_mpi(c, o, &there);
    if (!st && !there)
        st = wf_from_slurm(c, o, &there);
    if (!st && !there)
        st =
            wf_err(WEFT_ENOENT, "no cluster: neither tasks nor a file are given, and TF_CONFIG and "
                                "the variables of torchrun, Open MPI and srun are not set");
    return st;
}

static weft_status check_opts(const weft_cluster_opts *o)
{
    if (o->transport && strcmp(o->transport, "tls") != 0 && strcmp(o->transport, "tcp") != 0)
        return wf_err(WEFT_EINVAL, "cluster: transport '%s'; tls and tcp are possible",
                      o->transport);
    if (o->port < 0 || o->port > 65535)
        return wf_err(WEFT_EINVAL, "cluster: port %d; 1 to 65535 are possible", o->port);
    if (o->ps < 0 || o->ps > WF_MAX_TASKS || o->evaluators < 0 || o->evaluators > WF_MAX_TASKS)
        return wf_err(WEFT_EINVAL, "cluster: %d servers and %d evaluators: 0 to %d are possible",
                      o->ps, o->evaluators, WF_MAX_TASKS);
    return WEFT_OK;
}

/* This process is a task beyond the list. */
static weft_status add_extra(weft_cluster *c, const weft_cluster_opts *o)
{
    struct wf_task t;
    weft_status st;

    if (!o->task)
        return wf_err(WEFT_EINVAL, "cluster: which task is to be added?");
    st = wf_added_make(o->task, o->address ? o->address : "", &t);
    if (st || wf_cluster_index(c, t.role, t.index) >= 0)
        return st;
    st = wf_cluster_add(c, t.role, t.index, -1, t.address, -1);
    if (!st)
        c->task[c->n_tasks - 1].added = true;
    return st;
}

/* Which process this is, by the name of one of its tasks. */
static weft_status find_self(weft_cluster *c, const char *task)
{
    enum wf_role role;
    int index, i;
    weft_status st = wf_task_parse(task, &role, &index);

    if (st)
        return st;
    i = wf_cluster_index(c, role, index);
    if (i < 0)
        return wf_err(WEFT_ENOENT, "cluster: no task '%s'; there are %d of %s", task,
                      weft_cluster_count(c, (weft_task_role)role), wf_role_name(role));
    c->process = c->task[i].process;
    return WEFT_OK;
}

/* "TF_CONFIG: worker/1 of 1 chief, 2 ps, 4 workers". */
static void say(weft_cluster *c)
{
    struct wf_buf b;
    const char *sep = "";

    wf_buf_init(&b, c->ctx, sizeof c->said);
    for (int i = 0; i < c->n_tasks; i++)
        if (c->task[i].process == c->process) {
            wf_buf_printf(&b, "%s%s", sep, c->task[i].name);
            sep = " and ";
        }
    wf_buf_printf(&b, b.len ? " of" : "tasks of a job:");
    sep = "";
    for (int r = WF_ROLE_CHIEF; r <= WF_ROLE_EVALUATOR; r++) {
        int n = weft_cluster_count(c, (weft_task_role)r);

        if (n == 0)
            continue;
        wf_buf_printf(&b, "%s %d %s%s", sep, n, wf_role_name((enum wf_role)r),
                      n > 1 && r != WF_ROLE_SERVER ? "s" : "");
        sep = ",";
    }
    if (!b.st) {
        size_t n = strlen(c->said);

        wf_snprintf(c->said + n, sizeof c->said - n, ": %s", b.data);
    }
    wf_buf_free(&b);
}

weft_status weft_cluster_find(weft_ctx *ctx, const weft_cluster_opts *opts, weft_cluster **out)
{
    weft_cluster_opts o;
    weft_cluster *c;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_cluster_opts");

    if (!st)
        st = check_opts(&o);
    if (st)
        return st;
    c = wf_alloc(ctx, sizeof *c);
    if (!c)
        return wf_err_nomem(ctx, sizeof *c, "cluster");
    wf_cluster_init(c, ctx, o.transport);
    st = fill(c, &o);
    if (!st && o.extra)
        st = add_extra(c, &o);
    if (!st)
        st = wf_cluster_finish(c);
    if (!st && o.task)
        st = find_self(c, o.task);
    if (st) {
        weft_cluster_free(c);
        return st;
    }
    say(c);
    *out = c;
    return WEFT_OK;
}

/* ---- what exists --------------------------------------------------------------------------- */

int weft_cluster_tasks(const weft_cluster *c)
{
    return c->n_tasks;
}

weft_status weft_cluster_task(const weft_cluster *c, int i, weft_task *out)
{
    const struct wf_task *t;
    weft_task full;

    if (i < 0 || i >= c->n_tasks)
        return wf_err(WEFT_ERANGE, "task %d; there are %d", i, c->n_tasks);
    t = &c->task[i];
    full = (weft_task){.size = out->size,
                       .role = (weft_task_role)t->role,
                       .index = t->index,
                       .process = t->process,
                       .here = t->process == c->process,
                       .name = t->name,
                       .address = t->address};
    return wf_opts_give(out, out->size, &full, sizeof full, "weft_task");
}

int weft_cluster_count(const weft_cluster *c, weft_task_role role)
{
    int n = 0;

    for (int i = 0; i < c->n_tasks; i++)
        n += c->task[i].role == (enum wf_role)role;
    return n;
}

int weft_cluster_processes(const weft_cluster *c)
{
    return c->n_processes;
}

int weft_cluster_process(const weft_cluster *c)
{
    return c->process;
}

const char *weft_cluster_source(const weft_cluster *c)
{
    return c->said;
}

const char *weft_cluster_text(const weft_cluster *c)
{
    return c->text.data;
}

/* The tasks of process p, one a line. */
static void explain_process(const weft_cluster *c, int p, struct wf_buf *b)
{
    char number[16];
    bool first = true;

    wf_snprintf(number, sizeof number, "%d", p);
    for (int i = 0; i < c->n_tasks; i++) {
        const struct wf_task *t = &c->task[i];

        if (t->process != p)
            continue;
        wf_buf_printf(b, "%s %6s  %-14s %s\n", first && p == c->process ? ">" : " ",
                      first ? number : "", t->name,
                      t->address[0] ? t->address : "connects to the others");
        first = false;
    }
}

weft_status weft_cluster_explain(const weft_cluster *c, char **out)
{
    struct wf_buf b;
    weft_status st;

    wf_buf_init(&b, c->ctx, 4 * WF_MAX_CLUSTER_TEXT);
    wf_buf_printf(&b, "%s\n process  task           address\n", c->said);
    for (int p = 0; p < c->n_processes; p++)
        explain_process(c, p, &b);
    st = b.st;
    if (st)
        wf_buf_free(&b);
    else
        *out = b.data;
    return st;
}
