/* door.c - the door of a job: gives certificates to those who have a token, or a certificate that
 * is about to expire. It trusts nothing that a guest sends but the token's secret. */
#include "cluster/door.h"

#include <pthread.h>

#include <openssl/crypto.h>

#include "net/net.h"
#include "weft/sys/join.h"

enum { MAX_TOKENS = 64 };
#define SILENCE_NS 10000000000

struct known {
    struct wf_token token;
    int uses;
    int64_t expires_ns; /* by the context's clock */
};

struct weft_door {
    weft_ctx *ctx;
    weft_authority *authority;
    weft_door_opts o;
    struct wf_tls *tls;
    struct wf_net *net;
    unsigned char fingerprint[WF_FINGERPRINT];
    pthread_mutex_t lock; /* of the tokens */
    struct known known[MAX_TOKENS];
    int n_known;
};

weft_status wf_door_texts(const char *p, int64_t n, const char *text[WF_DOOR_TEXTS])
{
    for (int i = 0; i < WF_DOOR_TEXTS; i++) {
        const char *end = n > 0 ? memchr(p, 0, (size_t)n) : NULL;

        if (!end)
            return wf_err(WEFT_EPARSE, "an answer of %d texts, not %d", i, (int)WF_DOOR_TEXTS);
        text[i] = p;
        n -= end + 1 - p;
        p = end + 1;
    }
    return n == 0 ? WEFT_OK : wf_err(WEFT_EPARSE, "an answer with more than its texts");
}

WEFT_PRINTF(2, 3)
static void say(const weft_door *d, const char *fmt, ...)
{
    char line[400];
    va_list args;

    if (!d->o.said)
        return;
    va_start(args, fmt);
    wf_vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    d->o.said(d->o.arg, line);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* The token with this number and secret, used once more; the error says no more than a stranger may
 * know. The secret is compared in a time that does not depend on it. */
static weft_status use_token(weft_door *d, const unsigned char *id, const unsigned char *secret,
                             char role[16])
{
    weft_status st = wf_err(WEFT_EPEER, "the token is not known here");

    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->n_known; i++) {
        struct known *k = &d->known[i];

        if (memcmp(k->token.id, id, WF_TOKEN_ID) != 0 ||
            CRYPTO_memcmp(k->token.secret, secret, WF_TOKEN_SECRET) != 0)
            continue;
        if (wf_now(d->ctx) >= k->expires_ns) {
            st = wf_err(WEFT_EPEER, "the token has expired");
        } else if (k->uses <= 0) {
            st = wf_err(WEFT_EPEER, "the token has been used up");
        } else {
            k->uses--;
            memcpy(role, k->token.role, sizeof k->token.role);
            st = WEFT_OK;
        }
    }
    pthread_mutex_unlock(&d->lock);
    return st;
}

/* The join failed after all. */
static void give_token_back(weft_door *d, const unsigned char *id)
{
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->n_known; i++)
        if (memcmp(d->known[i].token.id, id, WF_TOKEN_ID) == 0)
            d->known[i].uses++;
    pthread_mutex_unlock(&d->lock);
}

weft_status weft_door_token(weft_door *d, const char *role, int uses, double seconds,
                            const char *path)
{
    struct wf_token t;
    char text[WF_TOKEN_TEXT];
    weft_status st = wf_token_new(d->ctx, role, d->fingerprint, &t);

    if (!st && (uses < 1 || !(seconds > 0) || seconds > 1e9))
        st = wf_err(WEFT_EINVAL, "a token for %d joins in %g s", uses, seconds);
    if (st)
        return st;
    wf_token_write(&t, text);
    pthread_mutex_lock(&d->lock);
    if (d->n_known == MAX_TOKENS)
        st = wf_err(WEFT_ELIMIT, "more than %d tokens", MAX_TOKENS);
    else
        d->known[d->n_known++] = (struct known){t, uses, wf_now(d->ctx) + (int64_t)(seconds * 1e9)};
    pthread_mutex_unlock(&d->lock);
    if (!st)
        st = wf_secret_put(d->ctx, path, text);
    OPENSSL_cleanse(text, sizeof text);
    OPENSSL_cleanse(&t, sizeof t);
    return st;
}

/* ---- answers --------------------------------------------------------------------------------- */

struct answer {
    struct wf_buf b;
    struct wf_part part;
};

static void is_sent(void *arg, weft_status st)
{
    struct answer *a = arg;

    (void)st;
    wf_buf_free(&a->b);
    wf_free(a->b.ctx, a);
}

static void reply(weft_door *d, struct wf_link *l, uint64_t id, const char *const *text)
{
    struct answer *a = wf_alloc(d->ctx, sizeof *a);
    struct wf_msg m = {.kind = WF_DOOR_ASK, .n_parts = 1};

    if (!a) {
        wf_link_close(l);
        return;
    }
    wf_buf_init(&a->b, d->ctx, WF_DOOR_MAX_ANSWER);
    for (int i = 0; i < WF_DOOR_TEXTS; i++)
        wf_buf_add(&a->b, text[i], (int64_t)strlen(text[i]) + 1);
    a->part = (struct wf_part){a->b.data, a->b.len};
    m.part = &a->part;
    if (a->b.st || wf_link_reply(l, id, WEFT_OK, &m, is_sent, a)) {
        is_sent(a, WEFT_EPEER);
        wf_link_close(l);
    }
}

static void refuse(weft_door *d, struct wf_link *l, uint64_t id)
{
    char why[300];
    const char *text[WF_DOOR_TEXTS] = {"", why, "", ""};

    wf_snprintf(why, sizeof why, "%s", weft_error());
    say(d, "refused %s: %s", wf_link_name(l), why);
    reply(d, l, id, text);
}

/* ---- requests -------------------------------------------------------------------------------- */

static weft_status check_task(const char *task, const char *role)
{
    size_t n = strlen(role);

    return strncmp(task, role, n) == 0 && task[n] == '/'
               ? WEFT_OK
               : wf_err(WEFT_EPEER, "the token is for a %s, not for '%s'", role, task);
}

static weft_status sign(weft_door *d, const char *request, const char *role, const char *task,
                        char **out)
{
    return wf_cert_sign(d->ctx, wf_authority_pem(d->authority), request, role, task, d->o.seconds,
                        out);
}

static weft_status let_in(weft_door *d, struct wf_link *l, uint64_t id, const unsigned char *head,
                          const char *request)
{
    char role[16], task[WEFT_TASK_NAME] = "", *certificate = NULL;
    const char *told = "";
    weft_status st = use_token(d, head + 2, head + 2 + WF_TOKEN_ID, role);

    if (st)
        return st;
    if (!d->o.take(d->o.arg, role, task, &told))
        st = wf_err(WEFT_EPEER, "%.250s", told);
    if (!st)
        st = check_task(task, role);
    if (!st)
        st = sign(d, request, role, task, &certificate);
    if (st) {
        give_token_back(d, head + 2);
    } else {
        const char *text[WF_DOOR_TEXTS] = {task, certificate,
                                           wf_authority_pem(d->authority)->certificate, told};

        say(d, "%s joins as %s", wf_link_name(l), task);
        reply(d, l, id, text);
    }
    wf_free(d->ctx, certificate);
    return st;
}

/* Who has a certificate gets a new one for the same task. */
static weft_status renew(weft_door *d, struct wf_link *l, uint64_t id, const char *request)
{
    const struct wf_identity *who = wf_link_peer(l);
    char *certificate = NULL;
    weft_status st;

    if (strcmp(who->role, WF_GUEST) == 0)
        return wf_err(WEFT_EPEER, "a guest has no certificate to renew");
    st = sign(d, request, who->role, who->name, &certificate);
    if (!st) {
        const char *text[WF_DOOR_TEXTS] = {who->name, certificate,
                                           wf_authority_pem(d->authority)->certificate, ""};

        say(d, "renewed the certificate of %s", who->name);
        reply(d, l, id, text);
    }
    wf_free(d->ctx, certificate);
    return st;
}

static void received(void *arg, struct wf_link *l, const struct wf_msg *m)
{
    weft_door *d = arg;
    const unsigned char *head = m->head;
    char request[WF_DOOR_MAX_REQUEST + 1];
    int64_t n = m->n_head - WF_DOOR_HEAD;
    weft_status st;

    if (m->kind != WF_DOOR_ASK || m->id == 0 || m->response || n < 1 || n > WF_DOOR_MAX_REQUEST ||
        head[0] != WF_DOOR_VERSION) {
        say(d, "refused %s: it asks for something unknown", wf_link_name(l));
        wf_link_close(l);
        return;
    }
    memcpy(request, head + WF_DOOR_HEAD, (size_t)n);
    request[n] = '\0';
    if (head[1] == WF_DOOR_JOIN)
        st = let_in(d, l, m->id, head, request);
    else if (head[1] == WF_DOOR_RENEW)
        st = renew(d, l, m->id, request);
    else
        st = wf_err(WEFT_EPEER, "it asks for something unknown");
    if (st)
        refuse(d, l, m->id);
}

static void down(void *arg, struct wf_link *l, weft_status st, const char *why)
{
    (void)arg;
    (void)st;
    (void)why;
    wf_link_drop(l);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* The door has a certificate of its own, and sends the authority's with it. */
static weft_status open_tls(weft_door *d)
{
    const struct wf_pem *authority = wf_authority_pem(d->authority);
    struct wf_pem own;
    struct wf_buf chain;
    weft_status st = wf_cert_fingerprint(authority->certificate, d->fingerprint);

    if (!st)
        st = wf_cert_issue(d->ctx, authority, WF_DOOR_NAME, WF_DOOR_NAME, 365, &own);
    if (st)
        return st;
    wf_buf_init(&chain, d->ctx, 1 << 20);
    wf_buf_printf(&chain, "%s%s", own.certificate, authority->certificate);
    st = chain.st
             ? wf_err_nomem(d->ctx, 0, "a door")
             : wf_tls_new_open(
                   d->ctx, &(struct wf_credentials){authority->certificate, chain.data, own.key},
                   &d->tls);
    wf_buf_free(&chain);
    wf_pem_free(d->ctx, &own);
    return st;
}

weft_status weft_door_open(weft_ctx *ctx, weft_authority *a, const weft_door_opts *opts,
                           char *bound, size_t n_bound, weft_door **out)
{
    weft_door *d = wf_alloc(ctx, sizeof *d);
    struct wf_net_opts o = {.self = {.name = WF_DOOR_NAME, .role = WF_DOOR_NAME},
                            .max_payload = 1,
                            .max_queued = 16,
                            .silence_ns = SILENCE_NS,
                            .stall_ns = SILENCE_NS};
    weft_status st = d ? wf_opts_take(&d->o, sizeof d->o, opts, "weft_door_opts")
                       : wf_err_nomem(ctx, sizeof *d, "a door");

    if (!st &&
        (!d->o.address || strncmp(d->o.address, "tls:", 4) != 0 || !d->o.take || d->o.seconds < 1))
        st = wf_err(WEFT_EINVAL, "weft_door_opts: needs a tls address, seconds and take");
    if (st) {
        wf_free(ctx, d);
        return st;
    }
    d->ctx = ctx;
    d->authority = a;
    pthread_mutex_init(&d->lock, NULL);
    st = open_tls(d);
    o.tls = d->tls;
    o.calls = (struct wf_net_calls){.arg = d, .down = down, .received = received};
    if (!st)
        st = wf_net_new(ctx, &o, &d->net);
    if (!st)
        st = wf_net_listen(d->net, d->o.address, bound, n_bound);
    if (st) {
        weft_door_close(d);
        return st;
    }
    *out = d;
    return WEFT_OK;
}

void weft_door_close(weft_door *d)
{
    if (!d)
        return;
    wf_net_free(d->net);
    wf_tls_free(d->tls);
    pthread_mutex_destroy(&d->lock);
    OPENSSL_cleanse(d->known, sizeof d->known);
    wf_free(d->ctx, d);
}
