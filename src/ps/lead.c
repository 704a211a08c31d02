/* lead.c - a chief as a process: its machine over links, and its store. */
#include "ps/lead.h"

#include "base/fprint.h"
#include "cluster/codec.h"
#include "ps/place.h"

#define AHEAD_NS 500000000

/* ---- what the machine wants ------------------------------------------------------------------ */

static weft_status send(struct wf_ps_chief *c, const struct wf_message *m)
{
    struct wf_buf b;
    weft_status st = WEFT_OK;

    wf_buf_init(&b, c->node.ctx, 1 << 30);
    if (m->type == WF_MSG_EPOCH)
        st = wf_epoch_write(m->record, &b);
    if (m->type == WF_MSG_CONTROL)
        wf_site_send_copy(&c->node, m->to, m->type, m, c->control.p, c->control.n);
    else if (!st)
        wf_site_send_copy(&c->node, m->to, m->type, m, b.data, b.len);
    wf_buf_free(&b);
    return st;
}

static bool is_store(const struct wf_action *a)
{
    return a->type == WF_ACT_READ || a->type == WF_ACT_CREATE_TERM ||
           a->type == WF_ACT_CREATE_EPOCH || a->type == WF_ACT_CREATE_MANIFEST ||
           a->type == WF_ACT_CREATE_CONTROL;
}

/* A job that resumes begins with the version that its workers have: of a checkpoint that this store
 * need not know. */
static void add_start(const struct wf_ps_chief *c, struct wf_store_answer *a)
{
    if (a->to == WF_ACT_READ && c->start > (a->has_manifest ? a->t : 0)) {
        a->history = a->has_manifest ? a->history : 0;
        a->has_manifest = true;
        a->t = c->start;
    }
}

static weft_status set_control(struct wf_ps_chief *c, struct wf_ps_control *to, uint64_t history,
                               int64_t t, const struct wf_control_bytes *b)
{
    char *p = wf_alloc(c->node.ctx, (size_t)b->n + 1);

    if (!p)
        return wf_err_nomem(c->node.ctx, (size_t)b->n, "control record");
    if (b->n)
        memcpy(p, b->p, (size_t)b->n);
    wf_free(c->node.ctx, to->p);
    *to = (struct wf_ps_control){history, t, b->n, p};
    return WEFT_OK;
}

/* The store of a job that lives in one process. */
static weft_status do_here(struct wf_ps_chief *c, const struct wf_action *act,
                           struct wf_store_answer *a)
{
    weft_status st = WEFT_OK;

    a->ok = true;
    if (act->type == WF_ACT_CREATE_TERM)
        c->term = act->number;
    if (act->type == WF_ACT_CREATE_EPOCH) {
        wf_epoch_free(c->node.ctx, c->last);
        c->last = NULL;
        st = wf_epoch_copy(c->node.ctx, act->record, &c->last);
    }
    if (act->type == WF_ACT_CREATE_MANIFEST) {
        c->has_saved = true;
        c->saved_history = act->history;
        c->saved = act->t;
    }
    if (act->type == WF_ACT_READ || act->type == WF_ACT_CREATE_MANIFEST) {
        a->has_manifest = c->has_saved;
        a->history = c->saved_history;
        a->t = c->saved;
    }
    if (act->type == WF_ACT_CREATE_CONTROL) {
        a->history = act->history;
        if (!c->stored.p || c->stored.history != act->history || c->stored.t != act->t)
            st = set_control(c, &c->stored, act->history, act->t, act->payload);
    }
    a->term = c->term;
    a->epoch = c->last;
    if (c->stored.p && c->last && c->stored.history == c->last->history) {
        a->control_t = c->stored.t;
        a->control = c->stored.p;
        a->n_control = c->stored.n;
    }
    return st;
}

/* `weft ctl` drains it. */
static bool goes(void *arg, const struct wf_member *m)
{
    return ((struct wf_ps_chief *)arg)->seen[m->node].drained == m->incarnation;
}

/* The trainer's step, as far as is known. */
static int64_t trained(const struct wf_ps_chief *c, int64_t t)
{
    int64_t aside = 0;

    for (int i = 0; i < c->node.spec.n_tasks && t >= 0; i++)
        if (c->node.spec.task[i].role == WF_ROLE_WORKER && c->seen[i].stat_ns)
            aside = wf_max_i64(aside, c->seen[i].stat.aside);
    return t < 0 ? t : wf_max_i64(0, t - aside);
}

/* How a member went. */
static bool gone(void *arg, const struct wf_member *m, struct wf_gone *g)
{
    const struct wf_ps_chief *c = arg;
    const struct wf_known *k = &c->m.known[m->node];

    *g = (struct wf_gone){.how = WF_GONE_CLOSED, .step = -1};
    if (c->seen[m->node].closed == m->incarnation || k->incarnation > m->incarnation)
        g->how = WF_GONE_CLOSED; /* there may be another process of it already */
    else if (k->stalled)
        g->how = WF_GONE_STALLED;
    else
        g->how = k->leaves ? WF_GONE_LEFT : WF_GONE_SILENT;
    if (k->incarnation != m->incarnation)
        return true;
    g->after_ns = c->m.now - (k->stalled ? k->behind_ns : k->heard_ns);
    g->doing = k->doing;
    g->step = trained(c, k->step);
    g->shard = k->shard;
    return true;
}

/* Who holds up the others, before anything is done about it. */
static void tell_stragglers(struct wf_ps_chief *c)
{
    char text[WF_PS_EVENT_TEXT], did[WF_DID_TEXT];

    for (int i = 0; i < c->node.spec.n_tasks; i++) {
        const struct wf_known *k = &c->m.known[i];
        bool news = k->straggles && !c->seen[i].straggles && !k->stalled;

        c->seen[i].straggles = k->straggles;
        if (!news)
            continue;
        wf_snprintf(text, sizeof text,
                    "is alive, but made no progress for %.0f s since it %s, and others wait; it is "
                    "left out after %.0f s",
                    (double)(c->m.now - k->behind_ns) * 1e-9,
                    wf_did(k->doing, trained(c, k->step), k->shard, did),
                    (double)wf_stall_limit(&c->m, k) * 1e-9);
        wf_ps_chief_say(c, c->node.spec.task[i].name, text);
    }
}

static void tell_epoch(struct wf_ps_chief *c, const struct wf_epoch *is)
{
    struct wf_epoch_known known = {.finished = c->finished,
                                   .goes = goes,
                                   .gone = gone,
                                   .goes_arg = c,
                                   .step = wf_ps_chief_step_of(c)};

    wf_epoch_tell(&c->node.spec, &known, c->m.epoch, is, wf_ps_chief_say, c);
}

/* A worker must not delete the checkpoint that the job would go back to. */
static void tell_kept(struct wf_ps_chief *c, int node)
{
    int64_t step = c->made ? wf_chief_restart(&c->m) : 0;

    if (c->made && c->m.state == WF_CHIEF_ACTS && c->m.has_manifest &&
        c->node.spec.task[node].role == WF_ROLE_WORKER)
        wf_site_send_copy(&c->node, node, WF_SITE_KEPT, NULL, &step, sizeof step);
}

/* A former chief was asked to drain them: it is in the epoch. Whoever starts tasks again may not
 * know it yet. */
static void take_drained(struct wf_ps_chief *c)
{
    for (int i = 0; c->m.epoch && i < c->m.epoch->n_members; i++) {
        const struct wf_member *m = &c->m.epoch->member[i];

        if (!m->leaves || c->seen[m->node].drained == m->incarnation)
            continue;
        c->seen[m->node].drained = m->incarnation;
        wf_ps_chief_say(c, c->node.spec.task[m->node].name, "is drained");
    }
}

/* The store has answered. */
static weft_status take_answer(struct wf_ps_chief *c, const struct wf_action *act,
                               struct wf_store_answer *a)
{
    weft_status st = a->epoch && a->epoch->list ? wf_ps_chief_extend(c, a->epoch->list) : WEFT_OK;

    if (st)
        return st;
    add_start(c, a);
    if (a->ok && act->type == WF_ACT_CREATE_TERM && act->number > 1)
        wf_ps_chief_say(c, c->node.spec.task[c->node.self].name, "took over as chief");
    if (a->ok && act->type == WF_ACT_CREATE_EPOCH)
        tell_epoch(c, act->record);
    c->node.acts.n = 0;
    st = wf_chief_answer(&c->m, wf_site_now(&c->node), a, &c->node.acts);
    if (!st && a->control && wf_chief_controls(&c->m, a))
        st = set_control(c, &c->control, c->m.epoch->history, a->control_t,
                         &(struct wf_control_bytes){a->control, a->n_control});
    if (!st && c->m.state == WF_CHIEF_ACTS)
        take_drained(c);
    if (!st && act->type == WF_ACT_CREATE_EPOCH)
        wf_ps_chief_dismiss(c);
    for (int i = 0; i < c->node.spec.n_tasks && !st; i++)
        if (act->type == WF_ACT_CREATE_MANIFEST || act->type == WF_ACT_CREATE_EPOCH)
            tell_kept(c, i);
    return st ? st : wf_ps_chief_carry_out(c);
}

/* wf_asked_fn */
static void asked(void *arg, const struct wf_action *act, weft_status st,
                  const struct wf_store_answer *answer)
{
    struct wf_ps_chief *c = arg;
    struct wf_store_answer a = *answer;

    wf_site_lock(&c->node);
    if (!c->node.st && !c->node.leaves && !c->ended)
        wf_site_fail(&c->node, st ? st : take_answer(c, act, &a));
    wf_site_unlock(&c->node);
}

/* wf_asking_say_fn */
static void say_of_store(void *arg, const char *what)
{
    struct wf_ps_chief *c = arg;

    wf_site_lock(&c->node);
    if (!c->node.st && !c->node.leaves && !c->ended)
        wf_ps_chief_say(c, c->node.spec.task[c->node.self].name, what);
    wf_site_unlock(&c->node);
}

static weft_status ask_store(struct wf_ps_chief *c, const struct wf_action *act)
{
    struct wf_store_answer a = {.to = act->type, .control_t = -1};
    weft_status st;

    if (c->asking)
        return wf_asking_add(c->asking, act);
    st = do_here(c, act, &a);
    return st ? st : take_answer(c, act, &a);
}

/* First all messages: what they name lasts until the machine's next step. */
weft_status wf_ps_chief_carry_out(struct wf_ps_chief *c)
{
    struct wf_actions *a = &c->node.acts;
    struct wf_action ask[4];
    int n_ask = 0;
    weft_status st = a->st;

    for (int64_t i = 0; i < a->n && !st; i++)
        if (a->act[i].type == WF_ACT_SEND)
            st = send(c, &a->act[i].msg);
        else if (is_store(&a->act[i]) && n_ask < WF_COUNT(ask))
            ask[n_ask++] = a->act[i];
    for (int i = 0; i < n_ask && !st; i++)
        st = ask_store(c, &ask[i]);
    return st;
}

/* ---- the job --------------------------------------------------------------------------------- */

/* Leases that a worker holds are enough for a while, so that it does not wait for the chief. */
static struct wf_ledger_plan ledger_of(const struct wf_ps_plan *p)
{
    return (struct wf_ledger_plan){.window = p->window,
                                   .n_shards = p->n_shards,
                                   .n_steps = p->n_steps,
                                   .gate_every = p->gate_every,
                                   .gate_first = p->gate_first,
                                   .ahead = (int)wf_max_i64(p->window / 4, 1),
                                   .ahead_ns = AHEAD_NS};
}

static weft_status make(struct wf_ps_chief *c)
{
    const struct wf_spec *spec = &c->node.spec;
    const struct wf_ps_plan *job = &c->read->plan;
    struct wf_chief_plan plan = {.n_nodes = spec->n_tasks,
                                 .max_nodes = c->node.max_tasks,
                                 .n_servers = wf_spec_count(spec, WF_ROLE_SERVER),
                                 .n_workers = wf_spec_count(spec, WF_ROLE_WORKER),
                                 .n_shards = job->window ? 0 : job->n_shards,
                                 .ledger = ledger_of(job),
                                 .n_copies = c->n_copies,
                                 .timeout_ns = spec->timeout_ns,
                                 .tick_ns = spec->retry_ns / 2,
                                 .balance_ns = spec->balance_ns,
                                 .stall_ns = spec->stall_ns};
    struct wf_cut *cut;
    weft_status st = wf_cut_new(c->node.ctx, &c->read->rules, c->read->cut_bytes, &cut);

    if (st)
        return st;
    plan.n_pieces = cut->n_pieces;
    c->piece_bytes = wf_alloc_n(c->node.ctx, cut->n_pieces + 1, sizeof *c->piece_bytes);
    c->piece_home = wf_alloc_n(c->node.ctx, cut->n_pieces + 1, sizeof *c->piece_home);
    if (c->piece_bytes && c->piece_home)
        wf_ps_weigh(cut, c->read->cut_bytes, spec, c->piece_bytes, c->piece_home);
    wf_cut_free(cut);
    if (!c->piece_bytes || !c->piece_home)
        return wf_err_nomem(c->node.ctx, sizeof *c->piece_bytes, "chief");
    plan.piece_bytes = c->piece_bytes;
    plan.piece_home = c->piece_home;
    st = wf_chief_init(&c->m, c->node.ctx, &plan, c->node.self);
    c->made = !st;
    return st ? st : wf_ps_chief_list(c);
}

/* What a worker trains must be what the others train. */
static weft_status compare(struct wf_ps_chief *c, const struct wf_arrived *a)
{
    struct wf_ps_job *other;
    weft_status st = wf_ps_job_read(c->node.ctx, a->p + sizeof c->start,
                                    a->n - (int64_t)sizeof c->start, &other);

    if (!st) {
        st = wf_ps_job_same(c->read, other);
        wf_ps_job_free(other);
    }
    if (st)
        wf_site_refuse(&c->node, a->from);
    return WEFT_OK;
}

struct differences {
    struct wf_ps_chief *c;
    const char *task;
    char first[512];
};

static void note_difference(void *arg, const struct wf_fp_diff *d)
{
    struct differences *s = arg;

    if (!s->first[0])
        wf_fp_say(d, "the job", s->first, sizeof s->first);
}

static void warn_of_kernels(void *arg, const struct wf_fp_diff *d)
{
    const struct differences *s = arg;
    char text[512];

    wf_log(s->c->node.ctx, WEFT_LOG_WARN,
           "task '%s': %s: the last bits of results depend on who computes a shard; with "
           "resources.kernels: portable they do not",
           s->task, wf_fp_say(d, "the job", text, sizeof text));
}

/* It trains the same variables in the same way; but so would another model, with other data. */
static weft_status compare_print(struct wf_ps_chief *c, const struct wf_fprint *print, int from)
{
    const unsigned kernels = 1u << WF_FP_KERNELS, rest = (1u << WF_N_FP) - 1 - kernels;
    struct differences s = {.c = c, .task = c->node.spec.task[from].name};
    unsigned found;
    weft_status st = wf_fp_compare(print, c->print, rest, note_difference, &s, &found);

    if (!st && found) {
        wf_err(WEFT_EPEER, "%s", s.first);
        wf_site_refuse(&c->node, from);
        return WEFT_OK;
    }
    return st ? st : wf_fp_compare(print, c->print, kernels, warn_of_kernels, &s, &found);
}

static weft_status take_print(struct wf_ps_chief *c, const struct wf_arrived *a)
{
    weft_ctx *ctx = c->node.ctx;
    struct wf_fprint *print = wf_alloc(ctx, sizeof *print);
    weft_status st;

    if (!print)
        return wf_err_nomem(ctx, sizeof *print, "fingerprint");
    st = wf_fp_parse(ctx, a->p ? a->p : "", a->n, print);
    if (!st && !c->print) {
        c->print = print;
        return WEFT_OK;
    }
    if (!st)
        st = compare_print(c, print, a->from);
    else if (st != WEFT_ENOMEM && st != WEFT_ELIMIT) {
        wf_site_refuse(&c->node, a->from);
        st = WEFT_OK;
    }
    wf_fp_free(print);
    wf_free(ctx, print);
    return st;
}

static void tell(struct wf_ps_chief *c, int to)
{
    if (c->made)
        wf_site_send_copy(&c->node, to, WF_SITE_JOB, NULL, c->job, c->n_job);
}

static weft_status take_job(struct wf_ps_chief *c, const struct wf_arrived *a)
{
    weft_status st;

    if (a->n < (int64_t)sizeof c->start)
        return WEFT_OK;
    c->finished[a->from] = false; /* it may have come back */
    if (c->made)
        return compare(c, a);
    st = wf_ps_job_read(c->node.ctx, a->p + sizeof c->start, a->n - (int64_t)sizeof c->start,
                        &c->read);
    if (st == WEFT_EPEER) {
        wf_site_refuse(&c->node, a->from);
        return WEFT_OK;
    }
    if (st)
        return st;
    c->job = wf_alloc(c->node.ctx, (size_t)a->n);
    if (!c->job)
        return wf_err_nomem(c->node.ctx, (size_t)a->n, "job");
    memcpy(c->job, a->p, (size_t)a->n);
    memcpy(&c->start, a->p, sizeof c->start);
    c->n_job = a->n;
    st = make(c);
    for (int i = 0; i < c->node.spec.n_tasks && !st; i++)
        if (c->node.spec.task[i].role == WF_ROLE_SERVER)
            tell(c, i);
    return st;
}

/* The job has ended when every worker that is left has finished, and one has. */
static void check_end(struct wf_ps_chief *c)
{
    const struct wf_spec *spec = &c->node.spec;
    bool any = false;

    for (int i = 0; i < spec->n_tasks; i++) {
        /* one whose link is down for the moment still belongs to the job */
        bool belongs = c->made && c->m.epoch && wf_epoch_member(c->m.epoch, i);
        bool there = (belongs || wf_site_has(&c->node, i)) && spec->task[i].role == WF_ROLE_WORKER;
        bool hangs = c->made && c->m.known[i].stalled && !belongs; /* no one waits for it */

        any |= c->finished[i];
        if (there && !hangs && !c->finished[i])
            return;
    }
    if (!any || c->ended)
        return;
    c->ended = true;
    for (int i = 0; i < spec->n_tasks; i++) {
        struct wf_message m = {
            .type = WF_MSG_STOP, .from = c->node.self, .to = i, .role = WF_ROLE_CHIEF};

        if (spec->task[i].role == WF_ROLE_SERVER ||
            (spec->task[i].role == WF_ROLE_CHIEF && i != c->node.self)) /* it must not take over */
            wf_site_send_copy(&c->node, i, WF_MSG_STOP, &m, NULL, 0);
    }
}

/* ---- events ---------------------------------------------------------------------------------- */

static weft_status received(void *arg, struct wf_arrived *a)
{
    struct wf_ps_chief *c = arg;
    struct wf_control_bytes bytes = {a->p, a->n};
    weft_status st;

    if (a->kind == WF_SITE_JOB)
        return take_job(c, a);
    if (a->kind == WF_SITE_PRINT)
        return take_print(c, a);
    if (a->kind == WF_SITE_FINISHED) {
        c->finished[a->from] = true;
        wf_ps_chief_say(c, c->node.spec.task[a->from].name, "has finished");
        check_end(c);
    }
    if (a->kind == WF_SITE_STAT)
        wf_ps_chief_stat(c, a);
    if (a->kind == WF_MSG_STOP) { /* of the chief that led the job */
        c->ended = true;
        return WEFT_OK;
    }
    if (a->kind == WF_SITE_JOB_ASK)
        tell(c, a->from);
    if (!c->made || a->kind >= WF_MSG_TYPES)
        return WEFT_OK;
    a->msg.payload = &bytes;
    c->node.acts.n = 0;
    st = wf_chief_step(&c->m, wf_site_now(&c->node), &a->msg, &c->node.acts);
    if (a->kind == WF_MSG_SAVED) /* again: the message may have been lost */
        tell_kept(c, a->from);
    return st ? st : wf_ps_chief_carry_out(c);
}

static weft_status tick(void *arg, int64_t now)
{
    struct wf_ps_chief *c = arg;
    weft_status st;

    if (!c->made || c->ended)
        return WEFT_OK;
    wf_ps_chief_dismiss(c); /* before they learn that they are out, and join again */
    c->node.acts.n = 0;
    st = wf_chief_tick(&c->m, now, &c->node.acts);
    tell_stragglers(c);
    if (!st)
        st = wf_ps_chief_carry_out(c);
    check_end(c);
    return st;
}

static weft_status down(void *arg, int node, uint64_t incarnation, bool closed)
{
    struct wf_ps_chief *c = arg;
    weft_status st;

    check_end(c);
    if (!c->made || !closed || c->ended)
        return WEFT_OK;
    c->seen[node].closed = incarnation;
    c->node.acts.n = 0;
    st = wf_chief_lost(&c->m, wf_site_now(&c->node), node, incarnation, &c->node.acts);
    return st ? st : wf_ps_chief_carry_out(c);
}

static const struct wf_site_calls calls = {
    .received = received, .tick = tick, .down = down, .ask = wf_ps_chief_ask};

static void free_chief(struct wf_ps_chief *c)
{
    weft_ctx *ctx = c->node.ctx;

    wf_asking_free(c->asking);
    if (c->made)
        wf_chief_free(&c->m);
    wf_ps_job_free(c->read);
    wf_epoch_free(ctx, c->last);
    wf_free(ctx, c->stored.p);
    wf_free(ctx, c->control.p);
    wf_free(ctx, c->piece_bytes);
    wf_free(ctx, c->piece_home);
    wf_free(ctx, c->finished);
    wf_free(ctx, c->seen);
    wf_free(ctx, c->job);
    if (c->print)
        wf_fp_free(c->print);
    wf_free(ctx, c->print);
    wf_free(ctx, c);
}

static weft_status open_store(struct wf_ps_chief *c, const struct wf_chief_store_opts *o)
{
    struct wf_chief_store *store;
    weft_status st = wf_chief_store_open(c->node.ctx, o, &store);

    return st ? st : wf_asking_start(c->node.ctx, store, asked, say_of_store, c, &c->asking);
}

weft_status wf_ps_chief_start(weft_ctx *ctx, const struct wf_spec *spec, int self,
                              const struct wf_chief_store_opts *store, int n_copies,
                              struct wf_ps_chief **out)
{
    struct wf_ps_chief *c = wf_alloc(ctx, sizeof *c);
    weft_status st = WEFT_OK;

    if (!c)
        return wf_err_nomem(ctx, sizeof *c, "chief");
    c->node.ctx = ctx;
    c->n_copies = n_copies;
    c->finished = wf_alloc_n(ctx, spec->n_tasks + WF_MAX_ADDED, sizeof *c->finished);
    c->seen = wf_alloc_n(ctx, spec->n_tasks + WF_MAX_ADDED, sizeof *c->seen);
    if (!c->finished || !c->seen)
        st = wf_err_nomem(ctx, sizeof *c, "chief");
    if (!st && store)
        st = open_store(c, store);
    if (!st)
        st = wf_site_start(&c->node, ctx, spec, self, &calls, c);
    if (st) {
        wf_asking_stop(c->asking);
        free_chief(c);
        return st;
    }
    *out = c;
    return WEFT_OK;
}

void wf_ps_chief_tell(struct wf_ps_chief *c, wf_event_fn *fn, void *arg)
{
    wf_site_lock(&c->node);
    c->tell = fn;
    c->tell_arg = arg;
    wf_site_unlock(&c->node);
}

void wf_ps_chief_adds(struct wf_ps_chief *c, wf_add_fn *fn, void *arg)
{
    wf_site_lock(&c->node);
    c->add = fn;
    c->add_arg = arg;
    wf_site_unlock(&c->node);
}

weft_status wf_ps_chief_counts(struct wf_ps_chief *c, struct wf_ps_counts *out)
{
    return wf_site_count(&c->node, out);
}

static bool has_ended(void *arg)
{
    return ((struct wf_ps_chief *)arg)->ended;
}

weft_status wf_ps_chief_wait(struct wf_ps_chief *c, int64_t timeout_ns)
{
    return wf_site_wait(&c->node, has_ended, c, timeout_ns, "the end of the job");
}

void wf_ps_chief_stop(struct wf_ps_chief *c)
{
    if (!c)
        return;
    wf_asking_stop(c->asking); /* its answers need the node, */
    wf_site_stop(&c->node);    /* which makes requests until its end */
    free_chief(c);
}
