/* part.c - a server's part of a checkpoint: copied at once, written by a thread of its own. */
#define _GNU_SOURCE
#include "ps/part.h"

#include "cluster/cluster.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>

enum { MAX_PARTS = 3 }; /* copies that are there together, those being written included */

struct wf_saved_part {
    struct wf_saved_part *next;
    weft_ctx *ctx;
    struct wf_site *node;
    uint64_t id;
    int from; /* the worker, and its incarnation */
    uint64_t incarnation;
    int64_t t;
    struct wf_ps_snapshot *copy;
    int n_pieces, *piece; /* that are copied */
    bool dropped;
    /* The thread's; read by others when it is done, which it says with the lock. */
    pthread_t thread;
    bool begun, done;
    enum wf_save_state state;
    char *text; /* of the part, or of a failure */
    /* What it writes. */
    char *dir, *name, *writer;
    uint64_t nonce;
};

static void free_part(struct wf_saved_part *p)
{
    if (!p)
        return;
    if (p->begun)
        pthread_join(p->thread, NULL);
    wf_ps_snapshot_free(p->copy);
    weft_text_free(p->ctx, p->text);
    wf_free(p->ctx, p->piece);
    wf_free(p->ctx, p->dir);
    wf_free(p->ctx, p->name);
    wf_free(p->ctx, p->writer);
    wf_free(p->ctx, p);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void answer(struct wf_site *node, int to, uint32_t kind, struct wf_save_head head,
                   const void *p, int64_t n)
{
    struct wf_message m = {.type = WF_MSG_PULL, .from = node->self, .to = to, .piece = -1, .t = -1};
    char *all = wf_alloc(node->ctx, sizeof head + (size_t)n);

    if (!all)
        return; /* it is requested again */
    memcpy(all, &head, sizeof head);
    if (n)
        memcpy(all + sizeof head, p, (size_t)n);
    wf_site_send_copy(node, to, kind, &m, all, (int64_t)sizeof head + n);
    wf_free(node->ctx, all);
}

static void answer_text(struct wf_site *node, int to, uint32_t kind, struct wf_save_head head,
                        enum wf_save_state state, const char *text)
{
    head.state = state;
    answer(node, to, kind, head, text, text ? (int64_t)strlen(text) : 0);
}

static void say_copied(const struct wf_parts_of *of, const struct wf_saved_part *p)
{
    int n_vars = of->rules->n_vars;
    int64_t *list = wf_alloc_n(p->ctx, p->n_pieces + 2 * n_vars + 1, sizeof *list);

    if (!list)
        return;
    for (int i = 0; i < p->n_pieces; i++)
        list[i] = p->piece[i];
    for (int v = 0; v < 2 * n_vars; v++)
        list[p->n_pieces + v] = wf_ps_snapshot_rows(p->copy, v);
    answer(of->node, p->from, WF_SITE_SNAP,
           (struct wf_save_head){.id = p->id, .item = p->n_pieces, .n = n_vars}, list,
           (p->n_pieces + 2 * n_vars) * (int64_t)sizeof *list);
    wf_free(p->ctx, list);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Whether the worker's file is in the folder. */
static bool sees_folder(const struct wf_saved_part *p)
{
    char path[4096], want[24], *text = NULL;
    int64_t n = 0;
    bool same;

    if (snprintf(path, sizeof path, "%s/.tmp-%s/%s", p->dir, p->name, WF_SAVE_PROBE) >=
        (int)sizeof path)
        return false;
    snprintf(want, sizeof want, "%016llx", (unsigned long long)p->nonce);
    same = !wf_file_read(p->ctx, path, 64, &text, &n) && n == 16 && memcmp(text, want, 16) == 0;
    wf_free(p->ctx, text);
    return same;
}

static weft_status write_part(struct wf_saved_part *p)
{
    int64_t n;
    const struct wf_snap_item *item = wf_ps_snapshot_items(p->copy, &n);
    weft_ckpt_piece *piece = wf_alloc_n(p->ctx, n + 1, sizeof *piece);
    weft_status st;

    if (!piece)
        return wf_err_nomem(p->ctx, (size_t)n * sizeof *piece, "checkpoint");
    for (int64_t i = 0; i < n; i++)
        piece[i] = item[i].piece;
    st = weft_ckpt_part_write(
        p->ctx, p->dir, p->name,
        WEFT_OPTS(weft_ckpt_part, .writer = p->writer, .n_pieces = n, .pieces = piece), &p->text);
    wf_free(p->ctx, piece);
    return st;
}

static void *part_main(void *arg)
{
    struct wf_saved_part *p = arg;

    if (!sees_folder(p)) {
        p->state = WF_SAVE_BLIND;
    } else if (write_part(p)) {
        p->state = WF_SAVE_FAILED;
        p->text = wf_strdup(p->ctx, weft_error());
    } else {
        p->state = WF_SAVE_READY;
    }
    wf_site_lock(p->node);
    p->done = true;
    if (!p->dropped)
        answer_text(p->node, p->from, WF_SITE_PART, (struct wf_save_head){.id = p->id}, p->state,
                    p->text);
    wf_site_unlock(p->node);
    return NULL;
}

static weft_status begin_writing(struct wf_saved_part *p)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&p->thread, NULL, part_main, p);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    p->begun = rc == 0;
    return rc ? wf_err(WEFT_ENOMEM, "checkpoint: cannot start a thread: %s", wf_errno_text(rc))
              : WEFT_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static struct wf_saved_part *find(const struct wf_parts *p, uint64_t id, int from)
{
    struct wf_saved_part *s = p->first;

    while (s && (s->id != id || s->from != from || s->dropped))
        s = s->next;
    return s;
}

/* The pieces whose primary this server is, if all are at version t. */
static enum wf_save_state list_pieces(const struct wf_parts_of *of, int64_t t, int *list, int *n,
                                      bool *wait)
{
    *n = 0;
    *wait = !of->m->view.belongs;
    for (int i = 0; i < of->n_pieces && !*wait; i++) {
        if (of->m->piece[i].holding != WF_HOLDS_PRIMARY)
            continue;
        if (of->m->piece[i].version > t ||
            (of->m->piece[i].version == t && of->m->piece[i].phase != WF_PHASE_COLLECT))
            return WF_SAVE_GONE; /* or slots are on their way to the next version */
        *wait = of->m->piece[i].version < t;
        list[(*n)++] = i;
    }
    return WF_SAVE_READY;
}

static weft_status copy(struct wf_parts *p, const struct wf_parts_of *of,
                        const struct wf_arrived *a, uint64_t id, const int *list, int n)
{
    weft_ctx *ctx = of->node->ctx;
    struct wf_saved_part *s;
    weft_status st;
    int there = 0;

    for (s = p->first; s; s = s->next)
        there++;
    if (there >= MAX_PARTS)
        return wf_err(WEFT_ELIMIT, "%d earlier checkpoints are still being written", there);
    s = wf_alloc(ctx, sizeof *s);
    if (!s)
        return wf_err_nomem(ctx, sizeof *s, "checkpoint");
    s->ctx = ctx;
    s->node = of->node;
    s->id = id;
    s->from = a->from;
    s->incarnation = a->msg.incarnation;
    s->t = a->msg.t;
    s->n_pieces = n;
    s->piece = wf_alloc_n(ctx, n + 1, sizeof *s->piece);
    st = s->piece ? wf_ps_snapshot_new(ctx, of->store, n, list, &s->copy)
                  : wf_err_nomem(ctx, sizeof *s->piece, "checkpoint");
    if (st) {
        free_part(s);
        return st;
    }
    if (n)
        memcpy(s->piece, list, (size_t)n * sizeof *list);
    s->next = p->first;
    p->first = s;
    return WEFT_OK;
}

/* Every earlier copy for this worker is not needed any more. */
static void take_snap_ask(struct wf_parts *p, const struct wf_parts_of *of,
                          const struct wf_arrived *a, const struct wf_save_head *h)
{
    struct wf_saved_part *s = find(p, h->id, a->from);
    int *list, n;
    bool wait;
    enum wf_save_state state;

    if (s) {
        say_copied(of, s);
        return;
    }
    for (s = p->first; s; s = s->next)
        s->dropped |= s->from == a->from;
    wf_parts_tick(p, of);
    list = wf_alloc_n(of->node->ctx, of->n_pieces + 1, sizeof *list);
    if (!list)
        return;
    state = list_pieces(of, a->msg.t, list, &n, &wait);
    if (state == WF_SAVE_GONE)
        answer_text(of->node, a->from, WF_SITE_SNAP, *h, WF_SAVE_GONE, NULL);
    else if (!wait && copy(p, of, a, h->id, list, n))
        answer_text(of->node, a->from, WF_SITE_SNAP, *h, WF_SAVE_FAILED, weft_error());
    else if (!wait)
        say_copied(of, p->first);
    wf_free(of->node->ctx, list);
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* The next text of a message; NULL: it has none. */
static const char *next_text(const char **at, const char *end)
{
    const char *text = *at, *nul = text < end ? memchr(text, 0, (size_t)(end - text)) : NULL;

    *at = nul ? nul + 1 : end;
    return nul ? text : NULL;
}

static weft_status begin_part(struct wf_saved_part *s, const struct wf_parts_of *of,
                              const struct wf_arrived *a, const struct wf_save_head *h)
{
    int64_t rows = 2 * of->rules->n_vars * (int64_t)sizeof(struct wf_snap_rows);
    const char *at = a->p + sizeof *h + rows, *end = a->p + a->n, *text[3];
    weft_status st;

    if (h->n != of->rules->n_vars || a->n < (int64_t)sizeof *h + rows)
        return wf_err(WEFT_EPEER, "a request for a part of %lld bytes", (long long)a->n);
    for (int i = 0; i < 3; i++)
        text[i] = next_text(&at, end);
    if (!text[0] || !text[1] || !text[2])
        return wf_err(WEFT_EPEER, "a request for a part without names");
    st = wf_ps_snapshot_place(s->copy,
                              (const struct wf_snap_rows *)(const void *)(a->p + sizeof *h));
    if (st)
        return st;
    s->nonce = (uint64_t)h->at;
    s->dir = wf_strdup(s->ctx, text[0]);
    s->name = wf_strdup(s->ctx, text[1]);
    s->writer = wf_strdup(s->ctx, text[2]);
    if (!s->dir || !s->name || !s->writer)
        return wf_err_nomem(s->ctx, strlen(text[0]), "checkpoint");
    return begin_writing(s);
}

static void take_part_ask(struct wf_parts *p, const struct wf_parts_of *of,
                          const struct wf_arrived *a, const struct wf_save_head *h)
{
    struct wf_saved_part *s = find(p, h->id, a->from);

    if (!s)
        answer_text(of->node, a->from, WF_SITE_PART, *h, WF_SAVE_FAILED,
                    "its copy of the version is gone");
    else if (!s->begun && begin_part(s, of, a, h))
        answer_text(of->node, a->from, WF_SITE_PART, *h, WF_SAVE_FAILED, weft_error());
    else if (!s->done)
        answer_text(of->node, a->from, WF_SITE_PART, *h, WF_SAVE_BUSY, NULL);
    else
        answer_text(of->node, a->from, WF_SITE_PART, *h, s->state, s->text);
}

static void take_part_read(struct wf_parts *p, const struct wf_parts_of *of,
                           const struct wf_arrived *a, const struct wf_save_head *h)
{
    struct wf_saved_part *s = find(p, h->id, a->from);
    const struct wf_snap_item *item = NULL;
    int64_t n = 0, bytes;

    if (s)
        item = wf_ps_snapshot_items(s->copy, &n);
    if (!item || h->item < 0 || h->item >= n)
        return;
    bytes = item[h->item].piece.count * weft_dtype_size(item[h->item].piece.whole.dtype);
    if (h->n < 0 || h->n > WF_SAVE_BYTES || h->at < 0 || h->at > bytes - h->n)
        return;
    answer(of->node, a->from, WF_SITE_PART_DATA, *h, (const char *)item[h->item].piece.data + h->at,
           h->n);
}

void wf_parts_take(struct wf_parts *p, const struct wf_parts_of *of, const struct wf_arrived *a)
{
    struct wf_save_head h;
    struct wf_saved_part *s;

    if (p->closed || !of->store || a->n < (int64_t)sizeof h || !a->p)
        return;
    memcpy(&h, a->p, sizeof h);
    switch (a->kind) {
    case WF_SITE_SNAP_ASK: take_snap_ask(p, of, a, &h); break;
    case WF_SITE_PART_ASK: take_part_ask(p, of, a, &h); break;
    case WF_SITE_PART_READ: take_part_read(p, of, a, &h); break;
    case WF_SITE_PART_DROP:
        s = find(p, h.id, a->from);
        if (s)
            s->dropped = true;
        wf_parts_tick(p, of);
        break;
    default: break;
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

void wf_parts_tick(struct wf_parts *p, const struct wf_parts_of *of)
{
    struct wf_saved_part **at = &p->first;

    while (*at && !p->closed) {
        struct wf_saved_part *s = *at;

        if (of->m->view.belongs && !wf_epoch_has(of->m->view.epoch, s->from, s->incarnation))
            s->dropped = true;
        if (!s->dropped || (s->begun && !s->done)) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        free_part(s);
    }
}

void wf_parts_close(struct wf_parts *p, struct wf_site *node)
{
    wf_site_lock(node);
    p->closed = true;
    wf_site_unlock(node);
    while (p->first) {
        struct wf_saved_part *s = p->first;

        p->first = s->next;
        free_part(s);
    }
}
