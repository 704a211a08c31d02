/* answers.c - what a chief does for `weft ctl` and for tasks that want to be added to the job.
 *
 * A question is a line of words. A task may only ask to be added, under its own name; everything
 * else needs the role of control. Over tls both are in the certificate. */
#define _GNU_SOURCE
#include "ps/lead.h"

#include <stdlib.h>

#include "base/number.h"

enum { MAX_WORDS = 3 };

struct question {
    struct wf_link *link;
    uint64_t id;
    char text[WF_SITE_MAX_QUESTION + 1];
    char *word[MAX_WORDS];
    int n;
};

static void split(struct question *q)
{
    char *rest = NULL;

    for (char *w = strtok_r(q->text, " ", &rest); w && q->n < MAX_WORDS;
         w = strtok_r(NULL, " ", &rest))
        q->word[q->n++] = w;
}

WEFT_PRINTF(4, 5)
static void answer(struct wf_ps_chief *c, const struct question *q, enum wf_site_mark mark,
                   const char *fmt, ...)
{
    char text[600];
    va_list args;

    va_start(args, fmt);
    wf_vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    wf_site_answer(&c->node, q->link, q->id, mark, text);
}

static bool acts(const struct wf_ps_chief *c)
{
    return c->made && c->m.state == WF_CHIEF_ACTS;
}

static const char *name_of(const struct wf_ps_chief *c, int node)
{
    return c->node.spec.task[node].name;
}

/* ---- tasks that are added -------------------------------------------------------------------- */

static weft_status list_of(const struct wf_ps_chief *c, struct wf_buf *out)
{
    wf_buf_init(out, c->node.ctx, WF_MAX_ADDED_TEXT);
    return wf_added_write(c->node.spec.task, c->node.spec.n_tasks, out);
}

weft_status wf_ps_chief_list(struct wf_ps_chief *c)
{
    struct wf_buf b;
    weft_status st = list_of(c, &b);

    if (!st && c->made)
        st = wf_chief_extend(&c->m, c->node.spec.n_tasks, b.data ? b.data : "");
    wf_buf_free(&b);
    return st;
}

weft_status wf_ps_chief_extend(struct wf_ps_chief *c, const char *list)
{
    int before = c->node.spec.n_tasks;
    weft_status st = wf_site_extend(&c->node, list);

    return st || c->node.spec.n_tasks == before ? st : wf_ps_chief_list(c);
}

static bool knows(const struct wf_ps_chief *c, const char *name)
{
    for (int i = 0; i < c->node.spec.n_tasks; i++)
        if (strcmp(name_of(c, i), name) == 0)
            return true;
    return false;
}

/* The list as it is, and one more. */
static weft_status append(struct wf_ps_chief *c, const struct wf_task *t)
{
    struct wf_buf b;
    weft_status st = list_of(c, &b);

    if (!st)
        st = wf_added_write(t, 1, &b);
    if (!st)
        st = wf_ps_chief_extend(c, b.data);
    wf_buf_free(&b);
    return st;
}

/* "enter NAME [ADDRESS]": the answer is the list of added tasks, which gives it its number. */
static void enter(struct wf_ps_chief *c, const struct question *q)
{
    const struct wf_identity *who = wf_link_peer(q->link);
    struct wf_task t;
    struct wf_buf b;
    weft_status st;

    if (q->n < 2 || strcmp(q->word[1], who->name) != 0) {
        answer(c, q, WF_SITE_NO, "'%s' cannot be added by '%s'", q->n < 2 ? "" : q->word[1],
               who->name);
        return;
    }
    st = wf_added_make(q->word[1], q->n > 2 ? q->word[2] : "", &t);
    if (!st && strcmp(wf_role_name(t.role), who->role) != 0)
        st = wf_err(WEFT_EPEER, "'%s' says that it is a %s", who->name, who->role);
    if (!st && !knows(c, t.name)) {
        st = append(c, &t);
        if (!st)
            wf_ps_chief_say(c, t.name, "is added to the job");
    }
    if (st) {
        answer(c, q, WF_SITE_NO, "%s", weft_error());
        return;
    }
    st = list_of(c, &b);
    if (st)
        answer(c, q, WF_SITE_NO, "%s", weft_error());
    else
        wf_site_answer(&c->node, q->link, q->id, WF_SITE_YES, b.data ? b.data : "");
    wf_buf_free(&b);
}

/* ---- tasks that are drained ------------------------------------------------------------------ */

/* Members of a role that are not asked to go. */
static int count_staying(const struct wf_ps_chief *c, enum wf_role role)
{
    int n = 0;

    for (int i = 0; i < c->m.epoch->n_members; i++)
        n += c->m.epoch->member[i].role == role && !c->m.known[c->m.epoch->member[i].node].leaves;
    return n;
}

/* NULL, or why the task has to stay. */
static const char *must_stay(const struct wf_ps_chief *c, int node)
{
    const struct wf_member *m = wf_epoch_member(c->m.epoch, node);

    if (c->node.spec.task[node].role == WF_ROLE_CHIEF)
        return "a chief holds nothing: just end it";
    if (c->node.spec.task[node].role == WF_ROLE_EVALUATOR)
        return "an evaluator has no work of the others: just end it";
    if (!m || m->incarnation != c->m.known[node].incarnation)
        return "it does not belong to the job now";
    if (m->role == WF_ROLE_WORKER && count_staying(c, m->role) < 2)
        return "it is the last worker: add one before, or use stop";
    if (m->role == WF_ROLE_SERVER && count_staying(c, m->role) < c->n_copies + 2)
        return c->n_copies ? "the other servers could not hold two copies of each piece: add one "
                             "before"
                           : "it is the last server: add one before, or use stop";
    return NULL;
}

static void dismiss(struct wf_ps_chief *c, int node)
{
    struct wf_message m = {
        .type = WF_MSG_STOP, .from = c->node.self, .to = node, .role = WF_ROLE_CHIEF};
    char what = WF_PS_ASK_DRAINED;

    if (c->node.spec.task[node].role == WF_ROLE_WORKER)
        wf_site_send_copy(&c->node, node, WF_SITE_ASKED, NULL, &what, 1);
    else
        wf_site_send_copy(&c->node, node, WF_MSG_STOP, &m, NULL, 0);
}

void wf_ps_chief_dismiss(struct wf_ps_chief *c)
{
    for (int i = 0; c->m.epoch && i < c->node.spec.n_tasks; i++)
        if (c->seen[i].drained && c->m.known[i].incarnation == c->seen[i].drained &&
            !wf_epoch_member(c->m.epoch, i) && wf_site_has(&c->node, i))
            dismiss(c, i);
}

static void drain(struct wf_ps_chief *c, const struct question *q)
{
    const char *why;
    int node = 0;
    weft_status st;

    if (q->n != 2 || wf_spec_find(&c->node.spec, q->word[1], &node)) {
        answer(c, q, WF_SITE_NO, "there is no task '%s'", q->n > 1 ? q->word[1] : "");
        return;
    }
    if (!c->m.epoch) {
        answer(c, q, WF_SITE_NO, "the job has not begun");
        return;
    }
    if (c->m.known[node].leaves && wf_epoch_member(c->m.epoch, node)) {
        answer(c, q, WF_SITE_YES, "%s is being drained", name_of(c, node));
        return;
    }
    why = must_stay(c, node);
    if (why) {
        answer(c, q, WF_SITE_NO, "%s cannot be drained: %s", name_of(c, node), why);
        return;
    }
    /* whoever starts tasks again must know it before the process ends */
    wf_ps_chief_say(c, name_of(c, node), "is drained");
    c->seen[node].drained = c->m.known[node].incarnation;
    c->node.acts.n = 0;
    st = wf_chief_drain(&c->m, wf_site_now(&c->node), node, &c->node.acts);
    wf_site_fail(&c->node, st ? st : wf_ps_chief_carry_out(c));
    answer(c, q, WF_SITE_YES, "%s is being drained", name_of(c, node));
}

/* ---- what is asked of workers ---------------------------------------------------------------- */

static void checkpoint(struct wf_ps_chief *c, const struct question *q)
{
    int node = c->m.epoch ? wf_epoch_decider(c->m.epoch) : WF_NOBODY;
    char what = WF_PS_ASK_CHECKPOINT;

    if (node == WF_NOBODY) {
        answer(c, q, WF_SITE_NO, "there is no worker that could write a checkpoint");
        return;
    }
    wf_site_send_copy(&c->node, node, WF_SITE_ASKED, NULL, &what, 1);
    answer(c, q, WF_SITE_YES, "%s writes a checkpoint after this step", name_of(c, node));
}

static void stop(struct wf_ps_chief *c, const struct question *q)
{
    char what = WF_PS_ASK_STOP;
    int n = 0;

    for (int i = 0; c->m.epoch && i < c->m.epoch->n_members; i++)
        if (c->m.epoch->member[i].role == WF_ROLE_WORKER) {
            wf_site_send_copy(&c->node, c->m.epoch->member[i].node, WF_SITE_ASKED, NULL, &what, 1);
            n++;
        }
    if (n == 0) {
        answer(c, q, WF_SITE_NO, "the job has not begun: there are no workers to stop");
        return;
    }
    wf_ps_chief_say(c, name_of(c, c->node.self), "the job is asked to stop after this step");
    answer(c, q, WF_SITE_YES, "the job stops after this step");
}

/* "add ROLE N" */
static void add(struct wf_ps_chief *c, const struct question *q)
{
    int64_t n = 0;
    enum wf_role role;

    if (q->n != 3 || !wf_parse_i64(q->word[2], (int64_t)strlen(q->word[2]), &n) || n < 1 ||
        n > WF_PS_MAX_ADD || wf_role_find(q->word[1], (int64_t)strlen(q->word[1]), &role) ||
        (role != WF_ROLE_SERVER && role != WF_ROLE_WORKER)) {
        answer(c, q, WF_SITE_NO, "1 to %d servers or workers can be added at a time",
               WF_PS_MAX_ADD);
        return;
    }
    if (!c->add || !c->add(c->add_arg, wf_role_name(role), (int)n)) {
        answer(c, q, WF_SITE_NO,
               "this job was not started by `weft launch`, which could start tasks: run "
               "`weft node --extra --task %s/NUMBER` with the job's --cluster and --keys",
               wf_role_name(role));
        return;
    }
    answer(c, q, WF_SITE_YES, "%d further task%s of role %s %s started", (int)n, n == 1 ? "" : "s",
           wf_role_name(role), n == 1 ? "is" : "are");
}

static void status(struct wf_ps_chief *c, const struct question *q)
{
    struct wf_buf b;
    weft_status st;

    wf_buf_init(&b, c->node.ctx, 1 << 22);
    st = q->n > 1 && strcmp(q->word[1], "json") == 0 ? wf_ps_chief_status(c, &b)
                                                     : wf_ps_chief_table(c, &b);
    wf_site_answer(&c->node, q->link, q->id, st ? WF_SITE_NO : WF_SITE_YES,
                   st ? weft_error() : b.data);
    wf_buf_free(&b);
}

/* ---- questions ------------------------------------------------------------------------------- */

static const struct {
    const char *word;
    bool of_tasks; /* asked by a task, not by control */
    void (*fn)(struct wf_ps_chief *c, const struct question *q);
} questions[] = {
    {"status", false, status}, {"drain", false, drain}, {"checkpoint", false, checkpoint},
    {"stop", false, stop},     {"add", false, add},     {"enter", true, enter}};

void wf_ps_chief_ask(void *arg, struct wf_link *l, uint64_t id, const char *question)
{
    struct wf_ps_chief *c = arg;
    bool control = strcmp(wf_link_peer(l)->role, WF_CONTROL_ROLE) == 0;
    struct question q = {.link = l, .id = id};

    wf_snprintf(q.text, sizeof q.text, "%s", question);
    split(&q);
    if (c->ended) {
        answer(c, &q, WF_SITE_NO, "the job has ended");
        return;
    }
    if (!acts(c)) {
        answer(c, &q, WF_SITE_ELSEWHERE, "%s: the job has not begun, or another chief leads it",
               name_of(c, c->node.self));
        return;
    }
    for (int i = 0; q.n && i < WF_COUNT(questions); i++)
        if (strcmp(questions[i].word, q.word[0]) == 0 && questions[i].of_tasks == !control) {
            questions[i].fn(c, &q);
            return;
        }
    wf_log(c->node.ctx, WEFT_LOG_WARN, "%s asks for something that it may not: refused",
           wf_link_name(l));
    answer(c, &q, WF_SITE_NO, "'%.40s' is not a question of a %s", q.n ? q.word[0] : "",
           wf_link_peer(l)->role);
}
