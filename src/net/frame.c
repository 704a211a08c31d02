/* frame.c - the header of a frame, and the machine that reads frames. */
#include "net/frame.h"

static const char magic[4] = {'w', 'e', 'f', 't'};

/* What a frame of each type may have. */
static const struct kind {
    const char *name;
    bool head, payload, id, wait;
} kinds[WF_FRAME_TYPES] = {
    [WF_FRAME_HELLO] = {"hello", .head = true},
    [WF_FRAME_MESSAGE] = {"message", .head = true, .payload = true},
    [WF_FRAME_REQUEST] = {"request", .head = true, .payload = true, .id = true, .wait = true},
    [WF_FRAME_RESPONSE] = {"response", .head = true, .payload = true, .id = true, .wait = true},
    [WF_FRAME_CANCEL] = {"cancel", .id = true},
    [WF_FRAME_REGION] = {"region", .head = true, .id = true},
    [WF_FRAME_PING] = {"ping", .id = true},
    [WF_FRAME_PONG] = {"pong", .id = true},
    [WF_FRAME_BYE] = {"bye"},
    [WF_FRAME_RELEASE] = {"release", .id = true},
    [WF_FRAME_SIDES] = {"sides", .head = true},
    [WF_FRAME_ATTACH] = {"attach", .head = true},
    [WF_FRAME_STRIPE] = {"stripe", .payload = true, .id = true, .wait = true},
};

const char *wf_frame_name(enum wf_frame_type type)
{
    return type > 0 && type < WF_FRAME_TYPES ? kinds[type].name : "?";
}

/* ---- the header ------------------------------------------------------------------------------ */

/* Written out: compilers make one load or store of each, which a loop does not become. */
static void put32(uint8_t *p, uint32_t v)
{
    p[0] = (uint8_t)v;
    p[1] = (uint8_t)(v >> 8);
    p[2] = (uint8_t)(v >> 16);
    p[3] = (uint8_t)(v >> 24);
}

static void put64(uint8_t *p, uint64_t v)
{
    put32(p, (uint32_t)v);
    put32(p + 4, (uint32_t)(v >> 32));
}

static uint32_t get32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t get64(const uint8_t *p)
{
    return get32(p) | (uint64_t)get32(p + 4) << 32;
}

static unsigned get16(const uint8_t *p)
{
    return (unsigned)p[0] | (unsigned)p[1] << 8;
}

static uint32_t sum_head(const void *head, int64_t n)
{
    return n ? wf_crc32c(0, head, n) : 0;
}

void wf_frame_encode(const struct wf_frame *f, const void *head, uint8_t out[WF_FRAME_HEADER])
{
    memcpy(out, magic, sizeof magic);
    out[4] = WF_FRAME_VERSION;
    out[5] = (uint8_t)f->type;
    out[6] = (uint8_t)f->flags;
    out[7] = (uint8_t)(f->flags >> 8);
    put32(out + 8, f->kind);
    put32(out + 12, (uint32_t)f->n_head);
    put64(out + 16, (uint64_t)f->n_payload);
    put64(out + 24, f->id);
    put64(out + 32, (uint64_t)f->wait);
    put32(out + 40, sum_head(head, f->n_head));
    put32(out + 44, wf_crc32c(0, out, 44));
}

/* What is wrong with stripes: a payload of them has its checksums there, and a stripe is one. */
static const char *check_stripes(const struct wf_frame *f, const struct kind *k)
{
    bool stripe = f->type == WF_FRAME_STRIPE;

    if (stripe && (f->n_payload == 0 || f->id == 0 || f->wait < 0))
        return "no place in a payload";
    if (stripe && f->flags & WF_FRAME_REGIONAL)
        return "regions";
    if (f->flags & WF_FRAME_STRIPED &&
        (stripe || !k->payload || f->n_payload == 0 || f->flags & WF_FRAME_SUMMED))
        return "stripes";
    return NULL;
}

/* A frame of this type has nothing that it may not have. */
static weft_status check_kind(const struct wf_frame *f)
{
    const struct kind *k = &kinds[f->type];
    const char *what = f->n_head && !k->head                               ? "a head"
                       : f->n_payload && !k->payload                       ? "a payload"
                       : f->id && !k->id                                   ? "a number"
                       : f->wait && !k->wait                               ? "a time"
                       : f->wait < 0 && f->type == WF_FRAME_REQUEST        ? "a negative time"
                       : (f->flags & WF_FRAME_SUMMED) && f->n_payload == 0 ? "a sum of nothing"
                       : (f->flags & WF_FRAME_REGIONAL) && !k->payload     ? "regions"
                       : f->wait != (int32_t)f->wait && f->type == WF_FRAME_RESPONSE
                           ? "no status"
                           : check_stripes(f, k);

    return what ? wf_err(WEFT_EPEER, "a %s frame with %s", k->name, what) : WEFT_OK;
}

weft_status wf_frame_decode(const uint8_t bytes[WF_FRAME_HEADER], int64_t max_payload,
                            struct wf_frame *out)
{
    uint64_t type = bytes[5], n_head = get32(bytes + 12), n = get64(bytes + 16);

    if (memcmp(bytes, magic, sizeof magic) != 0)
        return wf_err(WEFT_EPEER, "this is not weft's protocol: it begins with %02x %02x %02x %02x",
                      bytes[0], bytes[1], bytes[2], bytes[3]);
    if (bytes[4] != WF_FRAME_VERSION)
        return wf_err(WEFT_EPEER, "version %d of the protocol; this is version %d", bytes[4],
                      WF_FRAME_VERSION);
    if (get32(bytes + 44) != wf_crc32c(0, bytes, 44))
        return wf_err(WEFT_EPEER, "a damaged header: its checksum is wrong");
    if (type == 0 || type >= WF_FRAME_TYPES)
        return wf_err(WEFT_EPEER, "no frame has type %d", (int)type);
    if (get16(bytes + 6) & ~(unsigned)(WF_FRAME_SUMMED | WF_FRAME_REGIONAL | WF_FRAME_STRIPED))
        return wf_err(WEFT_EPEER, "unknown flags 0x%x", get16(bytes + 6));
    if (n_head > WF_FRAME_MAX_HEAD)
        return wf_err(WEFT_EPEER, "a head of %llu bytes; at most %d are allowed",
                      (unsigned long long)n_head, WF_FRAME_MAX_HEAD);
    if (n > (uint64_t)max_payload)
        return wf_err(WEFT_EPEER, "a payload of %llu bytes; at most %lld are accepted",
                      (unsigned long long)n, (long long)max_payload);
    *out = (struct wf_frame){.type = (enum wf_frame_type)type,
                             .flags = get16(bytes + 6),
                             .kind = get32(bytes + 8),
                             .n_head = (int32_t)n_head,
                             .n_payload = (int64_t)n,
                             .id = get64(bytes + 24),
                             .wait = (int64_t)get64(bytes + 32)};
    return check_kind(out);
}

/* ---- reading --------------------------------------------------------------------------------- */

weft_status wf_unframe_init(struct wf_unframe *u, weft_ctx *ctx, int64_t max_payload,
                            const struct wf_frame_calls *calls)
{
    *u = (struct wf_unframe){.ctx = ctx, .calls = *calls, .max_payload = max_payload};
    u->head = wf_alloc_raw(ctx, WF_FRAME_MAX_HEAD);
    return u->head ? WEFT_OK : wf_err_nomem(ctx, WF_FRAME_MAX_HEAD, "a link");
}

void wf_unframe_free(struct wf_unframe *u)
{
    if (u->head)
        wf_free(u->ctx, u->head);
    u->head = NULL;
}

bool wf_unframe_between(const struct wf_unframe *u)
{
    return u->state == WF_UNFRAME_HEADER && u->at == 0;
}

bool wf_unframe_waits(const struct wf_unframe *u)
{
    return u->state == WF_UNFRAME_PLACE;
}

static weft_status finish(struct wf_unframe *u)
{
    u->state = WF_UNFRAME_HEADER;
    u->at = 0;
    u->part = NULL;
    u->n_parts = 0;
    u->n_frames++;
    return u->calls.complete(u->calls.arg, &u->frame, u->head);
}

/* Memory for the payload; its parts have exactly its size. */
static weft_status place(struct wf_unframe *u)
{
    int64_t total = 0;
    weft_status st = u->calls.place(u->calls.arg, &u->frame, u->head, &u->part, &u->n_parts);

    if (st || u->n_parts == WF_PLACE_LATER)
        return st;
    for (int i = 0; i < u->n_parts; i++)
        total += u->part[i].n;
    if (u->n_parts && total != u->frame.n_payload)
        return wf_err(WEFT_EBUG, "memory of %lld bytes for a payload of %lld", (long long)total,
                      (long long)u->frame.n_payload);
    u->state = u->frame.flags & WF_FRAME_STRIPED ? WF_UNFRAME_ELSEWHERE : WF_UNFRAME_PAYLOAD;
    u->at = u->in_part = 0;
    u->now = 0;
    u->crc = 0;
    return WEFT_OK;
}

/* Header and head are complete. */
static weft_status after_head(struct wf_unframe *u)
{
    if (u->head_crc != sum_head(u->head, u->frame.n_head))
        return wf_err(WEFT_EPEER, "a damaged head of a %s frame: its checksum is wrong",
                      wf_frame_name(u->frame.type));
    u->at = 0;
    if (u->frame.n_payload == 0)
        return finish(u);
    u->state = WF_UNFRAME_PLACE;
    return WEFT_OK;
}

static weft_status after_header(struct wf_unframe *u)
{
    weft_status st = wf_frame_decode(u->small, u->max_payload, &u->frame);

    if (st)
        return st;
    u->head_crc = get32(u->small + 40);
    u->state = WF_UNFRAME_HEAD;
    u->at = 0;
    return u->frame.n_head == 0 ? after_head(u) : WEFT_OK;
}

static weft_status after_payload(struct wf_unframe *u)
{
    if (!(u->frame.flags & WF_FRAME_SUMMED))
        return finish(u);
    u->state = WF_UNFRAME_TAIL;
    u->at = 0;
    return WEFT_OK;
}

static weft_status after_tail(struct wf_unframe *u)
{
    if (get32(u->small) != u->crc)
        return wf_err(WEFT_EPEER, "a damaged payload of a %s frame: its checksum is wrong",
                      wf_frame_name(u->frame.type));
    return finish(u);
}

/* n bytes of the payload are where they belong. */
static void advance(struct wf_unframe *u, int64_t n)
{
    u->at += n;
    while (n > 0 && u->now < u->n_parts) {
        const struct wf_part *p = &u->part[u->now];
        int64_t k = wf_min_i64(n, p->n - u->in_part);

        if (u->frame.flags & WF_FRAME_SUMMED)
            u->crc = wf_crc32c(u->crc, (const char *)p->p + u->in_part, k);
        u->in_part += k;
        n -= k;
        if (u->in_part == p->n) {
            u->now++;
            u->in_part = 0;
        }
    }
}

/* Copies as many bytes as the present part of the frame takes. */
static int64_t take(struct wf_unframe *u, uint8_t *to, int64_t size, const uint8_t *from, int64_t n)
{
    int64_t k = wf_min_i64(n, size - u->at);

    if (k > 0)
        memcpy(to + u->at, from, (size_t)k);
    u->at += k;
    return k;
}

static int64_t take_payload(struct wf_unframe *u, const uint8_t *from, int64_t n)
{
    int64_t k = wf_min_i64(n, u->frame.n_payload - u->at), left = k;

    if (!u->n_parts) { /* skipped */
        if (u->frame.flags & WF_FRAME_SUMMED)
            u->crc = wf_crc32c(u->crc, from, k);
        u->at += k;
        return k;
    }
    while (left > 0) {
        const struct wf_part *p = &u->part[u->now];
        int64_t m = wf_min_i64(left, p->n - u->in_part);

        if (m > 0)
            memcpy((char *)p->p + u->in_part, from, (size_t)m);
        from += m;
        left -= m;
        if (m == 0) /* an empty part */
            u->now++;
        else
            advance(u, m);
    }
    return k;
}

static weft_status step(struct wf_unframe *u, const uint8_t *p, int64_t n, int64_t *k)
{
    const struct wf_frame *f = &u->frame;

    *k = 0;
    switch (u->state) {
    case WF_UNFRAME_HEADER:
        *k = take(u, u->small, WF_FRAME_HEADER, p, n);
        return u->at == WF_FRAME_HEADER ? after_header(u) : WEFT_OK;
    case WF_UNFRAME_HEAD:
        *k = take(u, u->head, f->n_head, p, n);
        return u->at == f->n_head ? after_head(u) : WEFT_OK;
    case WF_UNFRAME_PLACE: return place(u);
    case WF_UNFRAME_PAYLOAD:
        *k = take_payload(u, p, n);
        return u->at == f->n_payload ? after_payload(u) : WEFT_OK;
    case WF_UNFRAME_TAIL:
        *k = take(u, u->small, WF_FRAME_TAIL, p, n);
        return u->at == WF_FRAME_TAIL ? after_tail(u) : WEFT_OK;
    case WF_UNFRAME_ELSEWHERE: return WEFT_OK;
    case WF_UNFRAME_FAILED: break;
    }
    return wf_err(WEFT_ESTATE, "the link has failed before");
}

/* A small frame that is all there, without a stop at each of its parts: messages over shared memory
 * cost little more than this. How many bytes it had; 0: it takes the usual way. */
static int64_t take_whole(struct wf_unframe *u, const uint8_t *p, int64_t n, weft_status *st)
{
    struct wf_frame *f = &u->frame;
    int64_t size = WF_FRAME_HEADER;

    if (n < WF_FRAME_HEADER)
        return 0;
    *st = wf_frame_decode(p, u->max_payload, f);
    if (*st)
        return WF_FRAME_HEADER;
    if (f->n_head || f->flags || f->n_payload > n - size || get32(p + 40))
        return 0;
    if (f->n_payload) {
        *st = place(u);
        if (*st)
            return size;
        if (u->n_parts == WF_PLACE_LATER) {
            u->state = WF_UNFRAME_PLACE;
            return size;
        }
        take_payload(u, p + size, f->n_payload);
        size += f->n_payload;
    }
    *st = finish(u);
    return size;
}

weft_status wf_unframe_push(struct wf_unframe *u, const void *bytes, int64_t n, int64_t *used)
{
    const uint8_t *p = bytes;
    weft_status st = WEFT_OK;

    *used = 0;
    if (wf_unframe_between(u) && !u->stop && n > 0) {
        *used = take_whole(u, p, n, &st);
        u->n_bytes += *used;
        if (wf_unframe_waits(u))
            return WEFT_OK; /* not now */
    }
    while (!st && !u->stop && u->state != WF_UNFRAME_ELSEWHERE &&
           (*used < n || u->state == WF_UNFRAME_PLACE)) {
        bool waited = u->state == WF_UNFRAME_PLACE;
        int64_t k;

        st = step(u, p ? p + *used : NULL, n - *used, &k);
        *used += k;
        u->n_bytes += k;
        if (waited && u->state == WF_UNFRAME_PLACE)
            break; /* not now */
    }
    if (st)
        u->state = WF_UNFRAME_FAILED;
    return st;
}

int wf_unframe_room(const struct wf_unframe *u, struct wf_part *part, int max)
{
    int n = 0;

    if (u->state != WF_UNFRAME_PAYLOAD)
        return 0;
    for (int i = u->now; i < u->n_parts && n < max; i++) {
        int64_t from = i == u->now ? u->in_part : 0;

        if (u->part[i].n > from)
            part[n++] = (struct wf_part){(char *)u->part[i].p + from, u->part[i].n - from};
    }
    return n;
}

weft_status wf_unframe_got(struct wf_unframe *u, int64_t n)
{
    weft_status st;

    if (u->state != WF_UNFRAME_PAYLOAD || n < 0 || n > u->frame.n_payload - u->at)
        return wf_err(WEFT_EBUG, "%lld bytes that no payload takes", (long long)n);
    u->n_bytes += n;
    advance(u, n);
    if (u->at < u->frame.n_payload)
        return WEFT_OK;
    st = after_payload(u);
    if (st)
        u->state = WF_UNFRAME_FAILED;
    return st;
}

bool wf_unframe_summed(const struct wf_unframe *u)
{
    return u->state == WF_UNFRAME_PAYLOAD && u->frame.flags & WF_FRAME_SUMMED;
}

bool wf_unframe_elsewhere(const struct wf_unframe *u)
{
    return u->state == WF_UNFRAME_ELSEWHERE;
}

weft_status wf_unframe_arrived(struct wf_unframe *u)
{
    weft_status st = u->state == WF_UNFRAME_ELSEWHERE
                         ? finish(u)
                         : wf_err(WEFT_EBUG, "stripes of no message have arrived");

    if (st)
        u->state = WF_UNFRAME_FAILED;
    return st;
}
