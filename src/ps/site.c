/* site.c - links of a member of a job: who is connected, what is sent, what arrives. */
#define _GNU_SOURCE
#include "ps/serve.h"

#include "cluster/codec.h"

#include <time.h>

#define GOODBYE_NS 500000000
#define MAX_REGIONS ((int64_t)1 << 42) /* bytes that a peer shares: mapped, not allocated */

enum { HEAD_BYTES = sizeof(struct wf_site_head) };

int64_t wf_site_now(const struct wf_site *n)
{
    return wf_now(n->ctx);
}

void wf_site_lock(struct wf_site *n)
{
    pthread_mutex_lock(&n->lock);
}

void wf_site_unlock(struct wf_site *n)
{
    pthread_mutex_unlock(&n->lock);
}

weft_status wf_site_fail(struct wf_site *n, weft_status st)
{
    if (st && !n->st) {
        n->st = st;
        wf_snprintf(n->why, sizeof n->why, "%s", weft_error());
        wf_log(n->ctx, WEFT_LOG_WARN, "task '%s' stops: %s", n->spec.task[n->self].name, n->why);
        for (int i = 0; i < n->spec.n_tasks; i++) /* others need not wait for it */
            if (n->peer[i].link)
                wf_link_close(n->peer[i].link);
    }
    return st;
}

/* ---- who is there ---------------------------------------------------------------------------- */

static int node_of(const struct wf_site *n, const struct wf_identity *who)
{
    for (int i = 0; i < n->spec.n_tasks; i++)
        if (strcmp(n->spec.task[i].name, who->name) == 0)
            return i;
    return WF_NOBODY;
}

static int node_of_link(const struct wf_site *n, const struct wf_link *l)
{
    for (int i = 0; i < n->spec.n_tasks; i++)
        if (n->peer[i].link == l)
            return i;
    return WF_NOBODY;
}

bool wf_site_has(const struct wf_site *n, int node)
{
    return node >= 0 && node < n->spec.n_tasks && n->peer[node].up;
}

static bool listens(const struct wf_site *n, int node)
{
    enum wf_role role = n->spec.task[node].role;

    return role == WF_ROLE_CHIEF || role == WF_ROLE_SERVER;
}

bool wf_site_is_alone(const struct wf_site *n)
{
    for (int i = 0; i < n->spec.n_tasks; i++)
        if (i != n->self && listens(n, i) && (n->peer[i].up || !n->peer[i].refused))
            return false;
    return true;
}

const char *wf_site_why(const struct wf_site *n, int chief)
{
    for (int i = 0; i < n->spec.n_tasks; i++)
        if ((i == chief || chief < 0) && n->spec.task[i].role == WF_ROLE_CHIEF && n->peer[i].why[0])
            return n->peer[i].why;
    return "not connected";
}

/* Whether this node is the one that connects. */
static bool connects(const struct wf_site *n, int to)
{
    return to != n->self && listens(n, to) && (!listens(n, n->self) || to < n->self);
}

static void try_links(struct wf_site *n, int64_t now)
{
    for (int i = 0; i < n->spec.n_tasks; i++) {
        struct wf_peer *p = &n->peer[i];

        if (!connects(n, i) || p->link || (p->tried_ns && now - p->tried_ns < n->spec.retry_ns))
            continue;
        p->tried_ns = now;
        if (wf_net_connect(n->net, n->spec.task[i].address, n->spec.timeout_ns, &p->link))
            p->link = NULL; /* again at the next tick */
    }
}

/* Who is not in the list may ask questions: `weft ctl`, and tasks that want to be added. */
static bool may_ask(const struct wf_identity *who)
{
    return strcmp(who->role, WF_CONTROL_ROLE) == 0 ||
           strcmp(who->role, wf_role_name(WF_ROLE_SERVER)) == 0 ||
           strcmp(who->role, wf_role_name(WF_ROLE_WORKER)) == 0;
}

weft_status wf_site_extend(struct wf_site *n, const char *list)
{
    weft_status st;

    pthread_mutex_lock(&n->list_lock);
    st = wf_added_read(list, (struct wf_task *)(uintptr_t)n->spec.task, &n->spec.n_tasks,
                       n->max_tasks);
    pthread_mutex_unlock(&n->list_lock);
    return st;
}

static weft_status admit(void *arg, struct wf_link *l)
{
    struct wf_site *n = arg;
    const struct wf_identity *who = wf_link_peer(l);
    char role[16] = "";
    int node;

    pthread_mutex_lock(&n->list_lock);
    node = node_of(n, who);
    if (node != WF_NOBODY)
        wf_snprintf(role, sizeof role, "%s", wf_role_name(n->spec.task[node].role));
    pthread_mutex_unlock(&n->list_lock);
    if (n->st || n->leaves)
        return wf_err(WEFT_EPEER, "task '%s' has stopped", n->spec.task[n->self].name);
    if (node == WF_NOBODY && n->calls->ask && may_ask(who))
        return WEFT_OK;
    if (node == WF_NOBODY || node == n->self)
        return wf_err(WEFT_EPEER, "'%s' is not a task of this job", who->name);
    if (strcmp(who->role, role) != 0)
        return wf_err(WEFT_EPEER, "'%s' says that it is a %s", who->name, who->role);
    return WEFT_OK;
}

static void unplace(struct wf_site *n, struct wf_peer *p)
{
    if (p->placing && p->placed)
        n->calls->unplace(n->arg, p->placed);
    p->placing = false;
    p->placed = NULL;
}

/* ---- memory that peers map ------------------------------------------------------------------- */

bool wf_site_maps(const struct wf_site *n, int to)
{
    return n->peer[to].up && wf_link_maps(n->peer[to].link);
}

bool wf_site_share(struct wf_site *n, int to, struct wf_region *const *memory, int count)
{
    struct wf_peer *p = &n->peer[to];

    if (!wf_site_maps(n, to) || count > WF_MAX_REGIONS)
        return false;
    while (p->n_shared < count) {
        struct wf_region *r;

        if (wf_region_alias(p->link, memory[p->n_shared], &r))
            return false;
        if (wf_region_share(p->link, r)) {
            wf_region_drop(r);
            return false;
        }
        wf_region_drop(r); /* the link has it */
        p->n_shared++;
    }
    return true;
}

const char *wf_site_region(const struct wf_site *n, int from, uint64_t number, int64_t bytes)
{
    const struct wf_peer *p = &n->peer[from];

    if (number < 1 || number > (uint64_t)p->n_regions)
        return NULL;
    return p->region[number - 1]->n == bytes ? p->region[number - 1]->p : NULL;
}

void wf_site_drop_old(struct wf_site *n)
{
    for (int64_t i = 0; i < n->n_old; i++)
        wf_region_drop(n->old[i]);
    n->n_old = 0;
}

static void region(void *arg, struct wf_link *l, struct wf_region *r)
{
    struct wf_site *n = arg;
    int node;

    wf_site_lock(n);
    node = node_of_link(n, l);
    if (node != WF_NOBODY && !wf_grow(n->ctx, &n->peer[node].region, &n->peer[node].cap_regions,
                                      n->peer[node].n_regions + 1, sizeof *n->peer[node].region)) {
        n->peer[node].region[n->peer[node].n_regions++] = r;
        r = NULL;
    }
    wf_site_unlock(n);
    wf_region_drop(r);
}

/* Its regions stay mapped until no one reads them. */
static void lose_regions(struct wf_site *n, struct wf_peer *p)
{
    for (int64_t i = 0; i < p->n_regions; i++)
        if (!wf_grow(n->ctx, &n->old, &n->cap_old, n->n_old + 1, sizeof *n->old))
            n->old[n->n_old++] = p->region[i]; /* otherwise it is never unmapped */
    p->n_regions = 0;
    p->n_shared = 0;
}

static void up(void *arg, struct wf_link *l)
{
    struct wf_site *n = arg;
    int node;

    wf_site_lock(n);
    node = node_of(n, wf_link_peer(l));
    if (node != WF_NOBODY) {
        struct wf_peer *p = &n->peer[node];

        if (p->link && p->link != l) /* an earlier process of it, or an earlier attempt */
            wf_link_close(p->link);
        unplace(n, p);
        lose_regions(n, p);
        p->link = l;
        p->up = true;
        p->refused = false;
        p->why[0] = '\0';
        if (!n->stop && !n->st && n->calls->up)
            n->calls->up(n->arg, node);
        if (!n->stop && !n->st && !n->leaves)
            wf_site_fail(n, n->calls->tick(n->arg, wf_site_now(n)));
    }
    wf_site_unlock(n);
}

static void down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    struct wf_site *n = arg;
    int node;

    wf_site_lock(n);
    node = node_of_link(n, l);
    if (node != WF_NOBODY) {
        struct wf_peer *p = &n->peer[node];
        uint64_t incarnation = p->up ? wf_link_peer(l)->incarnation : 0;
        bool was = p->up;

        unplace(n, p);
        lose_regions(n, p);
        p->link = NULL;
        p->up = false;
        p->refused = wf_link_refused(l);
        wf_snprintf(p->why, sizeof p->why, "%s", st ? why : "");
        if (was && !n->stop && !n->st && n->calls->down)
            wf_site_fail(n, n->calls->down(n->arg, node, incarnation, st != WEFT_ETIME));
    }
    wf_site_unlock(n);
    wf_link_drop(l);
}

/* ---- what arrives ---------------------------------------------------------------------------- */

/* Who sends what to whom, besides the messages of machines. */
static const struct may {
    uint32_t kind;
    enum wf_role from, to;
} may[] = {
    {WF_SITE_JOB, WF_ROLE_WORKER, WF_ROLE_CHIEF},
    {WF_SITE_JOB, WF_ROLE_CHIEF, WF_ROLE_SERVER},
    {WF_SITE_PRINT, WF_ROLE_WORKER, WF_ROLE_CHIEF},
    {WF_SITE_JOB_ASK, WF_ROLE_SERVER, WF_ROLE_CHIEF},
    {WF_SITE_IMAGE, WF_ROLE_WORKER, WF_ROLE_SERVER},
    {WF_SITE_IMAGE_ASK, WF_ROLE_SERVER, WF_ROLE_WORKER},
    {WF_SITE_SLOTS, WF_ROLE_SERVER, WF_ROLE_WORKER},
    {WF_SITE_SLOTS_ASK, WF_ROLE_WORKER, WF_ROLE_SERVER},
    {WF_SITE_FINISHED, WF_ROLE_WORKER, WF_ROLE_CHIEF},
    {WF_SITE_REFUSED, WF_ROLE_CHIEF, WF_ROLE_WORKER},
    {WF_SITE_REFUSED, WF_ROLE_SERVER, WF_ROLE_WORKER},
    {WF_SITE_SNAP_ASK, WF_ROLE_WORKER, WF_ROLE_SERVER},
    {WF_SITE_SNAP, WF_ROLE_SERVER, WF_ROLE_WORKER},
    {WF_SITE_PART_ASK, WF_ROLE_WORKER, WF_ROLE_SERVER},
    {WF_SITE_PART, WF_ROLE_SERVER, WF_ROLE_WORKER},
    {WF_SITE_PART_READ, WF_ROLE_WORKER, WF_ROLE_SERVER},
    {WF_SITE_PART_DATA, WF_ROLE_SERVER, WF_ROLE_WORKER},
    {WF_SITE_PART_DROP, WF_ROLE_WORKER, WF_ROLE_SERVER},
    {WF_SITE_STAT, WF_ROLE_WORKER, WF_ROLE_CHIEF},
    {WF_SITE_STAT, WF_ROLE_SERVER, WF_ROLE_CHIEF},
    {WF_SITE_ASKED, WF_ROLE_CHIEF, WF_ROLE_WORKER},
    {WF_SITE_KEPT, WF_ROLE_CHIEF, WF_ROLE_WORKER},
};

static bool may_send(uint32_t kind, enum wf_role from, enum wf_role to)
{
    if (kind > 0 && kind < WF_MSG_TYPES)
        return wf_message_may((enum wf_message_type)kind, from, to);
    for (int i = 0; i < WF_COUNT(may); i++)
        if (may[i].kind == kind && may[i].from == from && may[i].to == to)
            return true;
    return false;
}

/* What is in the head is what a peer of this role sends, and it says who it is. */
static weft_status check_sender(const struct wf_site *n, const struct wf_arrived *a,
                                bool has_fields)
{
    enum wf_role role = n->spec.task[a->from].role;

    if (!may_send(a->kind, role, n->spec.task[n->self].role))
        return wf_err(WEFT_EPEER, "a %s sends no message of kind %u (%s) to a %s",
                      wf_role_name(role), a->kind, wf_message_name((enum wf_message_type)a->kind),
                      wf_role_name(n->spec.task[n->self].role));
    if (has_fields && a->msg.from != a->from)
        return wf_err(WEFT_EPEER, "a message of node %d, which is not the sender", a->msg.from);
    if (a->kind >= WF_MSG_TYPES)
        return WEFT_OK;
    if (!has_fields || a->msg.type != (enum wf_message_type)a->kind)
        return wf_err(WEFT_EPEER, "a message without the fields of its kind, %u", a->kind);
    if (a->msg.role != role)
        return wf_err(WEFT_EPEER, "a message of a %s, which says that it is a %s",
                      wf_role_name(role), wf_role_name(a->msg.role));
    return WEFT_OK;
}

static weft_status read_head(struct wf_site *n, int from, const struct wf_msg *m,
                             struct wf_arrived *a)
{
    weft_status st = WEFT_OK;

    *a = (struct wf_arrived){.from = from, .kind = m->kind, .n = m->n_payload};
    if (m->n_head < HEAD_BYTES)
        return wf_err(WEFT_EPEER, "a message without a head");
    memcpy(&a->head, m->head, HEAD_BYTES);
    if (a->head.n_body < 0 || a->head.n_body > m->n_payload)
        return wf_err(WEFT_EPEER, "a message with a body of %lld bytes in %lld",
                      (long long)a->head.n_body, (long long)m->n_payload);
    if (m->n_head > HEAD_BYTES)
        st = wf_message_read((const char *)m->head + HEAD_BYTES, m->n_head - HEAD_BYTES, &a->msg,
                             n->bits, WF_FRAME_MAX_HEAD / 8);
    return st ? st : check_sender(n, a, m->n_head > HEAD_BYTES);
}

void wf_site_refuse(struct wf_site *n, int from)
{
    char why[300];

    wf_snprintf(why, sizeof why, "%s", weft_error());
    wf_log(n->ctx, WEFT_LOG_WARN, "task '%s' is refused: %s", n->spec.task[from].name, why);
    if (n->spec.task[from].role == WF_ROLE_WORKER)
        wf_site_send_copy(n, from, WF_SITE_REFUSED, NULL, why, (int64_t)strlen(why));
}

/* It does not keep to the protocol, as weft_error() says. */
static void break_off(struct wf_site *n, int node)
{
    wf_log(n->ctx, WEFT_LOG_WARN, "the link to task '%s' is closed: %s", n->spec.task[node].name,
           weft_error());
    wf_link_close(n->peer[node].link);
}

static weft_status place(void *arg, struct wf_link *l, const struct wf_msg *m,
                         const struct wf_part **parts, int *n_parts)
{
    struct wf_site *n = arg;
    struct wf_arrived a;
    weft_status st;
    int node;

    wf_site_lock(n);
    node = node_of_link(n, l);
    *n_parts = 0;
    st = node == WF_NOBODY || n->stop || n->st ? WEFT_OK : read_head(n, node, m, &a);
    if (st)
        break_off(n, node);
    if (node != WF_NOBODY && !n->stop && !n->st && !st) {
        struct wf_peer *p = &n->peer[node];

        unplace(n, p);
        if (n->calls->place)
            *n_parts = n->calls->place(n->arg, &a, m->n_payload, p->part, &p->placed);
        p->placing = true;
        if (*n_parts == 0) {
            p->part[0] = (struct wf_part){NULL, m->n_payload};
            *n_parts = 1;
        }
        for (int i = 0; i < *n_parts && !st; i++)
            if (!p->part[i].p) {
                st = wf_grow(n->ctx, &p->mem, &p->cap, p->part[i].n + 1, 1);
                p->part[i].p = p->mem;
            }
        *parts = p->part;
    }
    wf_site_unlock(n);
    return st;
}

struct copied {
    weft_ctx *ctx;
    struct wf_part part;
    char bytes[];
};

static void free_copied(void *arg, weft_status st)
{
    struct copied *c = arg;

    (void)st;
    wf_free(c->ctx, c);
}

void wf_site_answer(struct wf_site *n, struct wf_link *l, uint64_t id, enum wf_site_mark mark,
                    const char *text)
{
    size_t bytes = strlen(text) + 1;
    struct copied *c = wf_alloc(n->ctx, sizeof *c + bytes + 1);
    struct wf_msg m = {.kind = WF_SITE_QUESTION, .n_parts = 1};

    if (!c) { /* the question ends without an answer */
        wf_link_close(l);
        return;
    }
    c->ctx = n->ctx;
    c->bytes[0] = (char)mark;
    memcpy(c->bytes + 1, text, bytes);
    c->part = (struct wf_part){c->bytes, (int64_t)bytes + 1};
    m.part = &c->part;
    if (wf_link_reply(l, id, WEFT_OK, &m, free_copied, c)) {
        free_copied(c, WEFT_EPEER);
        wf_link_close(l);
    }
}

/* Whoever asks something else than a question does not keep to the protocol. */
static void take_question(struct wf_site *n, struct wf_link *l, const struct wf_msg *m)
{
    char text[WF_SITE_MAX_QUESTION + 1];

    if (n->stop || n->st || !n->calls->ask || m->kind != WF_SITE_QUESTION || !m->id ||
        m->response || m->n_head < 1 || m->n_head > WF_SITE_MAX_QUESTION || m->n_payload) {
        wf_link_close(l);
        return;
    }
    memcpy(text, m->head, (size_t)m->n_head);
    text[m->n_head] = '\0';
    n->calls->ask(n->arg, l, m->id, text);
}

static void received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    struct wf_site *n = arg;
    struct wf_arrived a;
    int node;

    wf_site_lock(n);
    node = node_of_link(n, l);
    if (node == WF_NOBODY || m->kind == WF_SITE_QUESTION)
        take_question(n, l, m);
    else if (!n->stop && !n->st) {
        struct wf_peer *p = &n->peer[node];
        weft_status st = read_head(n, node, m, &a);

        n->messages++;
        n->received_bytes += m->n_head + m->n_payload;
        if (p->placing) {
            a.placed = p->placed;
            a.p = p->placed ? NULL : p->mem;
            a.rest = p->placed ? p->mem : NULL;
            p->placing = false;
            p->placed = NULL;
        }
        if (m->slot && m->n_parts == 1)
            a.p = m->part[0].p;
        if (!st)
            st = wf_site_fail(n, n->calls->received(n->arg, &a));
        else
            break_off(n, node);
    }
    wf_site_unlock(n);
    if (m->slot)
        wf_link_release(l, m->slot);
}

/* ---- what is sent ---------------------------------------------------------------------------- */

/* A message with a payload that has not left yet. What is requested again meanwhile is not sent
 * twice: a slow link would only become slower. */
struct flight {
    struct flight *next;
    struct wf_site *site;
    int to, piece, shard, level, block, round;
    uint32_t kind;
    int64_t t;
    wf_sent_fn *sent;
    void *arg;
};

static bool same_flight(const struct flight *a, const struct flight *b)
{
    return a->to == b->to && a->kind == b->kind && a->piece == b->piece && a->shard == b->shard &&
           a->level == b->level && a->block == b->block && a->round == b->round && a->t == b->t;
}

static void has_left(void *arg, weft_status st)
{
    struct flight *f = arg, **at;
    struct wf_site *n = f->site;

    pthread_mutex_lock(&n->flights_lock);
    for (at = &n->flights; *at != f;)
        at = &(*at)->next;
    *at = f->next;
    pthread_mutex_unlock(&n->flights_lock);
    if (f->sent)
        f->sent(f->arg, st);
    wf_free(n->ctx, f);
}

/* NULL: it is already under way, or there is no memory. */
static struct flight *take_off(struct wf_site *n, const struct flight *as)
{
    struct flight *f;

    pthread_mutex_lock(&n->flights_lock);
    for (f = n->flights; f && !same_flight(f, as);)
        f = f->next;
    f = f ? NULL : wf_alloc(n->ctx, sizeof *f);
    if (f) {
        *f = *as;
        f->next = n->flights;
        n->flights = f;
    }
    pthread_mutex_unlock(&n->flights_lock);
    return f;
}

static bool send_now(struct wf_site *n, int to, const struct wf_msg *m, wf_sent_fn *sent, void *arg)
{
    int64_t bytes = m->n_head;

    for (int i = 0; i < m->n_parts; i++)
        bytes += m->part[i].n;
    if (!wf_site_has(n, to) || wf_link_send(n->peer[to].link, m, sent, arg))
        return false;
    n->sent_bytes += bytes;
    return true;
}

void wf_site_send(struct wf_site *n, int to, uint32_t kind, const struct wf_message *m,
                  const struct wf_site_head *head, const struct wf_part *part, int n_parts,
                  wf_sent_fn *sent, void *arg)
{
    struct wf_msg out = {.kind = kind, .head = n->head, .part = part, .n_parts = n_parts};
    struct flight as = {.site = n, .to = to, .kind = kind, .sent = sent, .arg = arg};
    struct flight *f = NULL;
    int32_t more = 0;

    memcpy(n->head, head, HEAD_BYTES);
    if (m) {
        more = wf_message_write(m, n->head + HEAD_BYTES, WF_FRAME_MAX_HEAD - HEAD_BYTES);
        as.piece = m->piece;
        as.shard = m->shard;
        as.level = m->level;
        as.block = m->block;
        as.round = m->round;
        as.t = m->t;
    }
    out.n_head = HEAD_BYTES + more;
    if (more >= 0 && m && n_parts > 0 && kind != WF_MSG_EPOCH) {
        f = take_off(n, &as);
        if (f && send_now(n, to, &out, has_left, f))
            return;
        if (f)
            has_left(f, WEFT_EPEER);
        else if (sent)
            sent(arg, WEFT_EPEER);
        return;
    }
    if ((more < 0 || !send_now(n, to, &out, sent, arg)) && sent)
        sent(arg, WEFT_EPEER);
}

void wf_site_send_copy(struct wf_site *n, int to, uint32_t kind, const struct wf_message *m,
                       const void *p, int64_t bytes)
{
    struct wf_site_head head = {.n_body = bytes};
    struct copied *c = wf_alloc_raw(n->ctx, sizeof *c + (size_t)bytes + 1);
    struct wf_part part;

    if (!c)
        return; /* like a message that is lost: it is requested again */
    c->ctx = n->ctx;
    if (bytes)
        memcpy(c->bytes, p, (size_t)bytes);
    part = (struct wf_part){c->bytes, bytes};
    wf_site_send(n, to, kind, m, &head, &part, bytes > 0, free_copied, c);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void *tick(void *arg)
{
    struct wf_site *n = arg;
    int64_t every = n->spec.retry_ns / 2;

    wf_site_lock(n);
    while (!n->stop) {
        struct timespec until;

        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += (time_t)((until.tv_nsec + every) / 1000000000);
        until.tv_nsec = (long)((until.tv_nsec + every) % 1000000000);
        pthread_cond_timedwait(&n->woken, &n->lock, &until);
        if (n->stop || n->st || n->leaves)
            continue;
        wf_renewal_look(n->spec.renewal, wf_site_now(n));
        try_links(n, wf_site_now(n));
        wf_site_fail(n, n->calls->tick(n->arg, wf_site_now(n)));
    }
    wf_site_unlock(n);
    return NULL;
}

struct waiting {
    struct wf_site *n;
    bool (*done)(void *arg);
    void *arg;
};

static bool is_done(void *arg)
{
    struct waiting *w = arg;
    bool done;

    wf_site_lock(w->n);
    done = w->n->st || w->n->stop || w->done(w->arg);
    wf_site_unlock(w->n);
    return done;
}

weft_status wf_site_wait(struct wf_site *n, bool (*done)(void *arg), void *arg, int64_t timeout_ns,
                         const char *what)
{
    struct waiting w = {n, done, arg};
    weft_status st;

    n->waiting++;
    st = wf_net_wait(n->net, is_done, &w, timeout_ns, what);
    n->waiting--;
    wf_site_lock(n);
    if (n->st) {
        wf_err_set(n->why);
        st = n->st;
    }
    wf_site_unlock(n);
    return st;
}

/* ---- life ------------------------------------------------------------------------------------ */

static weft_status open_net(struct wf_site *n)
{
    const struct wf_task *t = &n->spec.task[n->self];
    struct wf_net_opts o = {.calls = {.arg = n,
                                      .admit = admit,
                                      .up = up,
                                      .down = down,
                                      .place = place,
                                      .received = received,
                                      .region = region},
                            .silence_ns = n->spec.timeout_ns,
                            .stall_ns = n->spec.timeout_ns,
                            .max_queued = 1 << 16,
                            .max_regions = MAX_REGIONS,
                            .spin_us = n->spec.spin_us,
                            .tls = n->spec.tls,
                            .no_checksums = n->spec.no_checksums};
    weft_status st;

    wf_snprintf(o.self.name, sizeof o.self.name, "%s", t->name);
    wf_snprintf(o.self.role, sizeof o.self.role, "%s", wf_role_name(t->role));
    o.self.incarnation = n->incarnation;
    st = wf_net_new(n->ctx, &o, &n->net);
    if (!st && listens(n, n->self))
        st = wf_net_listen(n->net, t->address, NULL, 0);
    return st;
}

static weft_status allocate(struct wf_site *n, const struct wf_spec *spec)
{
    size_t bytes = (size_t)spec->n_tasks * sizeof *spec->task;
    struct wf_task *task;

    n->max_tasks = spec->n_tasks + WF_MAX_ADDED;
    task = wf_alloc_n(n->ctx, n->max_tasks, sizeof *task);
    n->spec = *spec;
    n->spec.task = task;
    n->peer = wf_alloc_n(n->ctx, n->max_tasks, sizeof *n->peer);
    n->bits = wf_alloc(n->ctx, WF_FRAME_MAX_HEAD);
    n->head = wf_alloc(n->ctx, WF_FRAME_MAX_HEAD);
    if (!task || !n->peer || !n->bits || !n->head)
        return wf_err_nomem(n->ctx, bytes, "a task of a job");
    memcpy(task, spec->task, bytes);
    return WEFT_OK;
}

weft_status wf_site_start(struct wf_site *n, weft_ctx *ctx, const struct wf_spec *spec, int self,
                          const struct wf_site_calls *calls, void *arg)
{
    struct timespec real;
    pthread_condattr_t attr;
    weft_status st;

    clock_gettime(CLOCK_REALTIME, &real);
    *n = (struct wf_site){.ctx = ctx,
                          .self = self,
                          .calls = calls,
                          .arg = arg,
                          .incarnation =
                              (uint64_t)real.tv_sec * 1000000000 + (uint64_t)real.tv_nsec};
    pthread_mutex_init(&n->lock, NULL);
    pthread_mutex_init(&n->list_lock, NULL);
    pthread_mutex_init(&n->flights_lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&n->woken, &attr);
    pthread_condattr_destroy(&attr);
    wf_actions_init(&n->acts, ctx);
    st = allocate(n, spec);
    if (!st)
        st = open_net(n);
    if (!st) {
        wf_site_lock(n);
        try_links(n, wf_site_now(n));
        wf_site_unlock(n);
        n->ticks = pthread_create(&n->ticker, NULL, tick, n) == 0;
        if (!n->ticks)
            st = wf_err(WEFT_ENOMEM, "cannot start the thread of task '%s'", spec->task[self].name);
    }
    if (st) {
        wf_err_wrap(st, "task '%s'", spec->task[self].name);
        wf_site_stop(n);
    }
    return st;
}

static bool no_links(void *arg)
{
    struct wf_site *n = arg;
    bool any = false;

    for (int i = 0; i < n->spec.n_tasks; i++)
        any |= n->peer[i].up;
    return !any;
}

/* What is queued is sent, for a while. */
static void say_goodbye(struct wf_site *n)
{
    wf_site_lock(n);
    n->leaves = true;
    for (int i = 0; i < n->spec.n_tasks; i++)
        if (n->peer[i].link)
            wf_link_close(n->peer[i].link);
    wf_site_unlock(n);
    if (!n->st)
        wf_site_wait(n, no_links, n, GOODBYE_NS, "the end of all links");
}

void wf_site_stop(struct wf_site *n)
{
    if (n->stop)
        return;
    if (n->net)
        say_goodbye(n);
    wf_site_lock(n);
    n->stop = true;
    pthread_cond_broadcast(&n->woken);
    wf_site_unlock(n);
    if (n->ticks)
        pthread_join(n->ticker, NULL);
    wf_net_free(n->net);
    for (int i = 0; n->peer && i < n->spec.n_tasks; i++) {
        lose_regions(n, &n->peer[i]);
        wf_free(n->ctx, n->peer[i].region);
        wf_free(n->ctx, n->peer[i].mem);
    }
    wf_site_drop_old(n);
    wf_free(n->ctx, n->old);
    wf_free(n->ctx, n->peer);
    wf_free(n->ctx, n->bits);
    wf_free(n->ctx, n->head);
    wf_free(n->ctx, (void *)(uintptr_t)n->spec.task);
    wf_actions_free(&n->acts);
    pthread_mutex_destroy(&n->lock);
    pthread_mutex_destroy(&n->list_lock);
    pthread_mutex_destroy(&n->flights_lock);
    pthread_cond_destroy(&n->woken);
    *n = (struct wf_site){.ctx = n->ctx, .stop = true};
}
