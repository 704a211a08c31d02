/* codec.c - messages and epoch records as bytes.
 *
 * Kept true: what is read and written again gives the same bytes; nothing outside of what the
 * writer can write is accepted. */
#include "cluster/codec.h"

#include "base/bytes.h"

enum { DECIDED = 1, FOLLOW = 2, WHOLE = 4 }; /* flags of a message */

/* Terms, histories, epochs and versions: so that one more is always a number, too. */
static const uint64_t max_number = (uint64_t)1 << 62;

/* ---- messages -------------------------------------------------------------------------------- */

/* Bytes 72 to 79 are a lease, and not a pace. */
static bool has_lease(enum wf_message_type type)
{
    switch (type) {
    case WF_MSG_PULL:
    case WF_MSG_VERSION:
    case WF_MSG_PUSH:
    case WF_MSG_RECORD:
    case WF_MSG_FILL:
    case WF_MSG_CLOSE:
    case WF_MSG_APPLIED:
    case WF_MSG_GRANT:
    case WF_MSG_DRAINED: return true;
    default: return false;
    }
}

static bool may_have_bits(enum wf_message_type type)
{
    switch (type) {
    case WF_MSG_AT:
    case WF_MSG_FILL:
    case WF_MSG_GRANT:
    case WF_MSG_LEASES:
    case WF_MSG_LEDGER: return true;
    default: return false;
    }
}

int32_t wf_message_write(const struct wf_message *m, void *out, int32_t size)
{
    int n_words = m->bits ? m->n_words : 0;
    uint8_t *p = out;

    if (n_words < 0 || size < WF_MESSAGE_HEAD || n_words > (size - WF_MESSAGE_HEAD) / 8)
        return -1;
    p[0] = WF_MESSAGE_VERSION;
    p[1] = (uint8_t)m->type;
    p[2] = (uint8_t)m->role;
    p[3] =
        (uint8_t)((m->decided ? DECIDED : 0) | (m->follow ? FOLLOW : 0) | (m->whole ? WHOLE : 0));
    wf_put_le32(p + 4, (uint32_t)m->from);
    wf_put_le32(p + 8, (uint32_t)m->to);
    wf_put_le32(p + 12, (uint32_t)m->piece);
    wf_put_le64(p + 16, m->incarnation);
    wf_put_le64(p + 24, m->term);
    wf_put_le64(p + 32, m->epoch);
    wf_put_le64(p + 40, m->history);
    wf_put_le64(p + 48, (uint64_t)m->t);
    wf_put_le32(p + 56, (uint32_t)m->shard);
    wf_put_le32(p + 60, (uint32_t)m->block);
    p[64] = (uint8_t)m->level;
    p[65] = (uint8_t)m->round;
    p[66] = p[67] = 0;
    wf_put_le32(p + 68, (uint32_t)n_words);
    wf_put_le64(p + 72, (uint64_t)(has_lease(m->type) ? m->lease : m->pace_ns));
    for (int i = 0; i < n_words; i++)
        wf_put_le64(p + WF_MESSAGE_HEAD + (int64_t)i * 8, m->bits[i]);
    return WF_MESSAGE_HEAD + 8 * n_words;
}

static weft_status bad(const struct wf_message *m, const char *what, int64_t value)
{
    return wf_err(WEFT_EPEER, "a message (%s): %s %lld is out of range", wf_message_name(m->type),
                  what, (long long)value);
}

/* Numbers that the machines count with. */
static weft_status check_message(const struct wf_message *m)
{
    if (m->from < 0 || m->from >= WF_MAX_NODES)
        return bad(m, "from", m->from);
    if (m->to < 0 || m->to >= WF_MAX_NODES)
        return bad(m, "to", m->to);
    if (m->term > max_number || m->epoch > max_number || m->history > max_number)
        return wf_err(WEFT_EPEER,
                      "a message (%s): term %llu, epoch %llu or history %llu is out of range",
                      wf_message_name(m->type), (unsigned long long)m->term,
                      (unsigned long long)m->epoch, (unsigned long long)m->history);
    if (m->t < -1 || m->t > (int64_t)max_number)
        return bad(m, "version", m->t);
    if (m->pace_ns < 0 || m->pace_ns > (int64_t)max_number)
        return bad(m, "pace", m->pace_ns);
    if (m->lease < 0 || m->lease > (int64_t)max_number)
        return bad(m, "lease", m->lease);
    if (m->piece < -1)
        return bad(m, "piece", m->piece);
    if (m->shard < -1)
        return bad(m, "shard", m->shard);
    if (m->block < -1)
        return bad(m, "block", m->block);
    if (m->round >= (m->type == WF_MSG_BEAT ? WF_N_DOINGS : 2))
        return bad(m, "round", m->round);
    if (m->level > WF_MAX_LEVEL || (m->level && m->type != WF_MSG_PUSH))
        return bad(m, "level", m->level);
    if (m->level && (m->shard < 0 || m->shard & ((1 << m->level) - 1)))
        return wf_err(WEFT_EPEER,
                      "a push of %d shards from shard %d on: it must begin at a multiple",
                      1 << m->level, m->shard);
    return WEFT_OK;
}

weft_status wf_message_read(const void *head, int32_t n, struct wf_message *out, uint64_t *bits,
                            int max_words)
{
    const uint8_t *p = head;
    struct wf_message m;
    uint32_t n_words;
    weft_status st;

    if (n < WF_MESSAGE_HEAD)
        return wf_err(WEFT_EPEER, "a message of %d bytes; it has at least %d", n, WF_MESSAGE_HEAD);
    if (p[0] != WF_MESSAGE_VERSION)
        return wf_err(WEFT_EPEER, "a message of version %d; this is version %d", p[0],
                      WF_MESSAGE_VERSION);
    if (p[1] == 0 || p[1] >= WF_MSG_TYPES)
        return wf_err(WEFT_EPEER, "no message has type %d", p[1]);
    m = (struct wf_message){.type = (enum wf_message_type)p[1],
                            .role = (enum wf_role)p[2],
                            .decided = p[3] & DECIDED,
                            .follow = p[3] & FOLLOW,
                            .whole = p[3] & WHOLE,
                            .from = (int32_t)wf_get_le32(p + 4),
                            .to = (int32_t)wf_get_le32(p + 8),
                            .piece = (int32_t)wf_get_le32(p + 12),
                            .incarnation = wf_get_le64(p + 16),
                            .term = wf_get_le64(p + 24),
                            .epoch = wf_get_le64(p + 32),
                            .history = wf_get_le64(p + 40),
                            .t = (int64_t)wf_get_le64(p + 48),
                            .shard = (int32_t)wf_get_le32(p + 56),
                            .block = (int32_t)wf_get_le32(p + 60),
                            .level = p[64],
                            .round = p[65]};
    if (has_lease(m.type))
        m.lease = (int64_t)wf_get_le64(p + 72);
    else
        m.pace_ns = (int64_t)wf_get_le64(p + 72);
    if (p[2] > WF_ROLE_WORKER)
        return bad(&m, "role", p[2]);
    if (p[3] > (DECIDED | FOLLOW | WHOLE) || (m.follow && m.type != WF_MSG_PULL) ||
        (m.whole && m.type != WF_MSG_CLOSE) || p[66] || p[67])
        return wf_err(WEFT_EPEER, "a message (%s) with unknown flags", wf_message_name(m.type));
    st = check_message(&m);
    if (st)
        return st;
    n_words = wf_get_le32(p + 68);
    if (n_words > (uint32_t)(n - WF_MESSAGE_HEAD) / 8 ||
        n != WF_MESSAGE_HEAD + 8 * (int32_t)n_words)
        return wf_err(WEFT_EPEER, "a message (%s) of %d bytes with %u words of bits",
                      wf_message_name(m.type), n, n_words);
    if (n_words && (!may_have_bits(m.type) || (int)n_words > max_words))
        return wf_err(WEFT_EPEER, "a message (%s) with %u words of bits; %d are expected",
                      wf_message_name(m.type), n_words, may_have_bits(m.type) ? max_words : 0);
    for (uint32_t i = 0; i < n_words; i++)
        bits[i] = wf_get_le64(p + WF_MESSAGE_HEAD + (int64_t)i * 8);
    m.bits = n_words ? bits : NULL;
    m.n_words = (int)n_words;
    *out = m;
    return WEFT_OK;
}

/* ---- epoch records --------------------------------------------------------------------------- */

enum { LEAVES = 256 }; /* with the role of a member */
enum { EPOCH_HEAD = 72, MEMBER_BYTES = 16, HOLDERS_BYTES = 16, SHARD_BYTES = 4 };

static const char magic[4] = {'w', 'f', 'e', 'p'};

weft_status wf_epoch_write(const struct wf_epoch *e, struct wf_buf *out)
{
    int64_t at = out->len;

    wf_buf_add(out, magic, sizeof magic);
    wf_buf_le32(out, WF_EPOCH_VERSION);
    wf_buf_le32(out, 0); /* the checksum, below */
    wf_buf_le32(out, (uint32_t)e->chief);
    wf_buf_le32(out, (uint32_t)e->n_members);
    wf_buf_le32(out, (uint32_t)e->n_pieces);
    wf_buf_le32(out, (uint32_t)e->n_shards);
    wf_buf_le32(out, e->list ? (uint32_t)strlen(e->list) : 0);
    wf_buf_le64(out, e->term);
    wf_buf_le64(out, e->history);
    wf_buf_le64(out, e->number);
    wf_buf_le64(out, (uint64_t)e->start);
    wf_buf_le64(out, (uint64_t)e->halt);
    for (int i = 0; i < e->n_members; i++) {
        wf_buf_le32(out, (uint32_t)e->member[i].node);
        wf_buf_le32(out, (uint32_t)e->member[i].role | (e->member[i].leaves ? LEAVES : 0));
        wf_buf_le64(out, e->member[i].incarnation);
    }
    for (int i = 0; i < e->n_pieces; i++) {
        wf_buf_le32(out, (uint32_t)e->holders[i].primary);
        wf_buf_le32(out, (uint32_t)e->holders[i].backup);
        wf_buf_le32(out, (uint32_t)e->holders[i].target);
        wf_buf_le32(out, e->holders[i].moves);
    }
    for (int i = 0; i < e->n_shards; i++)
        wf_buf_le32(out, (uint32_t)e->worker[i]);
    if (e->list)
        wf_buf_add(out, e->list, (int64_t)strlen(e->list));
    if (!out->st)
        wf_put_le32((uint8_t *)out->data + at + 8,
                    wf_crc32c(0, out->data + at + 12, out->len - at - 12));
    return out->st;
}

static weft_status bad_epoch(const char *what, int64_t i, int64_t value)
{
    return wf_err(WEFT_EDATA, "an epoch record: %s %lld: %lld is out of range", what, (long long)i,
                  (long long)value);
}

/* What a node is in the epoch: 0 nobody, otherwise 1 + its role. */
struct roles {
    uint8_t *of;
    int n;
};

static weft_status read_members(struct wf_bytes *b, struct wf_epoch *e, int *n_nodes)
{
    for (int i = 0; i < e->n_members; i++) {
        uint32_t node = wf_bytes_u32(b), flags = wf_bytes_u32(b);
        uint32_t role = flags & ~(uint32_t)LEAVES;

        if (node >= WF_MAX_NODES)
            return bad_epoch("node of member", i, node);
        if (role != WF_ROLE_SERVER && role != WF_ROLE_WORKER)
            return bad_epoch("role of member", i, role);
        e->member[i] = (struct wf_member){.node = (int)node,
                                          .role = (enum wf_role)role,
                                          .incarnation = wf_bytes_u64(b),
                                          .leaves = flags & LEAVES};
        if ((int)node >= *n_nodes)
            *n_nodes = (int)node + 1;
    }
    return WEFT_OK;
}

static weft_status note_roles(const struct wf_epoch *e, struct roles *r)
{
    for (int i = 0; i < e->n_members; i++) {
        const struct wf_member *m = &e->member[i];

        if (r->of[m->node])
            return wf_err(WEFT_EDATA, "an epoch record names node %d twice", m->node);
        r->of[m->node] = (uint8_t)(1 + m->role);
    }
    return WEFT_OK;
}

static bool is_a(const struct roles *r, int node, enum wf_role role)
{
    return node >= 0 && node < r->n && r->of[node] == 1 + role;
}

static weft_status read_holders(struct wf_bytes *b, struct wf_epoch *e, const struct roles *r)
{
    for (int i = 0; i < e->n_pieces; i++) {
        struct wf_holders *h = &e->holders[i];
        uint32_t moves;

        h->primary = wf_bytes_i32(b);
        h->backup = wf_bytes_i32(b);
        h->target = wf_bytes_i32(b);
        moves = wf_bytes_u32(b);
        if (!is_a(r, h->primary, WF_ROLE_SERVER))
            return bad_epoch("primary of piece", i, h->primary);
        if (h->backup != WF_NOBODY &&
            (!is_a(r, h->backup, WF_ROLE_SERVER) || h->backup == h->primary))
            return bad_epoch("backup of piece", i, h->backup);
        if (h->target != WF_NOBODY && (!is_a(r, h->target, WF_ROLE_SERVER) ||
                                       h->target == h->primary || h->target == h->backup))
            return bad_epoch("target of piece", i, h->target);
        if (moves > (uint32_t)(h->target != WF_NOBODY))
            return bad_epoch("moves of piece", i, moves);
        h->moves = moves;
    }
    return WEFT_OK;
}

static weft_status read_shards(struct wf_bytes *b, struct wf_epoch *e, const struct roles *r)
{
    for (int i = 0; i < e->n_shards; i++) {
        e->worker[i] = wf_bytes_i32(b);
        if (e->worker[i] != WF_NOBODY && !is_a(r, e->worker[i], WF_ROLE_WORKER))
            return bad_epoch("worker of shard", i, e->worker[i]);
    }
    return WEFT_OK;
}

static weft_status read_lists(weft_ctx *ctx, struct wf_bytes *b, struct wf_epoch *e)
{
    struct roles r = {NULL, 0};
    weft_status st = read_members(b, e, &r.n);

    if (st)
        return st;
    r.of = wf_alloc(ctx, (size_t)r.n + 1);
    if (!r.of)
        return wf_err_nomem(ctx, (size_t)r.n + 1, "epoch record");
    st = note_roles(e, &r);
    if (!st)
        st = read_holders(b, e, &r);
    if (!st)
        st = read_shards(b, e, &r);
    wf_free(ctx, r.of);
    return st;
}

/* The text of added tasks, which is not part of the record but for its bytes. */
static weft_status read_text(weft_ctx *ctx, const char *p, int64_t n, struct wf_epoch *e)
{
    if (memchr(p, 0, (size_t)n))
        return wf_err(WEFT_EDATA, "an epoch record: NUL in the list of added tasks");
    e->list = wf_alloc(ctx, (size_t)n + 1);
    if (!e->list)
        return wf_err_nomem(ctx, (size_t)n + 1, "epoch record");
    memcpy(e->list, p, (size_t)n);
    return WEFT_OK;
}

static weft_status check_head(const uint8_t *p, int64_t n)
{
    if (n < EPOCH_HEAD || memcmp(p, magic, sizeof magic) != 0)
        return wf_err(WEFT_EDATA, "%lld bytes are not an epoch record", (long long)n);
    if (wf_get_le32(p + 4) != WF_EPOCH_VERSION)
        return wf_err(WEFT_EDATA, "an epoch record of version %u; this is version %d",
                      wf_get_le32(p + 4), WF_EPOCH_VERSION);
    if (wf_get_le32(p + 8) != wf_crc32c(0, p + 12, n - 12))
        return wf_err(WEFT_EDATA, "an epoch record is damaged: its checksum is wrong");
    return WEFT_OK;
}

static weft_status check_numbers(const struct wf_epoch *e)
{
    if (e->chief < 0 || e->chief >= WF_MAX_NODES)
        return bad_epoch("chief of epoch", (int64_t)e->number, e->chief);
    if (e->term < 1 || e->term > max_number)
        return bad_epoch("term of epoch", (int64_t)e->number, (int64_t)e->term);
    if (e->history < 1 || e->history > max_number)
        return bad_epoch("history of epoch", (int64_t)e->number, (int64_t)e->history);
    if (e->number < 1 || e->number > max_number)
        return bad_epoch("number of epoch", 0, (int64_t)e->number);
    if (e->start < 0 || e->start > (int64_t)max_number)
        return bad_epoch("start of epoch", (int64_t)e->number, e->start);
    if (e->halt < -1 || e->halt > (int64_t)max_number)
        return bad_epoch("halt of epoch", (int64_t)e->number, e->halt);
    return WEFT_OK;
}

weft_status wf_epoch_read(weft_ctx *ctx, const void *p, int64_t n, struct wf_epoch **out)
{
    struct wf_bytes b = {p, n, 12, false};
    struct wf_epoch *e;
    int64_t n_members, n_pieces, n_shards, n_list;
    int chief;
    weft_status st = check_head(p, n);

    if (st)
        return st;
    chief = wf_bytes_i32(&b);
    n_members = wf_bytes_u32(&b);
    n_pieces = wf_bytes_u32(&b);
    n_shards = wf_bytes_u32(&b);
    n_list = wf_bytes_u32(&b);
    if (n_members > WF_MAX_NODES || n_pieces > WF_MAX_EPOCH_LIST || n_shards > WF_MAX_EPOCH_LIST ||
        n_list > WF_MAX_EPOCH_TEXT ||
        n != EPOCH_HEAD + n_members * MEMBER_BYTES + n_pieces * HOLDERS_BYTES +
                 n_shards * SHARD_BYTES + n_list)
        return wf_err(
            WEFT_EDATA,
            "an epoch record of %lld bytes with %lld members, %lld pieces and %lld shards",
            (long long)n, (long long)n_members, (long long)n_pieces, (long long)n_shards);
    st = wf_epoch_new(ctx, (int)n_members, (int)n_pieces, (int)n_shards, &e);
    if (st)
        return st;
    e->chief = chief;
    e->term = wf_bytes_u64(&b);
    e->history = wf_bytes_u64(&b);
    e->number = wf_bytes_u64(&b);
    e->start = wf_bytes_i64(&b);
    e->halt = wf_bytes_i64(&b);
    st = check_numbers(e);
    if (!st)
        st = read_lists(ctx, &b, e);
    if (!st && n_list)
        st = read_text(ctx, (const char *)p + n - n_list, n_list, e);
    if (st)
        wf_epoch_free(ctx, e);
    else
        *out = e;
    return st;
}
