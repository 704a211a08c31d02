/* saving.c - a checkpoint of what parameter servers hold, at the worker that writes it.
 *
 * Locks: `lock` is held during a call, and taken before the worker's; what messages change is
 * guarded by the worker's. The worker lives as long as `w` is set. */
#define _GNU_SOURCE
#include "ps/saving.h"

#include "base/sys.h"
#include "ps/part.h"
#include "ps/worker.h"

#include <stdio.h>
#include <stdlib.h>

enum { MAX_TRIES = 4 };

/* What one server gives. */
struct part {
    int node;
    uint64_t incarnation;
    bool copied;
    int n_pieces, *piece;
    struct wf_snap_rows *rows; /* [2 * n_vars], as in snapshot.h */
    /* of the part, once it is requested */
    enum wf_save_state state;
    char *text; /* of the part, or why not */
};

struct wf_ps_save {
    weft_ctx *ctx;
    atomic_int refs;
    pthread_mutex_t lock;
    struct wf_ps_worker *w; /* NULL: it is gone */
    int64_t t;
    uint64_t id, epoch; /* of the copies; the epoch that they were requested in */
    int n_parts;
    struct part *part; /* by server that is a primary */
    bool failed, gone;
    char why[400];
    int64_t heard; /* answers so far */
    int64_t asked_ns;
    bool asks; /* parts are requested: */
    const char *dir, *name;
    uint64_t nonce;
    int tries;
    /* Bytes that are being read: */
    struct wf_save_head reads;
    int reads_of; /* a part; -1: none */
    char *to;
};

/* An item that is read from a server. */
struct reading {
    struct wf_ps_save *s;
    int part;
    int64_t item;
};

/* ---- requests -------------------------------------------------------------------------------- */

static void send_to(struct wf_ps_save *s, int to, uint32_t kind, const struct wf_save_head *h,
                    const void *p, int64_t n)
{
    struct wf_site *node = &s->w->node;
    struct wf_message m = {.type = WF_MSG_PULL,
                           .from = node->self,
                           .to = to,
                           .piece = -1,
                           .t = s->t,
                           .incarnation = node->incarnation};
    char *all = wf_alloc(s->ctx, sizeof *h + (size_t)n);

    if (!all)
        return; /* it is sent again */
    memcpy(all, h, sizeof *h);
    if (n)
        memcpy(all + sizeof *h, p, (size_t)n);
    wf_site_send_copy(node, to, kind, &m, all, (int64_t)sizeof *h + n);
    wf_free(s->ctx, all);
}

static void clear_parts(struct wf_ps_save *s)
{
    for (int i = 0; i < s->n_parts; i++) {
        wf_free(s->ctx, s->part[i].piece);
        wf_free(s->ctx, s->part[i].rows);
        wf_free(s->ctx, s->part[i].text);
    }
    wf_free(s->ctx, s->part);
    s->part = NULL;
    s->n_parts = 0;
}

/* Which servers are to copy: the primaries of the current epoch. */
static weft_status list_parts(struct wf_ps_save *s)
{
    const struct wf_epoch *e = s->w->m.view.epoch;
    int n_vars = s->w->opts.job->rules.n_vars;

    clear_parts(s);
    s->epoch = e->number;
    s->id++;
    s->part = wf_alloc_n(s->ctx, e->n_members + 1, sizeof *s->part);
    if (!s->part)
        return wf_err_nomem(s->ctx, sizeof *s->part, "checkpoint");
    for (int i = 0; i < e->n_members; i++) {
        struct part *p = &s->part[s->n_parts];
        bool primary = false;

        for (int k = 0; k < e->n_pieces && !primary; k++)
            primary = e->holders[k].primary == e->member[i].node;
        if (!primary)
            continue;
        *p = (struct part){.node = e->member[i].node,
                           .incarnation = e->member[i].incarnation,
                           .state = WF_SAVE_BUSY};
        p->piece = wf_alloc_n(s->ctx, e->n_pieces + 1, sizeof *p->piece);
        p->rows = wf_alloc_n(s->ctx, 2 * n_vars + 1, sizeof *p->rows);
        s->n_parts++;
        if (!p->piece || !p->rows)
            return wf_err_nomem(s->ctx, sizeof *p->rows, "checkpoint");
    }
    return WEFT_OK;
}

/* Whether the copies are all pieces, each once. */
static bool covers(const struct wf_ps_save *s)
{
    int n_pieces = s->w->cut->n_pieces, n = 0;
    bool *seen = wf_alloc_n(s->ctx, n_pieces + 1, sizeof *seen), twice = false;

    for (int i = 0; i < s->n_parts && seen; i++)
        for (int k = 0; k < s->part[i].n_pieces; k++) {
            twice |= seen[s->part[i].piece[k]];
            seen[s->part[i].piece[k]] = true;
            n++;
        }
    wf_free(s->ctx, seen);
    return seen && !twice && n == n_pieces;
}

static bool all_copied(const struct wf_ps_save *s)
{
    for (int i = 0; i < s->n_parts; i++)
        if (!s->part[i].copied)
            return false;
    return s->n_parts > 0;
}

/* Requests copies; from the beginning if the epoch has changed, or servers were in different
 * ones. */
static void ask_copies(struct wf_ps_save *s)
{
    const struct wf_view *v = &s->w->m.view;

    if (!v->belongs)
        return;
    if ((v->epoch->number != s->epoch || all_copied(s)) && list_parts(s)) {
        wf_snprintf(s->why, sizeof s->why, "%s", weft_error());
        s->failed = true;
        return;
    }
    for (int i = 0; i < s->n_parts; i++)
        if (!s->part[i].copied)
            send_to(s, s->part[i].node, WF_SITE_SNAP_ASK, &(struct wf_save_head){.id = s->id}, NULL,
                    0);
}

/* The name that a server writes under. */
static void name_writer(const struct wf_ps_save *s, int part, const char *suffix, char out[32])
{
    int n = snprintf(out, 32, "ps%d%s", s->w->node.spec.task[s->part[part].node].index, suffix);

    if (s->tries)
        snprintf(out + n, (size_t)(32 - n), "try%d", s->tries);
}

static void ask_part(struct wf_ps_save *s, int i)
{
    int n_vars = s->w->opts.job->rules.n_vars;
    struct wf_save_head h = {.id = s->id, .at = (int64_t)s->nonce, .n = n_vars};
    char writer[32];
    struct wf_buf b;

    name_writer(s, i, "", writer);
    wf_buf_init(&b, s->ctx, 1 << 24);
    wf_buf_add(&b, s->part[i].rows, 2 * n_vars * (int64_t)sizeof *s->part[i].rows);
    wf_buf_add(&b, s->dir, (int64_t)strlen(s->dir) + 1);
    wf_buf_add(&b, s->name, (int64_t)strlen(s->name) + 1);
    wf_buf_add(&b, writer, (int64_t)strlen(writer) + 1);
    if (!b.st)
        send_to(s, s->part[i].node, WF_SITE_PART_ASK, &h, b.data, b.len);
    wf_buf_free(&b);
}

static void ask_bytes(struct wf_ps_save *s)
{
    send_to(s, s->part[s->reads_of].node, WF_SITE_PART_READ, &s->reads, NULL, 0);
}

void wf_ps_save_tick(struct wf_ps_save *s, int64_t now)
{
    if (now - s->asked_ns < s->w->node.spec.retry_ns || s->failed || s->gone)
        return;
    s->asked_ns = now;
    if (!all_copied(s) || !covers(s)) {
        ask_copies(s);
        return;
    }
    for (int i = 0; i < s->n_parts && s->asks; i++)
        if (s->part[i].state == WF_SAVE_BUSY)
            ask_part(s, i);
    if (s->reads_of >= 0)
        ask_bytes(s);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void take_copied(struct wf_ps_save *s, struct part *p, const struct wf_save_head *h,
                        const char *body, int64_t n)
{
    const struct wf_rules *r = &s->w->opts.job->rules;
    const int64_t *list = (const int64_t *)(const void *)body;

    if (h->item < 0 || h->item > s->w->cut->n_pieces || h->n != r->n_vars ||
        n != (h->item + 2 * h->n) * (int64_t)sizeof *list)
        return;
    for (int64_t i = 0; i < h->item; i++)
        if (list[i] < 0 || list[i] >= s->w->cut->n_pieces || (i && list[i] <= list[i - 1]))
            return;
    for (int v = 0; v < 2 * r->n_vars; v++) {
        const struct wf_var *var = &r->var[v % r->n_vars];

        if (list[h->item + v] < (v < r->n_vars ? 0 : -1) ||
            list[h->item + v] > (var->table ? var->dim[0] : 0))
            return;
    }
    p->n_pieces = (int)h->item;
    for (int i = 0; i < p->n_pieces; i++)
        p->piece[i] = (int)list[i];
    for (int v = 0; v < 2 * r->n_vars; v++)
        p->rows[v] = (struct wf_snap_rows){.n = list[h->item + v]};
    p->copied = true;
}

static void take_part(struct wf_ps_save *s, struct part *p, const struct wf_save_head *h,
                      const char *body, int64_t n)
{
    if (!s->asks || p->state != WF_SAVE_BUSY || h->state < WF_SAVE_READY ||
        h->state > WF_SAVE_FAILED)
        return;
    if (h->state != WF_SAVE_BUSY) {
        p->text = wf_alloc(s->ctx, (size_t)n + 1);
        if (!p->text)
            return; /* it is requested again */
        if (n)
            memcpy(p->text, body, (size_t)n);
    }
    p->state = (enum wf_save_state)h->state;
}

static void take_bytes(struct wf_ps_save *s, const struct wf_save_head *h, const char *body,
                       int64_t n)
{
    if (s->reads_of < 0 || h->item != s->reads.item || h->at != s->reads.at || n != s->reads.n)
        return;
    memcpy(s->to, body, (size_t)n);
    s->reads_of = -1;
}

void wf_ps_save_take(struct wf_ps_save *s, const struct wf_arrived *a)
{
    struct wf_save_head h;
    struct part *p = NULL;
    const char *body;

    if (a->kind < WF_SITE_SNAP_ASK || a->kind > WF_SITE_PART_DROP || !a->p ||
        a->n < (int64_t)sizeof h)
        return;
    memcpy(&h, a->p, sizeof h);
    body = a->p + sizeof h;
    for (int i = 0; i < s->n_parts; i++)
        if (s->part[i].node == a->from)
            p = &s->part[i];
    if (!p || h.id != s->id)
        return;
    s->heard++;
    if (a->kind == WF_SITE_SNAP && h.state == WF_SAVE_GONE) {
        s->gone = true;
    } else if (a->kind == WF_SITE_SNAP && h.state != WF_SAVE_READY) {
        s->failed = true;
        wf_snprintf(s->why, sizeof s->why, "'%s': %.*s", s->w->node.spec.task[a->from].name,
                    (int)wf_min_i64(a->n - (int64_t)sizeof h, 300), body);
    } else if (a->kind == WF_SITE_SNAP && !p->copied) {
        take_copied(s, p, &h, body, a->n - (int64_t)sizeof h);
    } else if (a->kind == WF_SITE_PART) {
        take_part(s, p, &h, body, a->n - (int64_t)sizeof h);
    } else if (a->kind == WF_SITE_PART_DATA && s->reads_of == p - s->part) {
        take_bytes(s, &h, body, a->n - (int64_t)sizeof h);
    }
}

/* ---- copies ---------------------------------------------------------------------------------- */

static bool is_over(const struct wf_ps_save *s)
{
    return s->failed || s->gone || s->w->rejoin || s->w->restores || s->w->ends || s->w->node.st;
}

static bool is_copied(void *arg)
{
    struct wf_ps_save *s = arg;

    return is_over(s) || (all_copied(s) && covers(s));
}

static weft_status err_over(const struct wf_ps_save *s)
{
    if (s->w->ends || s->w->rejoin)
        return wf_err(WEFT_ECANCEL, "version %lld: this worker leaves the job", (long long)s->t);
    if (s->w->restores)
        return wf_ps_worker_err_back(s->w);
    if (s->gone)
        return wf_err(WEFT_ESTATE, "version %lld is gone: the job is at a later one",
                      (long long)s->t);
    return wf_err(WEFT_EIO, "%s", s->why);
}

/* Where the rows of each server are among those of all. */
static void place_rows(struct wf_ps_save *s)
{
    int n_vars = s->w->opts.job->rules.n_vars;

    for (int v = 0; v < 2 * n_vars; v++) {
        bool none = v >= n_vars; /* what is kept */
        int64_t at = 0;

        for (int i = 0; i < s->n_parts; i++) {
            struct wf_snap_rows *r = &s->part[i].rows[v];

            none = none && r->n < 0;
            r->n = wf_max_i64(r->n, 0); /* a server without tables keeps nothing */
            r->first = at;
            at += r->n;
        }
        for (int i = 0; i < s->n_parts; i++)
            s->part[i].rows[v].total = none ? -1 : at;
    }
}

/* With `lock`. */
static weft_status take_copies(struct wf_ps_save *s)
{
    struct wf_site *node = &s->w->node;
    weft_status st;

    wf_site_lock(node);
    s->epoch = 0;
    s->asks = false;
    s->asked_ns = wf_site_now(node);
    ask_copies(s);
    wf_site_unlock(node);
    st = wf_site_wait(node, is_copied, s, WF_PS_GIVE_UP * node->spec.timeout_ns,
                      "copies of the parameters for a checkpoint");
    wf_site_lock(node);
    if (!st && is_over(s))
        st = err_over(s);
    if (!st)
        place_rows(s);
    wf_site_unlock(node);
    return st;
}

static void unref(struct wf_ps_save *s)
{
    if (--s->refs > 0)
        return;
    clear_parts(s);
    pthread_mutex_destroy(&s->lock);
    wf_free(s->ctx, s);
}

weft_status wf_ps_save_begin(struct wf_ps_worker *w, int64_t t, struct wf_ps_save **out)
{
    struct wf_ps_save *s = wf_alloc(w->node.ctx, sizeof *s);
    weft_status st;

    if (!s)
        return wf_err_nomem(w->node.ctx, sizeof *s, "checkpoint");
    s->ctx = w->node.ctx;
    s->w = w;
    s->t = t;
    s->refs = 1;
    s->reads_of = -1;
    pthread_mutex_init(&s->lock, NULL);
    st = wf_entropy(s->ctx, &s->id, sizeof s->id);
    wf_site_lock(&w->node);
    if (!st && w->save)
        st = wf_err(WEFT_ESTATE, "a checkpoint is already being written");
    if (!st)
        w->save = s;
    wf_site_unlock(&w->node);
    pthread_mutex_lock(&s->lock);
    if (!st)
        st = take_copies(s);
    pthread_mutex_unlock(&s->lock);
    if (st) {
        wf_ps_save_free(s);
        return st;
    }
    *out = s;
    return WEFT_OK;
}

void wf_ps_save_free(struct wf_ps_save *s)
{
    if (!s)
        return;
    pthread_mutex_lock(&s->lock);
    if (s->w) {
        wf_site_lock(&s->w->node);
        for (int i = 0; i < s->n_parts; i++)
            send_to(s, s->part[i].node, WF_SITE_PART_DROP, &(struct wf_save_head){.id = s->id},
                    NULL, 0);
        if (s->w->save == s)
            s->w->save = NULL;
        wf_site_unlock(&s->w->node);
        s->w = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    unref(s);
}

void wf_ps_saves_end(struct wf_ps_worker *w)
{
    struct wf_ps_save *s;

    wf_site_lock(&w->node);
    w->ends = true;
    s = w->save;
    if (s)
        s->refs++;
    wf_site_unlock(&w->node);
    if (!s)
        return;
    pthread_mutex_lock(&s->lock); /* whoever waits there returns soon */
    wf_site_lock(&w->node);
    w->save = NULL;
    wf_site_unlock(&w->node);
    s->w = NULL;
    pthread_mutex_unlock(&s->lock);
    unref(s);
}

weft_status wf_ps_save_tensors(const struct wf_ps_save *s, struct wf_arena *mem,
                               weft_ckpt_tensor **out, int64_t *n)
{
    const struct wf_rules *r = &s->w->opts.job->rules;
    int n_slots = s->w->opts.n_slots;
    weft_ckpt_tensor *list = wf_arena_alloc(
        mem, ((size_t)r->n_vars * (size_t)(1 - WF_SNAP_FIRST + n_slots) + 1) * sizeof *list);

    *n = 0;
    for (int v = 0; v < r->n_vars && list; v++)
        for (int k = WF_SNAP_FIRST; k <= n_slots; k++) {
            int64_t total = r->var[v].table ? s->part[0].rows[wf_snap_at(r, v, k)].total : 0;
            char *name = NULL;

            if (!wf_snap_has(&r->var[v], total, k))
                continue;
            name = wf_snap_name(mem, &r->var[v], k);
            if (!name)
                return wf_err_nomem(s->ctx, 0, "names of a checkpoint");
            list[(*n)++] = (weft_ckpt_tensor){
                name, wf_snap_is_slot(r, &r->var[v]) ? "slot" : wf_snap_section(k),
                wf_snap_type(&r->var[v], k, total)};
        }
    *out = list;
    return list ? WEFT_OK : wf_err_nomem(s->ctx, sizeof *list, "checkpoint");
}

int64_t wf_ps_save_max(const struct wf_ps_save *s)
{
    return s->w->node.spec.n_tasks;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* A server that the job has lost. */
static bool is_lost(const struct wf_ps_save *s, const struct part *p)
{
    const struct wf_view *v = &s->w->m.view;

    return v->belongs && !wf_epoch_has(v->epoch, p->node, p->incarnation);
}

struct waiting {
    struct wf_ps_save *s;
    int part;      /* whose text is awaited; -1: bytes are */
    int64_t heard; /* when the wait began */
};

static bool is_answered(void *arg)
{
    const struct waiting *a = arg;
    const struct wf_ps_save *s = a->s;
    int part = a->part >= 0 ? a->part : s->reads_of;

    return is_over(s) || s->heard != a->heard || part < 0 || is_lost(s, &s->part[part]) ||
           (a->part >= 0 && s->part[part].state != WF_SAVE_BUSY);
}

/* Until a part is written or the bytes are here. While a server says that it is busy, it is waited
 * for. */
static weft_status wait_for(struct wf_ps_save *s, int part)
{
    struct wf_site *node = &s->w->node;

    for (;;) {
        struct waiting a = {s, part, 0};
        weft_status st;
        bool done;
        int of;

        wf_site_lock(node);
        a.heard = s->heard;
        wf_site_unlock(node);
        st = wf_site_wait(node, is_answered, &a, WF_PS_GIVE_UP * node->spec.timeout_ns,
                          "a part of a checkpoint, from a parameter server");
        if (st)
            return st;
        wf_site_lock(node);
        of = part >= 0 ? part : s->reads_of;
        done = part >= 0 ? s->part[part].state != WF_SAVE_BUSY : of < 0;
        if (is_over(s))
            st = err_over(s);
        else if (!done && is_lost(s, &s->part[of]))
            st = wf_err(WEFT_EPEER, "'%s' was lost before its part was written",
                        node->spec.task[s->part[of].node].name);
        wf_site_unlock(node);
        if (st || done)
            return st;
    }
}

static weft_status read_bytes(void *arg, int64_t at, int64_t n, void *to)
{
    const struct reading *r = arg;
    struct wf_ps_save *s = r->s;
    weft_status st;

    wf_site_lock(&s->w->node);
    s->reads = (struct wf_save_head){.id = s->id, .item = r->item, .at = at, .n = n};
    s->to = to;
    s->reads_of = r->part;
    ask_bytes(s);
    wf_site_unlock(&s->w->node);
    st = wait_for(s, -1);
    wf_site_lock(&s->w->node);
    s->reads_of = -1;
    wf_site_unlock(&s->w->node);
    return st;
}

/* This process writes what a server has. */
static weft_status write_for(struct wf_ps_save *s, int i, char **text)
{
    const struct part *p = &s->part[i];
    struct wf_snap_list l = {
        &s->w->opts.job->rules, s->w->cut, s->w->opts.n_slots, p->n_pieces, p->piece, p->rows};
    struct wf_snap_item *item;
    struct wf_arena mem;
    struct reading *reads = NULL;
    weft_ckpt_piece *piece = NULL;
    char writer[32];
    int64_t n = 0;
    weft_status st;

    name_writer(s, i, "copied", writer);
    wf_arena_init(&mem, s->ctx);
    st = wf_snap_items(&mem, &l, &item, &n);
    if (!st) {
        reads = wf_alloc_n(s->ctx, n + 1, sizeof *reads);
        piece = wf_alloc_n(s->ctx, n + 1, sizeof *piece);
        st = reads && piece ? WEFT_OK : wf_err_nomem(s->ctx, sizeof *piece, "checkpoint");
    }
    for (int64_t k = 0; k < n && !st; k++) {
        reads[k] = (struct reading){s, i, k};
        piece[k] = item[k].piece;
        piece[k].read = read_bytes;
        piece[k].arg = &reads[k];
    }
    if (!st)
        st = weft_ckpt_part_write(
            s->ctx, s->dir, s->name,
            WEFT_OPTS(weft_ckpt_part, .writer = writer, .n_pieces = n, .pieces = piece), text);
    wf_free(s->ctx, reads);
    wf_free(s->ctx, piece);
    wf_arena_free(&mem);
    return st;
}

static weft_status write_parts(struct wf_ps_save *s, char **text, int64_t *n)
{
    struct wf_site *node = &s->w->node;
    weft_status st = WEFT_OK;

    *n = 0;
    wf_site_lock(node);
    s->asked_ns = wf_site_now(node);
    s->asks = true;
    for (int i = 0; i < s->n_parts; i++)
        ask_part(s, i);
    wf_site_unlock(node);
    for (int i = 0; i < s->n_parts && !st; i++) {
        struct part *p = &s->part[i];

        st = wait_for(s, i);
        if (!st && p->state == WF_SAVE_READY) {
            text[(*n)++] = p->text;
            p->text = NULL;
            continue;
        }
        if (!st && p->state == WF_SAVE_FAILED)
            wf_log(s->ctx, WEFT_LOG_WARN,
                   "checkpoint of version %lld: '%s' cannot write its part, worker/%d does: %s",
                   (long long)s->t, node->spec.task[p->node].name,
                   node->spec.task[node->self].index, p->text);
        if (!st)
            st = write_for(s, i, &text[*n]);
        if (!st)
            ++*n;
    }
    return st;
}

/* The file by which a server recognizes the folder. */
static weft_status put_probe(struct wf_ps_save *s)
{
    char path[4096], text[24];
    weft_status st = wf_entropy(s->ctx, &s->nonce, sizeof s->nonce);

    if (!st && snprintf(path, sizeof path, "%s/.tmp-%s/%s", s->dir, s->name, WF_SAVE_PROBE) >=
                   (int)sizeof path)
        st = wf_err(WEFT_EINVAL, "%s: the path is too long", s->dir);
    snprintf(text, sizeof text, "%016llx", (unsigned long long)s->nonce);
    return st ? st : wf_file_write(s->ctx, path, text, 16);
}

static void drop_texts(struct wf_ps_save *s, char **text, int64_t *n)
{
    for (; *n > 0; --*n) {
        weft_text_free(s->ctx, text[*n - 1]);
        text[*n - 1] = NULL;
    }
}

/* With `lock`. Where a server was lost, once more with those that hold its pieces now. */
static weft_status try_parts(struct wf_ps_save *s, char **text, int64_t *n)
{
    weft_status st = put_probe(s), again;

    while (!st) {
        char why[512];

        st = write_parts(s, text, n);
        if (st != WEFT_EPEER || ++s->tries >= MAX_TRIES)
            break;
        snprintf(why, sizeof why, "%s", weft_error());
        drop_texts(s, text, n);
        again = take_copies(s);
        if (again) {
            st = strcmp(why, weft_error()) ? wf_err(again, "%s, and then: %s", why, weft_error())
                                           : again;
            break;
        }
        wf_log(s->ctx, WEFT_LOG_INFO, "checkpoint of version %lld: %s; it is written again",
               (long long)s->t, why);
        st = WEFT_OK;
    }
    if (st)
        drop_texts(s, text, n);
    return st;
}

weft_status wf_ps_save_write(struct wf_ps_save *s, const char *dir, const char *name, char **text,
                             int64_t *n)
{
    char *whole = realpath(dir, NULL);
    weft_status st;

    *n = 0;
    pthread_mutex_lock(&s->lock);
    if (!whole) {
        st = wf_err(WEFT_EIO, "%s: the directory does not exist", dir);
    } else if (!s->w) {
        st = wf_err(WEFT_ECANCEL, "version %lld: this worker leaves the job", (long long)s->t);
    } else {
        s->dir = whole;
        s->name = name;
        st = try_parts(s, text, n);
        wf_site_lock(&s->w->node);
        s->asks = false;
        s->dir = s->name = NULL;
        wf_site_unlock(&s->w->node);
    }
    pthread_mutex_unlock(&s->lock);
    free(whole);
    return st;
}
