/* images.c - a worker's memory as a whole: it goes to servers that begin, and the slots of the
 * optimizer come from them. */
#include "ps/worker.h"

/* ---- slots ----------------------------------------------------------------------------------- */

void wf_ps_worker_ask_slots(struct wf_ps_worker *w, int64_t now)
{
    w->slots_ns = now;
    for (int i = 0; i < w->cut->n_pieces; i++) {
        struct wf_message m = {
            .type = WF_MSG_PULL, .from = w->node.self, .piece = i, .t = w->slots_t};

        if (w->has_slots[i])
            continue;
        m.to = w->m.view.epoch->holders[i].primary;
        wf_site_send_copy(&w->node, m.to, WF_SITE_SLOTS_ASK, &m, NULL, 0);
    }
}

void wf_ps_worker_take_slots(struct wf_ps_worker *w, const struct wf_arrived *a)
{
    int piece = a->msg.piece;
    const struct wf_cut_piece *p;

    if (a->msg.t != w->slots_t || piece < 0 || piece >= w->cut->n_pieces || w->has_slots[piece])
        return;
    p = &w->cut->piece[piece];
    if (p->tables) {
        w->has_slots[piece] =
            !wf_tables_take(w->opts.tables[piece - w->cut->first_table], -1, a->p, a->n);
        return;
    }
    if (a->n != w->opts.n_slots * p->count * (int64_t)sizeof(float))
        return;
    for (int k = 0; k < w->opts.n_slots && p->count; k++)
        wf_cut_scatter(&w->opts.job->rules, p, (const float *)(const void *)a->p + k * p->count,
                       w->opts.slot[k]);
    w->has_slots[piece] = true;
}

static bool has_all_slots(void *arg)
{
    const struct wf_ps_worker *w = arg;

    for (int i = 0; i < w->cut->n_pieces && !w->restores; i++)
        if (!w->has_slots[i])
            return false;
    return true;
}

weft_status wf_ps_worker_slots(struct wf_ps_worker *w, int64_t t)
{
    weft_status st;

    if (w->opts.n_slots == 0 && !w->lookup)
        return WEFT_OK;
    wf_site_lock(&w->node);
    w->slots_t = t;
    for (int i = 0; i < w->cut->n_pieces; i++)
        w->has_slots[i] =
            w->cut->piece[i].tables ? false : w->cut->piece[i].count == 0 || !w->opts.n_slots;
    if (w->m.view.belongs)
        wf_ps_worker_ask_slots(w, wf_site_now(&w->node));
    wf_site_unlock(&w->node);
    st = wf_site_wait(&w->node, has_all_slots, w, WF_PS_GIVE_UP * w->node.spec.timeout_ns,
                      "slots of the optimizer, from parameter servers");
    wf_site_lock(&w->node);
    w->slots_t = -1;
    if (!st && w->restores)
        st = wf_ps_worker_err_back(w);
    wf_site_unlock(&w->node);
    return st;
}

/* ---- to servers that begin ------------------------------------------------------------------- */

static void gather(const struct wf_rules *r, const struct wf_cut_piece *p, const float *flat,
                   char **to)
{
    wf_cut_gather(r, p, flat, (float *)(void *)*to);
    *to += p->count * (int64_t)sizeof(float);
}

/* The rows of tables that are not initial ones. */
static void send_rows(struct wf_ps_worker *w, const struct wf_arrived *a)
{
    struct wf_message m = a->msg;
    struct wf_payload rows = {.p = NULL};

    m.from = w->node.self;
    m.to = a->from;
    if (!wf_tables_dump(w->opts.tables[m.piece - w->cut->first_table], -1, -1, true, &rows))
        wf_site_send_copy(&w->node, a->from, WF_SITE_IMAGE, &m, rows.p, rows.n);
    wf_free(w->node.ctx, rows.p);
}

/* A server begins, and has nothing of a piece yet. */
void wf_ps_worker_send_image(struct wf_ps_worker *w, const struct wf_arrived *a)
{
    const struct wf_cut_piece *p;
    struct wf_message m = a->msg;
    int64_t bytes;
    char *mem, *to;

    wf_ps_worker_at_start(w, m.t);
    if (w->changed || m.t != w->opts.start || m.piece < 0 || m.piece >= w->cut->n_pieces)
        return;
    p = &w->cut->piece[m.piece];
    if (p->tables) {
        send_rows(w, a);
        return;
    }
    m.from = w->node.self;
    m.to = a->from;
    if (p->state) {
        bytes = wf_ps_n_kept(&w->sizes, m.piece) * (int64_t)sizeof(double);
        wf_site_send_copy(&w->node, a->from, WF_SITE_IMAGE, &m, w->opts.sums, bytes);
        return;
    }
    bytes = (1 + w->opts.n_slots) * p->count * (int64_t)sizeof(float);
    mem = to = wf_alloc(w->node.ctx, (size_t)bytes + 1);
    if (!mem)
        return;
    if (p->count) {
        gather(&w->opts.job->rules, p, w->opts.params, &to);
        for (int k = 0; k < w->opts.n_slots; k++)
            gather(&w->opts.job->rules, p, w->opts.slot[k], &to);
    }
    wf_site_send_copy(&w->node, a->from, WF_SITE_IMAGE, &m, mem, bytes);
    wf_free(w->node.ctx, mem);
}
