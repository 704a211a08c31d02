/* etcd.c - the chief's store in etcd.
 *
 * Kept true: every transaction that creates or removes something holds only if this chief's term is
 * the highest, and numbers of terms and epochs rise by one. A request whose answer was lost is made
 * again with the same nonce: if the entry is there with it, it was created by the first one. */
#define _GNU_SOURCE
#include "cluster/etcd.h"

#include "base/bytes.h"
#include "cluster/codec.h"
#include "cluster/entry.h"
#include "cluster/folder.h"

enum {
    PART = 1 << 20, /* etcd refuses requests of 1.5 MiB */
    PARTS_AT_ONCE = 4,
    MAX_URL = WF_ETCD_ADDRESS + 32
};

/* Of an entry whose creation ended in an error. */
struct unsure {
    struct wf_entry entry;
    uint64_t nonce;
    uint32_t crc;
};

struct wf_etcd {
    weft_ctx *ctx;
    struct wf_etcd_where where;
    struct wf_http *http;
    wf_post_fn *post;
    void *post_arg;
    int at; /* the endpoint that answered last */
    struct unsure unsure;
    struct wf_epoch *epoch; /* of the last answer */
    struct wf_buf control;  /* likewise: head and body */
};

/* ---- keys ------------------------------------------------------------------------------------ */

static const char *const folder[] = {
    [WF_TERM] = "term", [WF_EPOCH] = "epoch", [WF_MANIFEST] = "manifest", [WF_CONTROL] = "control"};

/* Numbers have as many digits as any can have: the order of keys is that of numbers. */
static void key_of(const struct wf_etcd *e, const struct wf_entry *n, char key[WF_ETCD_KEY])
{
    if (wf_entry_has_b(n->kind))
        wf_snprintf(key, WF_ETCD_KEY, "%s/%s/%020llu-%020lld", e->where.prefix, folder[n->kind],
                    (unsigned long long)n->a, (long long)n->b);
    else
        wf_snprintf(key, WF_ETCD_KEY, "%s/%s/%020llu", e->where.prefix, folder[n->kind],
                    (unsigned long long)n->a);
}

/* All keys of a kind: from "kind/" up to the text that follows all of them. */
static void bounds_of(const struct wf_etcd *e, enum wf_entry_kind kind, char from[WF_ETCD_KEY],
                      char to[WF_ETCD_KEY])
{
    wf_snprintf(from, WF_ETCD_KEY, "%s/%s/", e->where.prefix, folder[kind]);
    wf_snprintf(to, WF_ETCD_KEY, "%s/%s0", e->where.prefix, folder[kind]);
}

/* Parts of an entry's body. */
static void part_key(const struct wf_etcd *e, const struct wf_entry *n, uint64_t nonce, int part,
                     char key[WF_ETCD_KEY])
{
    wf_snprintf(key, WF_ETCD_KEY, "%s/part/%s/%020llu-%020lld/%016llx/%06d", e->where.prefix,
                folder[n->kind], (unsigned long long)n->a, (long long)n->b,
                (unsigned long long)nonce, part);
}

static bool take_digits(const char **p, uint64_t *out)
{
    uint64_t v = 0;

    for (int i = 0; i < 20; i++, (*p)++) {
        if (!wf_is_digit(**p) || v > (UINT64_MAX - 9) / 10)
            return false;
        v = v * 10 + (uint64_t)(**p - '0');
    }
    *out = v;
    return true;
}

/* The entry of a key of this kind. */
static weft_status entry_of(const struct wf_etcd *e, enum wf_entry_kind kind, const char *key,
                            struct wf_entry *out)
{
    char from[WF_ETCD_KEY], to[WF_ETCD_KEY], same[WF_ETCD_KEY];
    const char *p = key;
    uint64_t b = 0;

    bounds_of(e, kind, from, to);
    *out = (struct wf_entry){.kind = kind};
    if (strncmp(key, from, strlen(from)) == 0) {
        p += strlen(from);
        if (take_digits(&p, &out->a) &&
            (!wf_entry_has_b(kind) || (*p++ == '-' && take_digits(&p, &b))) && b <= INT64_MAX) {
            out->b = (int64_t)b;
            key_of(e, out, same);
            if (strcmp(key, same) == 0)
                return WEFT_OK;
        }
    }
    return wf_err(WEFT_EDATA, "etcd: the key %.200s does not belong to a job of weft", key);
}

/* ---- requests -------------------------------------------------------------------------------- */

static weft_status post_http(void *arg, const char *url, const char *body, int64_t n,
                             struct wf_buf *to, long *code)
{
    return wf_http_post(arg, url, body, n, to, code);
}

/* What an HTTP code other than 200 means: WEFT_EPEER, another attempt may succeed. */
static weft_status refused(long code, const struct wf_buf *text)
{
    char why[160];

    wf_etcd_error_read(text->data ? text->data : "", text->len, why);
    if (code == 404)
        return wf_err(WEFT_ENOSUP, "it has no /v3/kv/txn: etcd 3.4 or later is needed");
    if (code == 401 || code == 403)
        return wf_err(WEFT_EINVAL,
                      "it refuses access (%ld %s): give this job a certificate that "
                      "may read and write the prefix",
                      code, why);
    if (strstr(why, "space exceeded"))
        return wf_err(WEFT_EPEER,
                      "it is full (%s): compact and defragment it, then disarm its "
                      "alarm; run it with --auto-compaction-retention=1h",
                      why);
    if (code >= 400 && code < 500 && code != 408 && code != 429)
        return wf_err(WEFT_EINVAL, "it refuses the request (%ld %s)", code, why);
    return wf_err(WEFT_EPEER, "HTTP %ld %s", code, why);
}

/* One endpoint. */
static weft_status ask_one(struct wf_etcd *e, const char *endpoint, const struct wf_etcd_txn *x,
                           struct wf_etcd_answer *out)
{
    char url[MAX_URL];
    struct wf_buf text;
    long code = 0;
    weft_status st;

    wf_snprintf(url, sizeof url, "%s://%s/v3/kv/txn", e->where.tls ? "https" : "http", endpoint);
    wf_buf_init(&text, e->ctx, WF_ETCD_MAX_ANSWER);
    st = e->post(e->post_arg, url, x->b.data, x->b.len, &text, &code);
    if (!st && code != 200)
        st = refused(code, &text);
    if (!st) {
        st = wf_etcd_answer_read(e->ctx, text.data ? text.data : "", text.len, out);
        if (st == WEFT_EPARSE) {
            st = WEFT_EPEER;
            wf_err_wrap(st, "this is not an answer of etcd");
        }
    }
    wf_buf_free(&text);
    return st ? wf_err_wrap(st, "etcd at %s", endpoint) : WEFT_OK;
}

/* Each endpoint in turn, the one that answered last first. Frees the transaction. */
static weft_status ask(struct wf_etcd *e, struct wf_etcd_txn *x, struct wf_etcd_answer *out)
{
    weft_status st = wf_etcd_txn_end(x);

    if (st)
        return st;
    for (int i = 0; i < e->where.n_endpoints; i++) {
        int at = (e->at + i) % e->where.n_endpoints;

        st = ask_one(e, e->where.endpoint[at], x, out);
        if (!st)
            e->at = at;
        if (st != WEFT_EPEER && st != WEFT_ETIME)
            break;
    }
    wf_buf_free(&x->b);
    if (st == WEFT_ETIME)
        st = WEFT_EPEER;
    return st;
}

/* ---- creating -------------------------------------------------------------------------------- */

/* This term is the highest. */
static void want_term(struct wf_etcd *e, struct wf_etcd_txn *x, uint64_t term)
{
    struct wf_entry n = {.kind = WF_TERM, .a = term};
    char key[WF_ETCD_KEY], from[WF_ETCD_KEY], to[WF_ETCD_KEY];

    key_of(e, &n, key);
    wf_etcd_txn_want(x, key, NULL, true);
    n.a++;
    key_of(e, &n, key);
    bounds_of(e, WF_TERM, from, to);
    wf_etcd_txn_want(x, key, to, false);
}

/* The number follows the last one of its kind. */
static void want_next(struct wf_etcd *e, struct wf_etcd_txn *x, const struct wf_entry *n)
{
    struct wf_entry before = {.kind = n->kind, .a = n->a - 1};
    char key[WF_ETCD_KEY], from[WF_ETCD_KEY], to[WF_ETCD_KEY];

    bounds_of(e, n->kind, from, to);
    key_of(e, n, key);
    wf_etcd_txn_want(x, key, to, false);
    key_of(e, &before, key);
    if (before.a)
        wf_etcd_txn_want(x, key, NULL, true);
}

/* Old ones, and parts of their bodies. `oldest` is kept. */
static void delete_before(struct wf_etcd *e, struct wf_etcd_txn *x, const struct wf_entry *oldest)
{
    char key[WF_ETCD_KEY], from[WF_ETCD_KEY], to[WF_ETCD_KEY];

    bounds_of(e, oldest->kind, from, to);
    key_of(e, oldest, key);
    wf_etcd_txn_delete(x, from, key);
    wf_snprintf(from, WF_ETCD_KEY, "%s/part/%s/", e->where.prefix, folder[oldest->kind]);
    wf_snprintf(key, WF_ETCD_KEY, "%s%020llu-%020lld/", from, (unsigned long long)oldest->a,
                (long long)oldest->b);
    wf_etcd_txn_delete(x, from, key);
}

/* An entry that is to be created. */
struct fresh {
    struct wf_entry entry;
    const void *body;
    int64_t n;
    uint64_t term;          /* that must be the highest; 0: the entry is the next term */
    struct wf_entry oldest; /* to keep; kind 0: all */
    uint64_t nonce;
    int n_parts;
    uint8_t head[WF_ENTRY_HEAD];
};

static bool same_entry(const struct wf_entry *x, const struct wf_entry *y)
{
    return x->kind == y->kind && x->a == y->a && x->b == y->b;
}

/* The nonce of the attempt before, if its outcome is not known. */
static void set_nonce(struct wf_etcd *e, struct fresh *f)
{
    uint32_t crc = wf_crc32c(0, f->body, f->n);

    if (same_entry(&e->unsure.entry, &f->entry) && e->unsure.crc == crc)
        f->nonce = e->unsure.nonce;
    else
        f->nonce = e->ctx->fs->unique(e->ctx->fs->arg);
    e->unsure = (struct unsure){f->entry, f->nonce, crc};
    f->n_parts = f->n > PART ? (int)((f->n + PART - 1) / PART) : 0;
    wf_entry_head(&f->entry, f->nonce, f->n_parts, f->body, f->n, f->head);
}

/* A large body is written first, in parts that are not read before the entry exists. */
static weft_status put_parts(struct wf_etcd *e, const struct fresh *f, bool *ok)
{
    *ok = true;
    for (int i = 0; i < f->n_parts && *ok; i++) {
        struct wf_etcd_answer a;
        struct wf_etcd_txn x;
        char key[WF_ETCD_KEY];
        weft_status st;

        part_key(e, &f->entry, f->nonce, i, key);
        wf_etcd_txn_begin(&x, e->ctx);
        want_term(e, &x, f->term);
        wf_etcd_txn_then(&x);
        wf_etcd_txn_put(&x, key, NULL, 0, (const char *)f->body + (int64_t)i * PART,
                        wf_min_i64(PART, f->n - (int64_t)i * PART));
        st = ask(e, &x, &a);
        if (st)
            return st;
        *ok = a.succeeded;
        wf_etcd_answer_free(&a);
    }
    return WEFT_OK;
}

static void write_creation(struct wf_etcd *e, struct wf_etcd_txn *x, const struct fresh *f)
{
    char key[WF_ETCD_KEY], from[WF_ETCD_KEY], to[WF_ETCD_KEY];

    key_of(e, &f->entry, key);
    wf_etcd_txn_begin(x, e->ctx);
    if (f->term)
        want_term(e, x, f->term);
    if (wf_entry_has_b(f->entry.kind))
        wf_etcd_txn_want(x, key, NULL, false);
    else
        want_next(e, x, &f->entry);
    wf_etcd_txn_then(x);
    wf_etcd_txn_put(x, key, f->head, WF_ENTRY_HEAD, f->body, f->n_parts ? 0 : f->n);
    if (f->oldest.kind)
        delete_before(e, x, &f->oldest);
    wf_etcd_txn_else(x);
    bounds_of(e, WF_TERM, from, to);
    wf_etcd_txn_range(x, from, to, 1, true);
    wf_etcd_txn_range(x, key, NULL, 1, false);
}

/* What exists instead of what was to be created. */
struct instead {
    uint64_t top;     /* the highest term */
    bool there;       /* the entry: */
    struct wf_buf of; /* its value */
};

static weft_status take_instead(struct wf_etcd *e, const struct wf_etcd_answer *a,
                                struct instead *out)
{
    struct wf_entry top = {.kind = WF_TERM};
    weft_status st = WEFT_OK;

    if (a->n_ranges != 2)
        return wf_err(WEFT_EPEER, "etcd: %d answers instead of 2", a->n_ranges);
    if (a->range[0].n)
        st = entry_of(e, WF_TERM, a->range[0].pair[0].key, &top);
    out->top = top.a;
    out->there = a->range[1].n > 0;
    if (!st && out->there) {
        wf_buf_add(&out->of, a->range[1].pair[0].value, a->range[1].pair[0].n_value);
        st = out->of.st;
    }
    return st;
}

/* *ok: it was not there, and is now. Otherwise *other says what is. */
static weft_status create(struct wf_etcd *e, struct fresh *f, bool *ok, struct instead *other)
{
    struct wf_etcd_answer a;
    struct wf_etcd_txn x;
    weft_status st;

    *ok = false;
    set_nonce(e, f);
    st = put_parts(e, f, ok);
    if (st || !*ok)
        return st;
    *ok = false;
    write_creation(e, &x, f);
    st = ask(e, &x, &a);
    if (st)
        return st;
    *ok = a.succeeded;
    if (!*ok)
        st = take_instead(e, &a, other);
    wf_etcd_answer_free(&a);
    if (!st && !*ok && other->there && other->of.len >= WF_ENTRY_HEAD)
        *ok = wf_entry_nonce(other->of.data) == f->nonce &&
              other->top == (f->term ? f->term : f->entry.a);
    if (!st)
        e->unsure = (struct unsure){.nonce = 0};
    return st;
}

static weft_status create_next(struct wf_etcd *e, struct fresh *f, bool *ok)
{
    struct instead other = {.there = false};
    weft_status st;

    if (f->entry.a > WF_ENTRIES_KEPT)
        f->oldest = (struct wf_entry){.kind = f->entry.kind, .a = f->entry.a - WF_ENTRIES_KEPT + 1};
    wf_buf_init(&other.of, e->ctx, WF_ETCD_MAX_ANSWER);
    st = create(e, f, ok, &other);
    wf_buf_free(&other.of);
    return st;
}

static weft_status create_epoch(struct wf_etcd *e, const struct wf_epoch *record, bool *ok)
{
    struct fresh f = {.entry = {.kind = WF_EPOCH, .a = record->number}, .term = record->term};
    struct wf_buf body;
    weft_status st;

    wf_buf_init(&body, e->ctx, WF_MAX_ENTRY - WF_ENTRY_HEAD);
    st = wf_epoch_write(record, &body);
    if (!st) {
        f.body = body.data;
        f.n = body.len;
        st = create_next(e, &f, ok);
    }
    wf_buf_free(&body);
    return st;
}

/* The oldest entry to keep besides a new one: the last but `kept` - 2. None, if the new one is
 * itself that old. */
static weft_status find_oldest(struct wf_etcd *e, struct fresh *f, int kept)
{
    char from[WF_ETCD_KEY], to[WF_ETCD_KEY], key[WF_ETCD_KEY];
    struct wf_etcd_answer a;
    struct wf_etcd_txn x;
    weft_status st;

    bounds_of(e, f->entry.kind, from, to);
    wf_etcd_txn_begin(&x, e->ctx);
    wf_etcd_txn_then(&x);
    wf_etcd_txn_range(&x, from, to, kept - 1, true);
    st = ask(e, &x, &a);
    if (st)
        return st;
    if (a.n_ranges == 1 && a.range[0].n == kept - 1) {
        st = entry_of(e, f->entry.kind, a.range[0].pair[kept - 2].key, &f->oldest);
        key_of(e, &f->entry, key);
        if (!st && strcmp(key, a.range[0].pair[kept - 2].key) < 0)
            f->oldest.kind = 0;
    }
    wf_etcd_answer_free(&a);
    return st;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Adds the parts [from, from + n) of a body. */
static weft_status read_parts(struct wf_etcd *e, const struct wf_entry *n, uint64_t nonce, int from,
                              int count, struct wf_buf *to)
{
    char key[WF_ETCD_KEY], end[WF_ETCD_KEY];
    struct wf_etcd_answer a;
    struct wf_etcd_txn x;
    weft_status st;

    part_key(e, n, nonce, from, key);
    part_key(e, n, nonce, from + count, end);
    wf_etcd_txn_begin(&x, e->ctx);
    wf_etcd_txn_then(&x);
    wf_etcd_txn_range(&x, key, end, count, false);
    st = ask(e, &x, &a);
    if (st)
        return st;
    if (a.n_ranges != 1 || a.range[0].n != count)
        st = wf_err(WEFT_EDATA, "parts of its body are missing");
    for (int i = count; i-- > 0 && !st;) /* the last one comes first */
        wf_buf_add(to, a.range[0].pair[i].value, a.range[0].pair[i].n_value);
    wf_etcd_answer_free(&a);
    return st ? st : to->st;
}

/* A value with its body, checked, into *to. */
static weft_status read_value(struct wf_etcd *e, const struct wf_entry *n, const char *value,
                              int64_t n_value, struct wf_buf *to)
{
    int n_parts = wf_entry_parts(value, n_value);
    char key[WF_ETCD_KEY];
    weft_status st = WEFT_OK;

    wf_buf_add(to, value, n_value);
    if (n_parts &&
        (n_value != WF_ENTRY_HEAD || wf_entry_body(value) <= (int64_t)(n_parts - 1) * PART ||
         wf_entry_body(value) > (int64_t)n_parts * PART))
        st = wf_err(WEFT_EDATA, "damaged, its parts are not those of its size");
    for (int i = 0; i < n_parts && !st; i += PARTS_AT_ONCE)
        st = read_parts(e, n, wf_entry_nonce(value), i, (int)wf_min_i64(PARTS_AT_ONCE, n_parts - i),
                        to);
    if (!st)
        st = to->st;
    if (!st)
        st = wf_entry_check(n, to->data, to->len);
    if (!st)
        return WEFT_OK;
    key_of(e, n, key);
    return wf_err_wrap(st, "etcd: %s", key);
}

static weft_status create_manifest(struct wf_etcd *e, const struct wf_action *act, bool *ok)
{
    struct fresh f = {.entry = {.kind = WF_MANIFEST, .a = act->history, .b = act->t},
                      .body = "",
                      .term = act->number};
    struct instead other = {.there = false};
    struct wf_buf whole;
    weft_status st;

    wf_buf_init(&other.of, e->ctx, WF_ETCD_MAX_ANSWER);
    wf_buf_init(&whole, e->ctx, WF_MAX_ENTRY);
    st = find_oldest(e, &f, WF_ENTRIES_KEPT);
    if (!st)
        st = create(e, &f, ok, &other);
    if (!st && !*ok && other.there && other.top == act->number) /* of a former chief */
        *ok = !read_value(e, &f.entry, other.of.data ? other.of.data : "", other.of.len, &whole);
    wf_buf_free(&other.of);
    wf_buf_free(&whole);
    return st;
}

static void give_control(struct wf_etcd *e, int64_t t, struct wf_store_answer *out)
{
    out->control_t = t;
    out->control = e->control.data + WF_ENTRY_HEAD;
    out->n_control = e->control.len - WF_ENTRY_HEAD;
}

/* The record that counts: this one, or the one that somebody created before. */
static weft_status create_control(struct wf_etcd *e, const struct wf_action *act,
                                  struct wf_store_answer *out)
{
    const struct wf_control_bytes *body = act->payload;
    struct fresh f = {.entry = {.kind = WF_CONTROL, .a = act->history, .b = act->t},
                      .body = body->p,
                      .n = body->n,
                      .term = act->number};
    struct instead other = {.there = false};
    bool mine = false;
    weft_status st = body->n > WF_MAX_ENTRY - WF_ENTRY_HEAD
                         ? wf_err(WEFT_ERANGE, "a control record of %lld bytes", (long long)body->n)
                         : find_oldest(e, &f, WF_CONTROLS_KEPT);

    wf_buf_init(&other.of, e->ctx, WF_ETCD_MAX_ANSWER);
    if (!st)
        st = create(e, &f, &mine, &other);
    if (!st && mine) {
        wf_buf_add(&e->control, f.head, WF_ENTRY_HEAD);
        wf_buf_add(&e->control, f.body, f.n);
        st = e->control.st;
    } else if (!st && other.there && other.top == act->number) {
        st = read_value(e, &f.entry, other.of.data ? other.of.data : "", other.of.len, &e->control);
        mine = !st;
    }
    if (!st && mine) {
        out->ok = true;
        give_control(e, act->t, out);
    }
    wf_buf_free(&other.of);
    return st;
}

static void read_manifest(struct wf_etcd *e, const struct wf_etcd_answer *a,
                          struct wf_store_answer *out)
{
    for (int i = 0; i < a->range[2].n && !out->has_manifest; i++) {
        const struct wf_etcd_pair *p = &a->range[2].pair[i];
        struct wf_entry n;
        struct wf_buf whole;

        wf_buf_init(&whole, e->ctx, WF_MAX_ENTRY);
        if (entry_of(e, WF_MANIFEST, p->key, &n) ||
            read_value(e, &n, p->value, p->n_value, &whole)) {
            wf_log(e->ctx, WEFT_LOG_WARN, "%s; the manifest before it is used", weft_error());
        } else {
            out->has_manifest = true;
            out->history = n.a;
            out->t = n.b;
        }
        wf_buf_free(&whole);
    }
}

static weft_status read_epoch(struct wf_etcd *e, const struct wf_etcd_answer *a)
{
    const struct wf_etcd_pair *p = a->range[1].pair;
    struct wf_entry n;
    struct wf_buf whole;
    weft_status st;

    if (a->range[1].n == 0)
        return WEFT_OK;
    st = entry_of(e, WF_EPOCH, p->key, &n);
    if (st)
        return st;
    wf_buf_init(&whole, e->ctx, WF_MAX_ENTRY);
    st = read_value(e, &n, p->value, p->n_value, &whole);
    if (!st)
        st =
            wf_epoch_read(e->ctx, whole.data + WF_ENTRY_HEAD, whole.len - WF_ENTRY_HEAD, &e->epoch);
    if (!st && e->epoch->number != n.a)
        st = wf_err(WEFT_EDATA, "etcd: the record of epoch %llu is that of epoch %llu",
                    (unsigned long long)n.a, (unsigned long long)e->epoch->number);
    wf_buf_free(&whole);
    return st;
}

/* The last one of the history that is not damaged. */
static weft_status read_control(struct wf_etcd *e, uint64_t history, struct wf_store_answer *out)
{
    struct wf_entry first = {.kind = WF_CONTROL, .a = history},
                    behind = {WF_CONTROL, history + 1, 0};
    char from[WF_ETCD_KEY], to[WF_ETCD_KEY];
    struct wf_etcd_answer a;
    struct wf_etcd_txn x;
    weft_status st;

    key_of(e, &first, from);
    key_of(e, &behind, to);
    wf_etcd_txn_begin(&x, e->ctx);
    wf_etcd_txn_then(&x);
    wf_etcd_txn_range(&x, from, to, WF_CONTROLS_KEPT, false);
    st = ask(e, &x, &a);
    for (int i = 0; !st && i < a.range[0].n && !out->control; i++) {
        const struct wf_etcd_pair *p = &a.range[0].pair[i];
        struct wf_entry n;

        st = entry_of(e, WF_CONTROL, p->key, &n);
        if (!st)
            st = read_value(e, &n, p->value, p->n_value, &e->control);
        if (!st) {
            give_control(e, n.b, out);
        } else if (st == WEFT_EDATA) {
            wf_log(e->ctx, WEFT_LOG_WARN, "%s; the control record before it is used", weft_error());
            wf_buf_free(&e->control);
            wf_buf_init(&e->control, e->ctx, WF_MAX_ENTRY);
            st = WEFT_OK;
        }
    }
    if (!st)
        wf_etcd_answer_free(&a);
    return st;
}

static weft_status read_all(struct wf_etcd *e, uint64_t pulse, struct wf_store_answer *out)
{
    static const struct {
        enum wf_entry_kind kind;
        int limit;
        bool keys_only;
    } asked[] = {{WF_TERM, 1, true}, {WF_EPOCH, 1, false}, {WF_MANIFEST, WF_ENTRIES_KEPT, false}};
    struct wf_etcd_answer a;
    struct wf_etcd_txn x;
    struct wf_entry top = {.kind = WF_TERM};
    char alive[WF_ETCD_KEY], text[WF_PULSE_TEXT];
    weft_status st;

    wf_snprintf(alive, sizeof alive, "%s/alive", e->where.prefix);
    wf_pulse_write(pulse, text);
    wf_etcd_txn_begin(&x, e->ctx);
    wf_etcd_txn_then(&x);
    for (int i = 0; i < WF_COUNT(asked); i++) {
        char from[WF_ETCD_KEY], to[WF_ETCD_KEY];

        bounds_of(e, asked[i].kind, from, to);
        wf_etcd_txn_range(&x, from, to, asked[i].limit, asked[i].keys_only);
    }
    if (pulse)
        wf_etcd_txn_put(&x, alive, text, WF_PULSE_TEXT - 1, "", 0);
    wf_etcd_txn_range(&x, alive, NULL, 1, false);
    st = ask(e, &x, &a);
    if (st)
        return st;
    if (a.n_ranges != WF_COUNT(asked) + 1)
        st = wf_err(WEFT_EPEER, "etcd: %d answers instead of %d", a.n_ranges,
                    (int)WF_COUNT(asked) + 1);
    else if (a.range[WF_COUNT(asked)].n)
        out->pulse = wf_pulse_read(a.range[WF_COUNT(asked)].pair[0].value,
                                   a.range[WF_COUNT(asked)].pair[0].n_value);
    if (!st && a.range[0].n)
        st = entry_of(e, WF_TERM, a.range[0].pair[0].key, &top);
    if (!st)
        st = read_epoch(e, &a);
    if (!st)
        read_manifest(e, &a, out);
    wf_etcd_answer_free(&a);
    if (!st && e->epoch)
        st = read_control(e, e->epoch->history, out);
    out->ok = !st;
    out->term = top.a;
    out->epoch = e->epoch;
    return st;
}

weft_status wf_etcd_do(struct wf_etcd *e, const struct wf_action *a, struct wf_store_answer *out)
{
    struct fresh term = {.entry = {.kind = WF_TERM, .a = a->number}, .body = ""};

    wf_epoch_free(e->ctx, e->epoch);
    e->epoch = NULL;
    wf_buf_free(&e->control);
    wf_buf_init(&e->control, e->ctx, WF_MAX_ENTRY);
    *out = (struct wf_store_answer){.to = a->type, .control_t = -1};
    switch (a->type) {
    case WF_ACT_READ: return read_all(e, a->pulse, out);
    case WF_ACT_CREATE_TERM: out->term = a->number; return create_next(e, &term, &out->ok);
    case WF_ACT_CREATE_EPOCH:
        out->term = a->record->term;
        return create_epoch(e, a->record, &out->ok);
    case WF_ACT_CREATE_MANIFEST:
        out->history = a->history;
        out->t = a->t;
        return create_manifest(e, a, &out->ok);
    case WF_ACT_CREATE_CONTROL: out->history = a->history; return create_control(e, a, out);
    default: return wf_err(WEFT_EINVAL, "action %d is not one of the store", (int)a->type);
    }
}

weft_status wf_etcd_drop(struct wf_etcd *e)
{
    char from[WF_ETCD_KEY], to[WF_ETCD_KEY];
    struct wf_etcd_answer a;
    struct wf_etcd_txn x;
    weft_status st;

    wf_snprintf(from, sizeof from, "%s/", e->where.prefix);
    wf_snprintf(to, sizeof to, "%s0", e->where.prefix);
    wf_etcd_txn_begin(&x, e->ctx);
    wf_etcd_txn_then(&x);
    wf_etcd_txn_delete(&x, from, to);
    st = ask(e, &x, &a);
    if (!st)
        wf_etcd_answer_free(&a);
    return st;
}

/* ---- life ------------------------------------------------------------------------------------ */

weft_status wf_etcd_open(weft_ctx *ctx, const struct wf_etcd_where *where,
                         const struct wf_http_opts *opts, struct wf_etcd **out)
{
    struct wf_etcd *e = wf_alloc(ctx, sizeof *e);
    weft_status st;

    if (!e)
        return wf_err_nomem(ctx, sizeof *e, "etcd");
    e->ctx = ctx;
    e->where = *where;
    wf_buf_init(&e->control, ctx, WF_MAX_ENTRY);
    st = wf_http_open(ctx, opts, &e->http);
    if (st) {
        wf_etcd_close(e);
        return wf_err_wrap(st, "a store in etcd");
    }
    wf_etcd_set_post(e, post_http, e->http);
    *out = e;
    return WEFT_OK;
}

void wf_etcd_set_post(struct wf_etcd *e, wf_post_fn *post, void *arg)
{
    e->post = post ? post : post_http;
    e->post_arg = post ? arg : e->http;
}

void wf_etcd_stop(struct wf_etcd *e)
{
    wf_http_stop(e->http);
}

void wf_etcd_close(struct wf_etcd *e)
{
    if (!e)
        return;
    wf_http_close(e->http);
    wf_epoch_free(e->ctx, e->epoch);
    wf_buf_free(&e->control);
    wf_free(e->ctx, e);
}
