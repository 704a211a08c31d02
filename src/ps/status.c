/* status.c - what a chief knows of the job, as JSON, and the last events. */
#define _GNU_SOURCE
#include "ps/lead.h"

#include "base/number.h"

#include <time.h>

void wf_ps_chief_say(void *arg, const char *task, const char *what)
{
    struct wf_ps_chief *c = arg;
    struct wf_ps_event *e = &c->event[c->n_events++ % WF_PS_EVENTS];
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    e->at_s = now.tv_sec;
    wf_snprintf(e->task, sizeof e->task, "%s", task);
    wf_snprintf(e->what, sizeof e->what, "%s", what);
    if (c->tell)
        c->tell(c->tell_arg, task, what);
}

void wf_ps_chief_stat(struct wf_ps_chief *c, const struct wf_arrived *a)
{
    struct wf_ps_seen *s = &c->seen[a->from];

    if (!a->p || a->n != (int64_t)sizeof s->stat)
        return;
    s->before = s->stat;
    s->before_ns = s->stat_ns;
    memcpy(&s->stat, a->p, sizeof s->stat);
    s->stat_ns = wf_site_now(&c->node);
    if (s->stat.samples < s->before.samples || s->stat.sent < s->before.sent) /* another process */
        s->before_ns = 0;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void put_text(struct wf_buf *b, const char *text)
{
    wf_buf_printf(b, "\"");
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            wf_buf_printf(b, "\\%c", *text);
        else if ((unsigned char)*text < 32)
            wf_buf_printf(b, "\\u%04x", (unsigned)*text);
        else
            wf_buf_printf(b, "%c", *text);
    wf_buf_printf(b, "\"");
}

static double rate_of(const struct wf_ps_seen *s)
{
    double seconds = (double)(s->stat_ns - s->before_ns) * 1e-9;

    return s->before_ns && seconds > 0 ? (double)(s->stat.samples - s->before.samples) / seconds
                                       : 0;
}

/* Of the time between its last two reports; -1: not known. */
static double waiting_of(const struct wf_ps_seen *s)
{
    double seconds = (double)(s->stat_ns - s->before_ns) * 1e-9;
    double waited = s->stat.waited_s - s->before.waited_s;

    if (!s->before_ns || seconds <= 0 || waited < 0)
        return -1;
    return waited < seconds ? waited / seconds : 1;
}

static bool is_leased(const struct wf_ps_chief *c)
{
    return c->made && c->read->plan.window > 0;
}

/* The mean since the worker began. */
static double staleness_of(const struct wf_ps_seen *s)
{
    return s->stat.stale.n > 0 ? (double)s->stat.stale.sum / (double)s->stat.stale.n : 0;
}

/* The chief itself does not report. False: a task has not. */
static bool queues_of(const struct wf_ps_chief *c, int node, struct wf_queues *out)
{
    if (node == c->node.self)
        wf_net_queues(c->node.net, out);
    else
        *out = c->seen[node].stat.queues;
    return node == c->node.self || c->seen[node].stat_ns;
}

static const char *state_of(const struct wf_ps_chief *c, int node)
{
    const struct wf_member *m = wf_epoch_member(c->m.epoch, node);

    if (node == c->node.self)
        return "leads";
    if (c->node.spec.task[node].role == WF_ROLE_CHIEF)
        return wf_site_has(&c->node, node) ? "waits" : "away";
    if (c->node.spec.task[node].role == WF_ROLE_EVALUATOR) /* it is not connected to anybody */
        return "apart";
    if (m && m->leaves) /* it is in the store */
        return "drains";
    if (m)
        return "runs";
    if (c->finished[node])
        return "finished";
    return c->seen[node].drained ? "drained" : wf_site_has(&c->node, node) ? "joins" : "away";
}

/* Pieces of a server. */
struct held {
    int primary, backup, alone;
};

static struct held count_held(const struct wf_ps_chief *c, int node)
{
    struct held n = {0};

    for (int i = 0; c->m.epoch && i < c->m.epoch->n_pieces; i++) {
        const struct wf_holders *h = &c->m.epoch->holders[i];

        n.primary += h->primary == node;
        n.backup += h->backup == node;
        n.alone += h->primary == node && h->backup == WF_NOBODY;
    }
    return n;
}

static int count_shards(const struct wf_ps_chief *c, int node)
{
    int n = 0;

    for (int i = 0; c->m.epoch && i < c->m.epoch->n_shards; i++)
        n += c->m.epoch->worker[i] == node;
    return n;
}

static int count_alone(const struct wf_epoch *e)
{
    int n = 0;

    for (int i = 0; e && i < e->n_pieces; i++)
        n += e->holders[i].backup == WF_NOBODY;
    return n;
}

int64_t wf_ps_chief_step_of(const struct wf_ps_chief *c)
{
    int64_t step = -1;

    for (int i = 0; i < c->node.spec.n_tasks; i++)
        if (c->node.spec.task[i].role == WF_ROLE_WORKER && wf_epoch_member(c->m.epoch, i) &&
            c->seen[i].stat_ns)
            step = wf_max_i64(step, c->seen[i].stat.step);
    return step;
}

static void put_server(const struct wf_ps_chief *c, int node, struct wf_buf *b)
{
    struct held n = count_held(c, node);

    wf_buf_printf(b, ", \"pieces\": %d, \"backups\": %d, \"unprotected\": %d", n.primary, n.backup,
                  n.alone);
    if (!c->seen[node].stat_ns)
        return;
    wf_buf_printf(b, ", \"waited_seconds\": ");
    wf_put_json_real(b, c->seen[node].stat.waited_s);
    wf_buf_printf(b, ", \"busy_seconds\": ");
    wf_put_json_real(b, c->seen[node].stat.busy_s);
}

static void put_worker(const struct wf_ps_chief *c, int node, struct wf_buf *b)
{
    const struct wf_ps_seen *s = &c->seen[node];

    wf_buf_printf(b, ", \"shards\": %d", count_shards(c, node));
    if (!s->stat_ns)
        return;
    wf_buf_printf(b, ", \"step\": %lld, \"samples\": %lld, \"samples_per_second\": ",
                  (long long)s->stat.step, (long long)s->stat.samples);
    wf_put_json_real(b, rate_of(s));
    wf_buf_printf(b, ", \"waited_seconds\": ");
    wf_put_json_real(b, s->stat.waited_s);
    if (!is_leased(c))
        return;
    wf_buf_printf(b, ", \"staleness\": ");
    wf_put_json_real(b, staleness_of(s));
    wf_buf_printf(b, ", \"staleness_most\": %lld", (long long)s->stat.stale.most);
}

static void put_queues(const struct wf_ps_chief *c, int node, struct wf_buf *b)
{
    struct wf_queues q;

    if (!queues_of(c, node, &q))
        return;
    wf_buf_printf(b,
                  ", \"send_queue_messages\": %lld, \"send_queue_bytes\": %lld, "
                  "\"receive_queue_messages\": %lld, \"receive_queue_bytes\": %lld",
                  (long long)q.send_messages, (long long)q.send_bytes,
                  (long long)q.receive_messages, (long long)q.receive_bytes);
}

static void put_tasks(const struct wf_ps_chief *c, struct wf_buf *b)
{
    const struct wf_spec *spec = &c->node.spec;

    wf_buf_printf(b, "\"tasks\": [");
    for (int i = 0; i < spec->n_tasks; i++) {
        wf_buf_printf(b, "%s\n  {\"task\": ", i ? "," : "");
        put_text(b, spec->task[i].name);
        wf_buf_printf(b, ", \"state\": \"%s\", \"added\": %s", state_of(c, i),
                      spec->task[i].added ? "true" : "false");
        if (spec->task[i].role == WF_ROLE_SERVER)
            put_server(c, i, b);
        if (spec->task[i].role == WF_ROLE_WORKER)
            put_worker(c, i, b);
        put_queues(c, i, b);
        wf_buf_printf(b, "}");
    }
    wf_buf_printf(b, "],\n");
}

static void put_events(const struct wf_ps_chief *c, struct wf_buf *b)
{
    int64_t first = wf_max_i64(0, c->n_events - WF_PS_EVENTS);

    wf_buf_printf(b, "\"events\": [");
    for (int64_t i = first; i < c->n_events; i++) {
        const struct wf_ps_event *e = &c->event[i % WF_PS_EVENTS];

        wf_buf_printf(b, "%s\n  {\"time\": %lld, \"task\": ", i > first ? "," : "",
                      (long long)e->at_s);
        put_text(b, e->task);
        wf_buf_printf(b, ", \"what\": ");
        put_text(b, e->what);
        wf_buf_printf(b, "}");
    }
    wf_buf_printf(b, "]");
}

weft_status wf_ps_chief_status(const struct wf_ps_chief *c, struct wf_buf *out)
{
    const struct wf_epoch *e = c->m.epoch;

    wf_buf_printf(out,
                  "{\"chief\": \"%s\", \"term\": %llu, \"epoch\": %llu, \"history\": %llu, "
                  "\"step\": %lld, \"shards\": %d, \"pieces\": %d, \"unprotected\": %d,\n",
                  c->node.spec.task[c->node.self].name, (unsigned long long)c->m.term,
                  e ? (unsigned long long)e->number : 0, e ? (unsigned long long)e->history : 0,
                  (long long)wf_ps_chief_step_of(c), e ? c->read->plan.n_shards : 0,
                  e ? e->n_pieces : 0, count_alone(e));
    put_tasks(c, out);
    put_events(c, out);
    wf_buf_printf(out, "}\n");
    return out->st;
}

/* ---- for people ------------------------------------------------------------------------------ */

static void table_row(const struct wf_ps_chief *c, int node, struct wf_buf *b)
{
    const struct wf_ps_seen *s = &c->seen[node];
    enum wf_role role = c->node.spec.task[node].role;
    bool counts = role == WF_ROLE_WORKER && s->stat_ns && wf_epoch_member(c->m.epoch, node);
    char step[24] = "", rate[24] = "", waiting[16] = "", queued[24] = "", what[80] = "";
    struct held n = count_held(c, node);
    struct wf_queues q;

    if (counts) {
        wf_snprintf(step, sizeof step, "%lld", (long long)s->stat.step);
        wf_snprintf(rate, sizeof rate, "%.0f", rate_of(s));
    }
    if (wf_epoch_member(c->m.epoch, node) && waiting_of(s) >= 0)
        wf_snprintf(waiting, sizeof waiting, "%.0f %%", 100 * waiting_of(s));
    if ((node == c->node.self || wf_epoch_member(c->m.epoch, node)) && queues_of(c, node, &q))
        wf_snprintf(queued, sizeof queued, "%.0f", (double)q.send_bytes + (double)q.receive_bytes);
    if (role == WF_ROLE_WORKER && is_leased(c) && counts)
        wf_snprintf(what, sizeof what, "staleness %.1f, at most %lld", staleness_of(s),
                    (long long)s->stat.stale.most);
    else if (role == WF_ROLE_WORKER && !is_leased(c))
        wf_snprintf(what, sizeof what, "%d shard%s", count_shards(c, node),
                    count_shards(c, node) == 1 ? "" : "s");
    if (role == WF_ROLE_SERVER && n.alone)
        wf_snprintf(what, sizeof what, "%d piece%s (%d UNPROTECTED), backup of %d", n.primary,
                    n.primary == 1 ? "" : "s", n.alone, n.backup);
    else if (role == WF_ROLE_SERVER)
        wf_snprintf(what, sizeof what, "%d piece%s, backup of %d", n.primary,
                    n.primary == 1 ? "" : "s", n.backup);
    if (role == WF_ROLE_EVALUATOR)
        wf_snprintf(what, sizeof what, "follows checkpoints");
    wf_buf_printf(b, "%-12s %-9s %9s %10s %8s %9s  %s\n", c->node.spec.task[node].name,
                  state_of(c, node), step, rate, waiting, queued, what);
}

weft_status wf_ps_chief_table(const struct wf_ps_chief *c, struct wf_buf *out)
{
    const struct wf_epoch *e = c->m.epoch;
    int64_t first = wf_max_i64(0, c->n_events - WF_PS_EVENTS / 2);

    if (e)
        wf_buf_printf(out, "step %lld, epoch %llu of the cluster, %d shards, %d pieces",
                      (long long)wf_ps_chief_step_of(c), (unsigned long long)e->number,
                      c->read->plan.n_shards, e->n_pieces);
    else
        wf_buf_printf(out, "waiting for the tasks of the job");
    if (count_alone(e))
        wf_buf_printf(out, ", %d of them without a backup", count_alone(e));
    wf_buf_printf(out, "\n\n%-12s %-9s %9s %10s %8s %9s  %s\n", "task", "state", "step",
                  "samples/s", "waiting", "queued", "has");
    for (int i = 0; i < c->node.spec.n_tasks; i++)
        table_row(c, i, out);
    if (first < c->n_events)
        wf_buf_printf(out, "\n");
    for (int64_t i = first; i < c->n_events; i++) {
        const struct wf_ps_event *v = &c->event[i % WF_PS_EVENTS];
        time_t at = (time_t)v->at_s;
        struct tm when;
        char text[16] = "";

        if (localtime_r(&at, &when))
            strftime(text, sizeof text, "%H:%M:%S", &when);
        wf_buf_printf(out, "%s %s %s\n", text, v->task, v->what);
    }
    return out->st;
}
