/* region.c - memory that both ends of a link have: made, shared, and referred to by messages.
 *
 * A region is counted: once for the caller's handle, and once for each link whose table has it. A
 * reference to one that a peer sends is checked against the table: the region is there, and has
 * these bytes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>

#include "net/link.h"

enum { HEAD = 9, REF = 24, WRITABLE = 1 };
#define YOURS ((uint64_t)1 << 63) /* the region was made by who receives the reference */

struct region {
    struct wf_region r; /* first */
    weft_ctx *ctx;
    _Atomic int n_refs;
    struct region *memory;    /* whose memory this is: the peer's, over inproc; wf_region_alias */
    const struct wf_net *net; /* of the link */
    int64_t link;             /* its number */
    bool mapped, sealed, shared, charged;
    int fd; /* -1: none */
};

struct wf_shared {
    struct wf_shared *next;
    struct region *region;
};

static struct region *of(struct wf_region *r)
{
    return (struct region *)(void *)r;
}

int wf_region_fd(const struct wf_region *r)
{
    return ((const struct region *)(const void *)r)->fd;
}

void wf_region_ref(struct wf_region *r)
{
    of(r)->n_refs++;
}

void wf_region_drop(struct wf_region *r)
{
    struct region *g = r ? of(r) : NULL;
    const struct wf_sys *sys;

    if (!g || --g->n_refs > 0)
        return;
    sys = g->ctx->sys;
    if (g->memory)
        wf_region_drop(&g->memory->r);
    else if (g->mapped && r->p)
        sys->munmap(sys->arg, r->p, r->n);
    else if (!g->mapped)
        wf_free(g->ctx, r->p);
    if (g->fd >= 0)
        sys->close(sys->arg, g->fd);
    if (g->charged)
        wf_mem_release(g->ctx, r->n);
    wf_free(g->ctx, g);
}

static struct region *new_region(struct wf_link *l, uint64_t id, int64_t n, bool writable,
                                 bool mine)
{
    struct region *g = wf_alloc(l->net->ctx, sizeof *g);

    if (!g)
        return NULL;
    *g = (struct region){.r = {.id = id, .n = n, .writable = writable, .mine = mine},
                         .ctx = l->net->ctx,
                         .n_refs = 1,
                         .net = l->net,
                         .link = l->number,
                         .fd = -1};
    return g;
}

/* ---- the table of a link --------------------------------------------------------------------- */

static struct region *find(const struct wf_link *l, uint64_t id, bool mine)
{
    const struct wf_shared *s = l->regions;

    while (s && (s->region->r.id != id || s->region->r.mine != mine))
        s = s->next;
    return s ? s->region : NULL;
}

struct wf_region *wf_region_of(struct wf_link *l, uint64_t id, bool mine)
{
    struct region *g = find(l, id, mine);

    return g ? &g->r : NULL;
}

/* Takes a reference. With the link's mutex. */
static weft_status add(struct wf_link *l, struct region *g)
{
    struct wf_shared *s = wf_alloc(l->net->ctx, sizeof *s);

    if (!s)
        return wf_err_nomem(l->net->ctx, sizeof *s, "a region");
    wf_region_ref(&g->r);
    *s = (struct wf_shared){l->regions, g};
    l->regions = s;
    return WEFT_OK;
}

void wf_regions_free(struct wf_link *l)
{
    struct wf_shared *s = l->regions, *next;

    for (; s; s = next) {
        next = s->next;
        wf_region_drop(&s->region->r);
        wf_free(l->net->ctx, s);
    }
    l->regions = NULL;
}

/* Bytes and number of those that one end made. */
static int64_t total(const struct wf_link *l, bool mine, int *n)
{
    int64_t bytes = 0;

    *n = 0;
    for (const struct wf_shared *s = l->regions; s; s = s->next)
        if (s->region->r.mine == mine) {
            bytes += s->region->r.n;
            ++*n;
        }
    return bytes;
}

/* ---- making and sharing ---------------------------------------------------------------------- */

weft_status wf_region_new(struct wf_link *l, int64_t n, bool writable, struct wf_region **out)
{
    weft_ctx *ctx = l->net->ctx;
    struct region *g;
    uint64_t id;
    weft_status st = WEFT_OK;

    if (n < 1)
        return wf_err(WEFT_EINVAL, "%s: a region of %lld bytes", l->name, (long long)n);
    if (l->state != WF_LINK_UP)
        return wf_err(WEFT_ESTATE, "%s: a region of a link that is not up", l->name);
    pthread_mutex_lock(&l->out);
    id = ++l->next_region;
    pthread_mutex_unlock(&l->out);
    g = new_region(l, id, n, writable, true);
    if (!g)
        return wf_err_nomem(ctx, sizeof *g, "a region");
    if (l->kind == WF_ADDRESS_SHM) {
        g->mapped = true;
        /* Counted where it is made; the peer's limit is max_regions. */
        g->charged = wf_mem_charge(ctx, n);
        st = g->charged ? wf_shm_make(ctx, n, &g->fd) : wf_err_nomem(ctx, (size_t)n, "a region");
        if (!st)
            st = wf_shm_map(ctx, g->fd, n, true, &g->r.p);
    } else {
        g->r.p = wf_alloc(ctx, (size_t)n);
        st = g->r.p ? WEFT_OK : wf_err_nomem(ctx, (size_t)n, "a region");
    }
    if (st) {
        wf_region_drop(&g->r);
        return wf_err_wrap(st, "%s", l->name);
    }
    *out = &g->r;
    return WEFT_OK;
}

weft_status wf_region_memory(weft_ctx *ctx, int64_t n, bool charged, struct wf_region **out)
{
    struct region *g = wf_alloc(ctx, sizeof *g);
    weft_status st;

    if (!g || n < 1) {
        wf_free(ctx, g);
        return n < 1 ? wf_err(WEFT_EINVAL, "shared memory of %lld bytes", (long long)n)
                     : wf_err_nomem(ctx, sizeof *g, "shared memory");
    }
    *g = (struct region){
        .r = {.n = n, .mine = true}, .ctx = ctx, .n_refs = 1, .mapped = true, .fd = -1};
    g->charged = charged && wf_mem_charge(ctx, n);
    st = charged && !g->charged ? wf_err_nomem(ctx, (size_t)n, "shared memory")
                                : wf_shm_make(ctx, n, &g->fd);
    if (!st)
        st = wf_shm_map(ctx, g->fd, n, true, &g->r.p);
    if (!st)
        st = wf_shm_seal(ctx, g->fd, true);
    if (st) {
        wf_region_drop(&g->r);
        return st;
    }
    *out = &g->r;
    return WEFT_OK;
}

weft_status wf_region_alias(struct wf_link *l, struct wf_region *memory, struct wf_region **out)
{
    const struct wf_sys *sys = l->net->ctx->sys;
    struct region *g;
    uint64_t id;

    if (of(memory)->net || l->state != WF_LINK_UP)
        return wf_err(WEFT_EINVAL, "%s: %s", l->name,
                      of(memory)->net ? "the memory belongs to a link" : "the link is not up");
    pthread_mutex_lock(&l->out);
    id = ++l->next_region;
    pthread_mutex_unlock(&l->out);
    g = new_region(l, id, memory->n, false, true);
    if (!g)
        return wf_err_nomem(l->net->ctx, sizeof *g, "a region");
    wf_region_ref(memory);
    g->memory = of(memory);
    g->r.p = memory->p;
    if (l->kind == WF_ADDRESS_SHM) {
        g->fd = sys->fcntl(sys->arg, of(memory)->fd, F_DUPFD_CLOEXEC, 0);
        if (g->fd < 0) {
            int rc = g->fd;

            g->fd = -1;
            wf_region_drop(&g->r);
            return wf_err(WEFT_EIO, "%s: a descriptor of shared memory: %s", l->name,
                          wf_errno_text(-rc));
        }
    }
    *out = &g->r;
    return WEFT_OK;
}

bool wf_link_maps(const struct wf_link *l)
{
    return l->kind == WF_ADDRESS_SHM || l->kind == WF_ADDRESS_INPROC;
}

/* A region that could not be shared. */
static void forget(struct wf_link *l, struct region *g)
{
    struct wf_shared *last = NULL, *s;

    pthread_mutex_lock(&l->out);
    for (s = l->regions; s && s->region != g; s = s->next)
        last = s;
    if (s && last)
        last->next = s->next;
    else if (s)
        l->regions = s->next;
    g->shared = false;
    pthread_mutex_unlock(&l->out);
    if (s)
        wf_region_drop(&g->r);
    wf_free(l->net->ctx, s);
}

weft_status wf_region_share(struct wf_link *l, struct wf_region *r)
{
    struct wf_frame f = {.type = WF_FRAME_REGION, .n_head = HEAD, .id = r->id};
    struct region *g = of(r);
    uint8_t head[HEAD];
    weft_status st = WEFT_OK;
    int n;

    pthread_mutex_lock(&l->out);
    if (!r->mine || g->net != l->net || g->link != l->number || g->shared)
        st = wf_err(WEFT_EINVAL, "%s: region %llu %s", l->name, (unsigned long long)r->id,
                    g->shared ? "is shared already" : "belongs to another link");
    total(l, true, &n);
    if (!st && n >= WF_MAX_REGIONS)
        st = wf_err(WEFT_ELIMIT, "%s: %d regions are shared; more are not allowed", l->name, n);
    if (!st && g->fd >= 0 && !g->memory && !g->sealed) { /* of an alias: it is sealed already */
        st = wf_shm_seal(g->ctx, g->fd, !r->writable);
        g->sealed = !st;
    }
    if (!st)
        st = add(l, g);
    g->shared |= !st;
    pthread_mutex_unlock(&l->out);
    if (st)
        return st;
    for (int i = 0; i < 8; i++)
        head[i] = (uint8_t)((uint64_t)r->n >> 8 * i);
    head[8] = r->writable ? WRITABLE : 0;
    st = wf_sendq_region(l, &f, head, r);
    if (st)
        forget(l, g);
    return st;
}

/* What the peer shares becomes memory of this process. */
static weft_status take_memory(struct wf_link *l, struct region *g)
{
    weft_ctx *ctx = l->net->ctx;
    weft_status st;

    if (l->kind == WF_ADDRESS_INPROC) {
        struct wf_region *theirs = wf_inproc_region(l, g->r.id);

        if (!theirs || theirs->n != g->r.n)
            return wf_err(WEFT_EPEER, "region %llu of the peer is gone",
                          (unsigned long long)g->r.id);
        g->memory = of(theirs);
        g->r.p = theirs->p;
        return WEFT_OK;
    }
    if (l->kind != WF_ADDRESS_SHM) {
        g->r.p = wf_alloc(ctx, (size_t)g->r.n);
        return g->r.p ? WEFT_OK : wf_err_nomem(ctx, (size_t)g->r.n, "a region of the peer");
    }
    g->mapped = true;
    g->fd = wf_shm_take_fd(l);
    if (g->fd < 0)
        return wf_err(WEFT_EPEER, "region %llu came without its memory",
                      (unsigned long long)g->r.id);
    st = wf_shm_check(ctx, g->fd, g->r.n, !g->r.writable);
    return st ? st : wf_shm_map(ctx, g->fd, g->r.n, g->r.writable, &g->r.p);
}

static weft_status check_new(struct wf_link *l, uint64_t id, uint64_t n, unsigned flags)
{
    int count;
    int64_t bytes = total(l, false, &count);
    const int64_t max = l->net->opts.max_regions;

    if (flags & ~(unsigned)WRITABLE || id == 0 || id & YOURS || find(l, id, false))
        return wf_err(WEFT_EPEER, "region %llu is not new, or not valid", (unsigned long long)id);
    if (count >= WF_MAX_REGIONS)
        return wf_err(WEFT_EPEER, "the peer shares more than %d regions", WF_MAX_REGIONS);
    if (n == 0 || n > (uint64_t)(max - bytes))
        return wf_err(WEFT_EPEER, "a region of %llu bytes; the peer may share %lld in all",
                      (unsigned long long)n, (long long)max);
    return WEFT_OK;
}

weft_status wf_region_take(struct wf_link *l, const struct wf_frame *f, const uint8_t *head)
{
    const struct wf_net_calls *calls = &l->net->opts.calls;
    struct region *g;
    uint64_t n = 0;
    weft_status st;

    for (int i = 0; i < 8 && f->n_head == HEAD; i++)
        n |= (uint64_t)head[i] << 8 * i;
    pthread_mutex_lock(&l->out);
    st = f->n_head == HEAD ? check_new(l, f->id, n, head[8])
                           : wf_err(WEFT_EPEER, "a region that is not described");
    pthread_mutex_unlock(&l->out);
    if (st)
        return st;
    g = new_region(l, f->id, (int64_t)n, head[8] & WRITABLE, false);
    if (!g)
        return wf_err_nomem(l->net->ctx, sizeof *g, "a region");
    st = take_memory(l, g);
    if (!st) {
        pthread_mutex_lock(&l->out);
        st = add(l, g);
        pthread_mutex_unlock(&l->out);
    }
    if (!st && calls->region)
        calls->region(calls->arg, l, &g->r); /* has our reference from now on */
    else
        wf_region_drop(&g->r);
    return st;
}

/* ---- references ------------------------------------------------------------------------------ */

static void put64(uint8_t *out, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)(v >> 8 * i);
}

static uint64_t get64(const uint8_t *p)
{
    uint64_t v = 0;

    for (int i = 0; i < 8; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

/* The region that a part lies in, and may be sent from. */
static const struct wf_region *region_of_part(const struct wf_link *l, const struct wf_part *p)
{
    uintptr_t at = (uintptr_t)p->p;

    for (const struct wf_shared *s = l->regions; s; s = s->next) {
        const struct wf_region *r = &s->region->r;
        uintptr_t start = (uintptr_t)r->p;

        if (at >= start && at - start <= (uint64_t)r->n &&
            (uint64_t)p->n <= (uint64_t)r->n - (at - start) && (r->mine || r->writable))
            return r;
    }
    return NULL;
}

int wf_region_refs(const struct wf_link *l, const struct wf_msg *m, uint8_t *out)
{
    int n = 0;

    for (int i = 0; i < m->n_parts; i++) {
        const struct wf_region *r;

        if (m->part[i].n == 0)
            continue;
        r = n < WF_MAX_REFS ? region_of_part(l, &m->part[i]) : NULL;
        if (!r)
            return 0;
        put64(out + n * REF, r->id | (r->mine ? 0 : YOURS));
        put64(out + n * REF + 8, (uint64_t)((const char *)m->part[i].p - (const char *)r->p));
        put64(out + n * REF + 16, (uint64_t)m->part[i].n);
        n++;
    }
    if (n == 0)
        return 0;
    out[n * REF] = (uint8_t)n;
    return n * REF + 1;
}

static weft_status read_ref(const struct wf_link *l, const uint8_t *ref, struct wf_part *out)
{
    uint64_t id = get64(ref), at = get64(ref + 8), n = get64(ref + 16);
    const struct region *g = find(l, id & ~YOURS, (id & YOURS) != 0);

    if (!g || (g->r.mine && !g->r.writable))
        return wf_err(WEFT_EPEER, "a message in region %llu, which the peer does not have",
                      (unsigned long long)(id & ~YOURS));
    if (n == 0 || at > (uint64_t)g->r.n || n > (uint64_t)g->r.n - at)
        return wf_err(WEFT_EPEER, "a message at %llu of %llu bytes, in a region of %lld",
                      (unsigned long long)at, (unsigned long long)n, (long long)g->r.n);
    *out = (struct wf_part){(char *)g->r.p + at, (int64_t)n};
    return WEFT_OK;
}

weft_status wf_region_parts(struct wf_link *l, const struct wf_frame *f, const uint8_t *head,
                            int *n_parts, int64_t *n_payload, int32_t *n_head)
{
    int n = f->n_head > 0 ? head[f->n_head - 1] : 0, first = f->n_head - 1 - n * REF;
    weft_status st = WEFT_OK;
    int64_t bytes = 0;

    if (n < 1 || n > WF_MAX_REFS || first < 0)
        return wf_err(WEFT_EPEER, "a message in %d places of regions", n);
    pthread_mutex_lock(&l->out);
    for (int i = 0; i < n && !st; i++) {
        st = read_ref(l, head + first + i * REF, &l->ref[i]);
        if (!st && !wf_add_i64(bytes, l->ref[i].n, &bytes))
            st = wf_err(WEFT_EPEER, "a message of too many bytes");
    }
    pthread_mutex_unlock(&l->out);
    if (!st && f->n_payload != (l->wire->shares ? 0 : bytes))
        st = wf_err(WEFT_EPEER, "a message in regions of %lld bytes that brings %lld",
                    (long long)bytes, (long long)f->n_payload);
    if (st)
        return st;
    *n_parts = n;
    *n_payload = bytes;
    *n_head = first;
    return WEFT_OK;
}
