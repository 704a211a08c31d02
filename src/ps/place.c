/* place.c - which server holds which variable. */
#include "ps/place.h"

#include "base/device.h"
#include "cluster/chief.h"

static int64_t bytes_of(const struct wf_var *v)
{
    return v->count * (int64_t)sizeof(float);
}

/* Its scope, if that is a server's. */
static weft_status place_by_scope(weft_ctx *ctx, struct wf_var *v, int n_servers,
                                  const struct wf_place_rule *rule, const char *device)
{
    int server;

    v->server = 0;
    if (!*device || !wf_device_server(device, &server))
        return WEFT_OK;
    if (server < n_servers) {
        v->server = server + 1;
        return WEFT_OK;
    }
    if (!rule->soft)
        return wf_err(WEFT_ENOENT,
                      "variable '%s' is placed on %s, but there are %d servers; soft placement "
                      "puts it elsewhere",
                      v->name, device, n_servers);
    wf_log(ctx, WEFT_LOG_WARN, "variable '%s': there is no %s: it is placed like any other",
           v->name, device);
    return WEFT_OK;
}

/* The server with the fewest bytes. */
static int lightest(const int64_t *load, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (load[i] < load[best])
            best = i;
    return best;
}

static weft_status place_by_rule(struct wf_var *v, int n_servers, const struct wf_place_rule *rule,
                                 int64_t *load, int *turn)
{
    int server = -1;

    if (rule->fn) {
        server = rule->fn(rule->arg, v->name, bytes_of(v), n_servers);
        if (server < -1 || server >= n_servers)
            return wf_err(WEFT_ERANGE,
                          "placement: variable '%s' on server %d; 0 to %d exist, -1 is any",
                          v->name, server, n_servers - 1);
    } else if (rule->kind == WF_PLACE_ROUND_ROBIN) {
        server = (*turn)++ % n_servers;
    } else if (rule->kind == WF_PLACE_GREEDY) {
        server = lightest(load, n_servers);
    }
    v->server = server + 1;
    return WEFT_OK;
}

weft_status wf_ps_place(weft_ctx *ctx, struct wf_rules *r, int n_servers,
                        const struct wf_place_rule *rule, const char *(*device)(void *arg, int var),
                        void *arg)
{
    int64_t *load = wf_alloc_n(ctx, n_servers + 1, sizeof *load);
    int turn = 0;
    weft_status st = load ? WEFT_OK : wf_err_nomem(ctx, sizeof *load, "placement");

    for (int i = 0; i < r->n_vars && !st; i++) {
        struct wf_var *v = &r->var[i];

        if (v->table) {
            v->server = 0;
            continue;
        }
        st = place_by_scope(ctx, v, n_servers, rule, device(arg, i));
        if (!st && !v->server)
            st = place_by_rule(v, n_servers, rule, load, &turn);
        if (!st && v->server)
            load[v->server - 1] += bytes_of(v);
    }
    wf_free(ctx, load);
    return st;
}

void wf_ps_weigh(const struct wf_cut *cut, int64_t cut_bytes, const struct wf_spec *spec,
                 int64_t *bytes, int *home)
{
    for (int i = 0; i < cut->n_pieces; i++) {
        bytes[i] = 1 + (cut->piece[i].tables ? wf_min_i64(cut_bytes, 1 << 30)
                                             : cut->piece[i].count * (int64_t)sizeof(float));
        home[i] = WF_NOBODY;
        for (int k = 0; k < spec->n_tasks && cut->piece[i].server; k++)
            if (spec->task[k].role == WF_ROLE_SERVER &&
                spec->task[k].index == cut->piece[i].server - 1)
                home[i] = k;
    }
}

/* ---- in words -------------------------------------------------------------------------------- */

/* The first epoch of a job whose tasks are all there. */
static weft_status first_epoch(weft_ctx *ctx, const struct wf_cut *cut, int64_t cut_bytes,
                               const struct wf_spec *spec, int n_copies, struct wf_epoch **out)
{
    int64_t *bytes = wf_alloc_n(ctx, cut->n_pieces + 1, sizeof *bytes);
    int *home = wf_alloc_n(ctx, cut->n_pieces + 1, sizeof *home);
    struct wf_chief_plan plan = {.n_nodes = spec->n_tasks,
                                 .n_pieces = cut->n_pieces,
                                 .n_shards = 1,
                                 .n_copies = n_copies,
                                 .timeout_ns = 1,
                                 .piece_bytes = bytes,
                                 .piece_home = home};
    struct wf_chief c = {.ctx = ctx};
    weft_status st;
    bool changed;

    st = bytes && home ? wf_chief_init(&c, ctx, &plan, 0) : wf_err_nomem(ctx, 0, "placement");
    if (!st) {
        wf_ps_weigh(cut, cut_bytes, spec, bytes, home);
        for (int i = 0; i < spec->n_tasks; i++)
            c.known[i] = (struct wf_known){.heard = spec->task[i].role == WF_ROLE_SERVER,
                                           .role = spec->task[i].role};
        st = wf_assign(&c, out, &changed);
        if (!st && !changed)
            st = wf_err(WEFT_EINVAL, "placement: there are no servers");
    }
    wf_chief_free(&c);
    wf_free(ctx, bytes);
    wf_free(ctx, home);
    return st;
}

/* About what one of the pieces of tables has of variable v, or of all (-1). */
static int64_t rows_of(const struct wf_rules *r, const struct wf_cut *cut, int v)
{
    int64_t n = 0, sum = 0;

    for (int i = 0; i < cut->n_pieces; i++)
        n += cut->piece[i].tables;
    for (int i = 0; i < r->n_vars; i++)
        if (r->var[i].table && (v < 0 || v == i))
            sum += bytes_of(&r->var[i]);
    return n ? sum / n : 0;
}

/* The bytes of variable v, or of all (-1), that a node has as primary, or as backup. */
static int64_t held(const struct wf_rules *r, const struct wf_cut *cut, const struct wf_epoch *e,
                    int node, int v, bool backup, int *n_pieces)
{
    int64_t sum = 0;

    *n_pieces = 0;
    for (int i = 0; i < cut->n_pieces; i++) {
        int64_t n = cut->piece[i].tables ? rows_of(r, cut, v) : 0;

        if ((backup ? e->holders[i].backup : e->holders[i].primary) != node)
            continue;
        for (int k = 0; k < cut->piece[i].n_runs; k++)
            if (v < 0 || cut->piece[i].run[k].var == v)
                n += cut->piece[i].run[k].n * (int64_t)sizeof(float);
        sum += n;
        *n_pieces += n > 0;
    }
    return sum;
}

/* "131.5 kB" */
static const char *size_text(int64_t bytes, char text[32])
{
    if (bytes < 10000)
        wf_snprintf(text, 32, "%lld bytes", (long long)bytes);
    else if (bytes < 1000000)
        wf_snprintf(text, 32, "%.1f kB", (double)bytes * 1e-3);
    else
        wf_snprintf(text, 32, "%.1f MB", (double)bytes * 1e-6);
    return text;
}

static void explain_server(const struct wf_rules *r, const struct wf_cut *cut,
                           const struct wf_epoch *e, const struct wf_task *task, int node,
                           struct wf_buf *out)
{
    int n_pieces, ignored;
    int64_t bytes = held(r, cut, e, node, -1, false, &n_pieces);
    int64_t copies = held(r, cut, e, node, -1, true, &ignored);
    char text[32];

    wf_buf_printf(out, "%s: %s in %d piece%s", task->name, size_text(bytes, text), n_pieces,
                  n_pieces == 1 ? "" : "s");
    if (copies)
        wf_buf_printf(out, ", and %s as backup", size_text(copies, text));
    wf_buf_printf(out, "\n");
    for (int v = 0; v < r->n_vars; v++) {
        const struct wf_var *var = &r->var[v];

        bytes = held(r, cut, e, node, v, false, &n_pieces);
        if (bytes == 0)
            continue;
        wf_buf_printf(out, "  %-32s %14s", var->name, size_text(bytes, text));
        if (bytes < bytes_of(var))
            wf_buf_printf(out, " of %s", size_text(bytes_of(var), text));
        wf_buf_printf(out, "%s\n", var->server ? ", placed" : "");
    }
}

weft_status wf_ps_explain(weft_ctx *ctx, const struct wf_rules *r, int64_t cut_bytes,
                          const struct wf_spec *spec, int n_copies, struct wf_buf *out)
{
    struct wf_epoch *e = NULL;
    struct wf_cut *cut;
    weft_status st = wf_cut_new(ctx, r, cut_bytes, &cut);

    if (st)
        return st;
    st = first_epoch(ctx, cut, cut_bytes, spec, n_copies, &e);
    for (int i = 0; i < spec->n_tasks && !st; i++)
        if (spec->task[i].role == WF_ROLE_SERVER)
            explain_server(r, cut, e, &spec->task[i], i, out);
    wf_epoch_free(ctx, e);
    wf_cut_free(cut);
    return st ? st : out->st;
}
