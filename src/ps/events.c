/* events.c - the difference of two epochs as lines: who joined, is gone, was promoted, what
 * moved. */
#include "ps/events.h"

#define NO_STEP ((int64_t)1 << 40) /* without a bound on their number */

struct telling {
    const struct wf_spec *spec;
    const struct wf_epoch_known *known;
    const struct wf_epoch *was, *is;
    wf_event_fn *fn;
    void *arg;
};

static const char *name_of(const struct telling *t, int node)
{
    return node >= 0 && node < t->spec->n_tasks ? t->spec->task[node].name : "?";
}

WEFT_PRINTF(3, 4)
static void say(const struct telling *t, int node, const char *fmt, ...)
{
    char text[256];
    va_list args;

    va_start(args, fmt);
    wf_vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    t->fn(t->arg, name_of(t, node), text);
}

/* ---- members --------------------------------------------------------------------------------- */

static bool had(const struct wf_epoch *e, const struct wf_member *m)
{
    return e && wf_epoch_has(e, m->node, m->incarnation);
}

const char *wf_did(enum wf_doing doing, int64_t step, int shard, char text[WF_DID_TEXT])
{
    static const char *const words[WF_N_DOINGS] = {
        [WF_DOES_WAIT] = "waited for others in",
        [WF_DOES_READ] = "was between steps (it read data or parameters) before",
        [WF_DOES_DECIDE] = "ran callbacks, validation or checkpoints before",
        [WF_DOES_PREPARE] = "was about to begin with"};

    if (doing == WF_DOES_COMPUTE)
        wf_snprintf(text, WF_DID_TEXT, "computed shard %d of step %lld", shard, (long long)step);
    else if (doing == WF_DOES_WAIT && step >= NO_STEP) /* for shards: they belong to any */
        wf_snprintf(text, WF_DID_TEXT, "waited for others");
    else
        wf_snprintf(text, WF_DID_TEXT, "%s step %lld", words[doing], (long long)step);
    return text;
}

/* The shards that the last epoch gave to a worker: they are one run. */
static void put_shards(const struct telling *t, int node, char *text, size_t size)
{
    int first = -1, last = -1;

    for (int i = 0; i < t->was->n_shards; i++)
        if (t->was->worker[i] == node) {
            first = first < 0 ? i : first;
            last = i;
        }
    if (first >= 0 && first == last)
        wf_snprintf(text, size, "; others compute its shard %d", first);
    else if (first >= 0)
        wf_snprintf(text, size, "; others compute its shards %d to %d", first, last);
}

/* A worker, with its last beat. */
static void say_lost(const struct telling *t, const struct wf_member *m, const struct wf_gone *g)
{
    char did[WF_DID_TEXT], how[64] = "connection closed", what[128] = "", shards[64] = "";
    double seconds = (double)g->after_ns * 1e-9;

    if (g->how == WF_GONE_SILENT)
        wf_snprintf(how, sizeof how, "silent for %.1f s", seconds);
    if (g->how == WF_GONE_LEFT)
        wf_snprintf(how, sizeof how, "it left");
    if (g->step >= 0)
        wf_snprintf(what, sizeof what, " while it %s", wf_did(g->doing, g->step, g->shard, did));
    put_shards(t, m->node, shards, sizeof shards);
    if (g->how == WF_GONE_STALLED)
        say(t, m->node, "is left out: alive, but without progress for %.0f s%s%s", seconds, what,
            shards);
    else
        say(t, m->node, "is gone (%s)%s%s", how, what, shards);
}

/* What the last epoch gave to a member, and steps wait for. */
static void say_gone(const struct telling *t, const struct wf_member *m)
{
    const struct wf_epoch_known *k = t->known;
    struct wf_gone g = {.step = -1};
    bool known = k->gone && k->gone(k->goes_arg, m, &g);
    char held[96] = "", how[64] = ": it died, was silent too long, or left";
    int n = 0;

    if (known && m->role == WF_ROLE_WORKER) {
        say_lost(t, m, &g);
        return;
    }
    for (int i = 0; m->role == WF_ROLE_WORKER && i < t->was->n_shards; i++)
        n += t->was->worker[i] == m->node;
    for (int i = 0; m->role == WF_ROLE_SERVER && i < t->was->n_pieces; i++)
        n += t->was->holders[i].primary == m->node;
    if (n && k->step >= 0)
        wf_snprintf(held, sizeof held,
                    "; it held up what follows step %lld, which needs its %d %s%s",
                    (long long)k->step, n, m->role == WF_ROLE_WORKER ? "shard" : "piece",
                    n == 1 ? "" : "s");
    if (known && g.how == WF_GONE_SILENT)
        wf_snprintf(how, sizeof how, " (silent for %.1f s)", (double)g.after_ns * 1e-9);
    else if (known)
        wf_snprintf(how, sizeof how, " (%s)",
                    g.how == WF_GONE_LEFT ? "it left" : "connection closed");
    say(t, m->node, "is gone%s%s", how, held);
}

static void tell_members(const struct telling *t)
{
    const struct wf_epoch_known *k = t->known;

    for (int i = 0; t->was && i < t->was->n_members; i++) {
        const struct wf_member *m = &t->was->member[i];

        if (had(t->is, m) || k->finished[m->node])
            continue;
        if (k->goes && k->goes(k->goes_arg, m))
            say(t, m->node, "has handed over its work");
        else
            say_gone(t, m);
    }
    for (int i = 0; i < t->is->n_members; i++)
        if (!had(t->was, &t->is->member[i]))
            say(t, t->is->member[i].node, "joined");
}

static void tell_restore(const struct telling *t)
{
    if (t->was && t->was->history != t->is->history)
        say(t, t->is->chief, "parameters were lost: the job continues from step %lld, history %llu",
            (long long)t->is->start, (unsigned long long)t->is->history);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Pieces that came from one server to another, as primary. */
static int count_moved(const struct telling *t, int from, int to)
{
    int n = 0;

    for (int i = 0; i < t->is->n_pieces; i++)
        n += t->was->holders[i].primary == from && t->is->holders[i].primary == to;
    return n;
}

static void tell_moves(const struct telling *t)
{
    int n_tasks = t->spec->n_tasks;

    for (int from = 0; from < n_tasks; from++)
        for (int to = 0; to < n_tasks; to++) {
            int n = from == to ? 0 : count_moved(t, from, to);

            if (n && wf_epoch_member(t->is, from))
                say(t, to, "takes %d of %d pieces over from %s", n, t->is->n_pieces,
                    name_of(t, from));
            else if (n)
                say(t, to, "was promoted: it is the primary of %d piece%s of %s", n,
                    n == 1 ? "" : "s", name_of(t, from));
        }
}

/* Pieces of which there is only one copy. */
static int count_alone(const struct wf_epoch *e)
{
    int n = 0;

    for (int i = 0; i < e->n_pieces; i++)
        n += e->holders[i].backup == WF_NOBODY;
    return n;
}

static void tell_backups(const struct telling *t)
{
    int before = count_alone(t->was), now = count_alone(t->is);

    if (before == 0 && now > 0)
        say(t, t->is->chief, "%d of %d pieces have no backup until one is filled", now,
            t->is->n_pieces);
    if (before > 0 && now == 0)
        say(t, t->is->chief, "every piece has a backup again");
}

void wf_epoch_tell(const struct wf_spec *spec, const struct wf_epoch_known *known,
                   const struct wf_epoch *was, const struct wf_epoch *is, wf_event_fn *fn,
                   void *arg)
{
    struct telling t = {spec, known, was, is, fn, arg};

    tell_restore(&t);
    tell_members(&t);
    if (!was || was->n_pieces != is->n_pieces || was->history != is->history)
        return;
    tell_moves(&t);
    tell_backups(&t);
}
