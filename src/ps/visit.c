/* visit.c - one question to the chief of a job: `weft ctl`, and tasks that want to be added. */
#define _GNU_SOURCE
#include "ps/visit.h"

#include <time.h>

#include "cluster/visit.h"
#include "weft/sys/ctl.h"

#define PAUSE_NS 200000000
#define TIMEOUT_NS 5000000000
enum { MAX_ANSWER = 8 << 20, MAX_CHIEFS = 64 };

/* The answer's mark decides; the text is moved over it. */
static weft_status read_answer(char *answer, int64_t n)
{
    if (answer[n - 1] || !strchr("+-?", answer[0]))
        return wf_err(WEFT_EPEER, "the chief's answer is not one");
    if (answer[0] == WF_SITE_ELSEWHERE)
        return wf_err(WEFT_EPEER, "%.400s", answer + 1);
    if (answer[0] == WF_SITE_NO)
        return wf_err(WEFT_ESTATE, "%.400s", answer + 1);
    memmove(answer, answer + 1, (size_t)n - 1);
    return WEFT_OK;
}

weft_status wf_ps_visit(weft_ctx *ctx, const struct wf_identity *who, struct wf_tls *tls,
                        const char *address, const char *question, int64_t timeout_ns,
                        char **answer)
{
    struct wf_visit v = {.who = who,
                         .tls = tls,
                         .address = address,
                         .question = {.kind = WF_SITE_QUESTION,
                                      .head = question,
                                      .n_head = (int32_t)strlen(question)},
                         .min = 2,
                         .max = MAX_ANSWER,
                         .timeout_ns = timeout_ns,
                         .of = "the answer of the chief",
                         .closed = "the chief has closed the connection"};
    char *text = NULL;
    int64_t n = 0;
    weft_status st = v.question.n_head > WF_SITE_MAX_QUESTION
                         ? wf_err(WEFT_EINVAL, "a question of %d bytes", v.question.n_head)
                         : wf_visit(ctx, &v, &text, &n);

    if (!st)
        st = read_answer(text, n);
    if (st)
        wf_free(ctx, text);
    else
        *answer = text;
    return st;
}

/* ---- weft ctl -------------------------------------------------------------------------------- */

/* The first that leads the job. */
static weft_status ask_all(weft_ctx *ctx, const weft_ctl_opts *o, struct wf_tls *tls,
                           const char *question, char **answer)
{
    struct wf_identity who = {.name = WF_CONTROL_ROLE "/0", .role = WF_CONTROL_ROLE};
    int64_t timeout = o->timeout_s > 0 ? (int64_t)(o->timeout_s * 1e9) : TIMEOUT_NS;
    weft_status st = wf_err(WEFT_EINVAL, "weft_ctl_opts: no chiefs"), said = WEFT_OK;
    const char *at = o->chiefs ? o->chiefs : "";
    char why[500] = "";

    for (int i = 0; *at && i < MAX_CHIEFS; i++) {
        size_t n = strcspn(at, ",");
        char address[200];

        wf_snprintf(address, sizeof address, "%.*s", (int)wf_min_i64((int64_t)n, 199), at);
        at += n + (at[n] == ',');
        st = wf_ps_visit(ctx, &who, tls, address, question, timeout, answer);
        if (!st || st == WEFT_ESTATE)
            return st;
        if (!said) {
            said = st;
            wf_snprintf(why, sizeof why, "no chief answers: %s", weft_error());
        }
    }
    if (said)
        wf_err_set(why);
    return said ? said : st;
}

weft_status weft_ctl(weft_ctx *ctx, const weft_ctl_opts *opts, const char *question, char **answer)
{
    struct wf_renewal *files = NULL;
    struct wf_tls *tls = NULL;
    weft_ctl_opts o;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_ctl_opts");
    const char *const path[WF_PEM_FILES] = {o.authority, o.certificate, o.key};

    if (!st && o.chiefs && strstr(o.chiefs, "tls:") && (!path[0] || !path[1] || !path[2]))
        st = wf_err(WEFT_EINVAL, "tls needs the authority's certificate, one of the role control, "
                                 "and its key");
    if (!st && o.chiefs && strstr(o.chiefs, "tls:"))
        st = wf_renewal_new(ctx, path, &files, &tls);
    if (!st)
        st = ask_all(ctx, &o, tls, question, answer);
    wf_renewal_free(files);
    wf_tls_free(tls);
    return st;
}

/* ---- tasks that are added -------------------------------------------------------------------- */

/* The tasks of the list without this one; then those that the chief knows of. */
static weft_status take_list(weft_ctx *ctx, struct wf_spec *spec, int *self, const char *list)
{
    char name[sizeof spec->task->name];
    int n = 0, max;
    struct wf_task *task;
    weft_status st;

    wf_snprintf(name, sizeof name, "%s", spec->task[*self].name);
    while (n < spec->n_tasks && !spec->task[n].added)
        n++;
    max = n + WF_MAX_ADDED;
    task = wf_alloc_n(ctx, max, sizeof *task);
    if (!task)
        return wf_err_nomem(ctx, sizeof *task, "tasks");
    memcpy(task, spec->task, (size_t)n * sizeof *task);
    st = wf_added_read(list, task, &n, max);
    if (st) {
        wf_free(ctx, task);
        return st;
    }
    wf_free(ctx, (void *)(uintptr_t)spec->task);
    spec->task = task;
    spec->n_tasks = n;
    return wf_spec_find(spec, name, self);
}

static weft_status ask_chiefs(weft_ctx *ctx, const struct wf_spec *spec, int self, char **list)
{
    const struct wf_task *t = &spec->task[self];
    struct wf_identity who = {.incarnation = 0};
    char question[WF_SITE_MAX_QUESTION];
    weft_status st = WEFT_ESTATE;

    wf_snprintf(who.name, sizeof who.name, "%s", t->name);
    wf_snprintf(who.role, sizeof who.role, "%s", wf_role_name(t->role));
    wf_snprintf(question, sizeof question, "enter %s %s", t->name, t->address);
    for (int i = 0; i < spec->n_tasks && st; i++)
        if (spec->task[i].role == WF_ROLE_CHIEF)
            st = wf_ps_visit(ctx, &who, spec->tls, spec->task[i].address, question,
                             spec->timeout_ns, list);
    return st;
}

weft_status wf_ps_enter(weft_ctx *ctx, struct wf_spec *spec, int *self, int64_t timeout_ns)
{
    int64_t begin = wf_now(ctx);
    char *list = NULL;
    weft_status st;

    if (!spec->task[*self].added)
        return WEFT_OK;
    for (;;) {
        st = ask_chiefs(ctx, spec, *self, &list);
        if (!st || wf_now(ctx) - begin > timeout_ns)
            break;
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
    if (!st)
        st = take_list(ctx, spec, self, list);
    wf_free(ctx, list);
    return st ? wf_err_wrap(st, "asking the chief to be added") : WEFT_OK;
}
