/* tls.c - TLS 1.3 over the socket of a link. */
#define _GNU_SOURCE
#include "net/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/crypto.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "net/link.h"

enum {
    GATHERED = 16384,      /* a record of TLS */
    READ_BUFFER = 1 << 16, /* several of them, as they arrive */
    AT_ONCE = 1 << 19,     /* bytes that one call reads or writes */
    KEY_RECORDS = 1 << 22, /* 64 GiB; AES-GCM is safe for 2^24.5 records under one key */
    MAX_SESSIONS = 64      /* peers that are remembered */
};

struct session {
    char address[WF_MAX_ADDRESS];
    SSL_SESSION *session;
};

struct wf_tls {
    weft_ctx *ctx;
    BIO_METHOD *socket; /* how OpenSSL reads and writes: through the context's seam */
    bool open;          /* peers need no certificate */
    unsigned char pin[WF_FINGERPRINT]; /* of the authority that a guest accepts */
    pthread_mutex_t lock;              /* of all below */
    SSL_CTX *now;
    struct session session[MAX_SESSIONS]; /* to be resumed, by address */
    int n_sessions;
};

/* A link's. */
struct wf_secure {
    SSL *ssl;
    struct wf_tls *tls;
    int error; /* errno of the last read or write, if it failed; 0: the connection ended */
    bool ended;
    bool dry;        /* this time the socket was read, and had less than there was room for */
    bool told_later; /* what reading ended with after bytes that it yielded: */
    int64_t late;
    int64_t n_records, n_keys;  /* sent under this key; keys after the first */
    bool unfinished;            /* a write has to be tried again with the same bytes */
    uint8_t gathered[GATHERED]; /* small parts, sent as one record */
};

static weft_status err_openssl(const char *what)
{
    unsigned long e = ERR_get_error();
    const char *reason = e ? ERR_reason_error_string(e) : NULL;

    ERR_clear_error();
    return wf_err(WEFT_EPEER, "%s: %s", what, reason ? reason : "OpenSSL has failed");
}

/* ---- the socket ------------------------------------------------------------------------------ */

/* What OpenSSL is told of a read or write that moved n bytes, or failed with a negative errno. */
static int moved(BIO *b, struct wf_secure *s, int64_t n, void (*retry)(BIO *b))
{
    BIO_clear_retry_flags(b);
    s->error = n < 0 ? (int)-n : 0;
    if (n == -EAGAIN || n == -EWOULDBLOCK || n == -EINTR)
        retry(b);
    return n < 0 ? -1 : (int)n;
}

static void retry_read(BIO *b)
{
    BIO_set_retry_read(b);
}

static void retry_write(BIO *b)
{
    BIO_set_retry_write(b);
}

static int bio_read(BIO *b, char *to, int n)
{
    struct wf_link *l = BIO_get_data(b);
    const struct iovec v = {to, (size_t)n};
    int64_t got = wf_wire_plain.read(l, &v, 1);

    l->secure->ended = got == 0;
    l->secure->dry = got < n;
    return moved(b, l->secure, got, retry_read);
}

static int bio_write(BIO *b, const char *from, int n)
{
    struct wf_link *l = BIO_get_data(b);
    const struct iovec v = {(void *)(uintptr_t)from, (size_t)n};

    return moved(b, l->secure, wf_wire_plain.write(l, &v, 1), retry_write);
}

static long bio_ctrl(BIO *b, int what, long number, void *p)
{
    const struct wf_link *l = BIO_get_data(b);

    (void)number;
    (void)p;
    return what == BIO_CTRL_FLUSH || (what == BIO_CTRL_EOF && l->secure->ended);
}

static BIO_METHOD *new_socket_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "weft socket");

    if (m && BIO_meth_set_read(m, bio_read) && BIO_meth_set_write(m, bio_write) &&
        BIO_meth_set_ctrl(m, bio_ctrl))
        return m;
    BIO_meth_free(m);
    return NULL;
}

static bool use_socket(struct wf_link *l)
{
    BIO *b = BIO_new(l->secure->tls->socket);

    if (!b)
        return false;
    BIO_set_data(b, l);
    BIO_set_init(b, 1);
    SSL_set_bio(l->secure->ssl, b, b);
    return true;
}

/* ---- credentials ----------------------------------------------------------------------------- */

static weft_status use_chain(SSL_CTX *c, const char *pem)
{
    BIO *b = BIO_new_mem_buf(pem, -1);
    X509 *x = b ? PEM_read_bio_X509(b, NULL, NULL, NULL) : NULL;
    bool ok = x && SSL_CTX_use_certificate(c, x) == 1;

    X509_free(x);
    while (ok && (x = PEM_read_bio_X509(b, NULL, NULL, NULL)))
        ok = SSL_CTX_add0_chain_cert(c, x) == 1;
    BIO_free(b);
    if (!ok)
        return err_openssl("the certificate");
    ERR_clear_error(); /* of the end of the text */
    return WEFT_OK;
}

static weft_status use_key(SSL_CTX *c, const char *pem)
{
    BIO *b = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *k = b ? PEM_read_bio_PrivateKey(b, NULL, NULL, NULL) : NULL;
    bool ok = k && SSL_CTX_use_PrivateKey(c, k) == 1 && SSL_CTX_check_private_key(c) == 1;

    EVP_PKEY_free(k);
    BIO_free(b);
    return ok ? WEFT_OK : err_openssl("the key of the certificate");
}

static weft_status use_authority(SSL_CTX *c, const char *pem)
{
    BIO *b = BIO_new_mem_buf(pem, -1);
    X509 *x = b ? PEM_read_bio_X509(b, NULL, NULL, NULL) : NULL;
    bool ok = x && X509_STORE_add_cert(SSL_CTX_get_cert_store(c), x) == 1;

    X509_free(x);
    BIO_free(b);
    return ok ? WEFT_OK : err_openssl("the authority's certificate");
}

/* The peer's chain must lead to a certificate with the fingerprint that was agreed on by other
 * means. Returns 1 if it does. */
static int check_pin(X509_STORE_CTX *c, void *arg)
{
    STACK_OF(X509) *sent = X509_STORE_CTX_get0_untrusted(c), *trusted = sk_X509_new_null();
    int rc = 0;

    for (int i = 0; trusted && i < sk_X509_num(sent) && sk_X509_num(trusted) == 0; i++) {
        unsigned char hash[EVP_MAX_MD_SIZE];
        unsigned n = 0;

        if (X509_digest(sk_X509_value(sent, i), EVP_sha256(), hash, &n) && n == WF_FINGERPRINT &&
            CRYPTO_memcmp(hash, arg, WF_FINGERPRINT) == 0)
            sk_X509_push(trusted, sk_X509_value(sent, i));
    }
    if (trusted && sk_X509_num(trusted) == 1) {
        X509_STORE_CTX_set0_trusted_stack(c, trusted);
        rc = X509_verify_cert(c) == 1;
    } else {
        X509_STORE_CTX_set_error(c, X509_V_ERR_CERT_UNTRUSTED);
    }
    sk_X509_free(trusted);
    return rc;
}

static int keep_session(SSL *ssl, SSL_SESSION *s);

void wf_tls_tune(struct ssl_ctx_st *c)
{
    SSL_CTX_set_read_ahead(c, 1); /* a record's header and body, and more records, in one read */
    SSL_CTX_set_default_read_buffer_len(c, READ_BUFFER);
}

/* c NULL: of a guest. */
static weft_status new_context(struct wf_tls *t, const struct wf_credentials *c, SSL_CTX **out)
{
    SSL_CTX *x = SSL_CTX_new(TLS_method());
    weft_status st = WEFT_OK;

    if (!x || !SSL_CTX_set_min_proto_version(x, TLS1_3_VERSION) ||
        !SSL_CTX_set_session_id_context(x, (const unsigned char *)"weft", 4))
        st = err_openssl("TLS 1.3");
    if (!st && !c)
        SSL_CTX_set_cert_verify_callback(x, check_pin, t->pin);
    if (!st && c)
        st = use_authority(x, c->authority);
    if (!st && c)
        st = use_chain(x, c->certificate);
    if (!st && c)
        st = use_key(x, c->key);
    if (st) {
        SSL_CTX_free(x);
        return st;
    }
    SSL_CTX_set_verify(x, SSL_VERIFY_PEER | (t->open ? 0 : SSL_VERIFY_FAIL_IF_NO_PEER_CERT), NULL);
    SSL_CTX_set_mode(x, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    wf_tls_tune(x);
    SSL_CTX_set_session_cache_mode(x, SSL_SESS_CACHE_BOTH | SSL_SESS_CACHE_NO_INTERNAL_STORE);
    SSL_CTX_sess_set_new_cb(x, keep_session);
    SSL_CTX_set_options(x, SSL_OP_IGNORE_UNEXPECTED_EOF);
    *out = x;
    return WEFT_OK;
}

/* c NULL: of a guest, who knows the pin. */
static weft_status new_tls(weft_ctx *ctx, const struct wf_credentials *c, bool open,
                           const unsigned char *pin, struct wf_tls **out)
{
    struct wf_tls *t = wf_alloc(ctx, sizeof *t);
    weft_status st;

    if (!t)
        return wf_err_nomem(ctx, sizeof *t, "the credentials of a node");
    t->open = open;
    if (pin)
        memcpy(t->pin, pin, sizeof t->pin);
    st = new_context(t, c, &t->now);
    if (st) {
        wf_free(ctx, t);
        return st;
    }
    t->ctx = ctx;
    pthread_mutex_init(&t->lock, NULL);
    t->socket = new_socket_method();
    if (!t->socket) {
        wf_tls_free(t);
        return err_openssl("TLS");
    }
    *out = t;
    return WEFT_OK;
}

weft_status wf_tls_new(weft_ctx *ctx, const struct wf_credentials *c, struct wf_tls **out)
{
    return new_tls(ctx, c, false, NULL, out);
}

weft_status wf_tls_new_open(weft_ctx *ctx, const struct wf_credentials *c, struct wf_tls **out)
{
    return new_tls(ctx, c, true, NULL, out);
}

weft_status wf_tls_new_guest(weft_ctx *ctx, const unsigned char *pin, struct wf_tls **out)
{
    return new_tls(ctx, NULL, false, pin, out);
}

void wf_tls_free(struct wf_tls *t)
{
    if (!t)
        return;
    for (int i = 0; i < t->n_sessions; i++)
        SSL_SESSION_free(t->session[i].session);
    SSL_CTX_free(t->now);
    BIO_meth_free(t->socket);
    pthread_mutex_destroy(&t->lock);
    wf_free(t->ctx, t);
}

weft_status wf_tls_renew(struct wf_tls *t, const struct wf_credentials *c)
{
    SSL_CTX *next = NULL;
    weft_status st = new_context(t, c, &next);

    if (st)
        return st;
    pthread_mutex_lock(&t->lock);
    SSL_CTX_free(t->now); /* links hold theirs */
    t->now = next;
    for (int i = 0; i < t->n_sessions; i++) /* they were made with the old ones */
        SSL_SESSION_free(t->session[i].session);
    t->n_sessions = 0;
    pthread_mutex_unlock(&t->lock);
    return WEFT_OK;
}

/* ---- sessions -------------------------------------------------------------------------------- */

static struct session *find_session(struct wf_tls *t, const char *address)
{
    for (int i = 0; i < t->n_sessions; i++)
        if (strcmp(t->session[i].address, address) == 0)
            return &t->session[i];
    return NULL;
}

/* A ticket has come: the next connection to this address resumes it. Returns 1 if it was
 * kept. */
static int keep_session(SSL *ssl, SSL_SESSION *s)
{
    struct wf_link *l = SSL_get_app_data(ssl);
    struct wf_tls *t = l->secure->tls;
    struct session *at;

    if (SSL_is_server(ssl))
        return 0;
    pthread_mutex_lock(&t->lock);
    at = find_session(t, l->address);
    if (at) {
        SSL_SESSION_free(at->session);
    } else if (t->n_sessions < MAX_SESSIONS) {
        at = &t->session[t->n_sessions++];
        wf_snprintf(at->address, sizeof at->address, "%s", l->address);
    }
    if (at)
        at->session = s;
    pthread_mutex_unlock(&t->lock);
    return at != NULL;
}

/* ---- the handshake --------------------------------------------------------------------------- */

weft_status wf_secure_new(struct wf_link *l, struct wf_tls *t)
{
    struct wf_secure *s = wf_alloc(l->net->ctx, sizeof *s);
    struct session *known;

    if (!s)
        return wf_err_nomem(l->net->ctx, sizeof *s, "a link");
    pthread_mutex_lock(&t->lock);
    s->ssl = SSL_new(t->now);
    known = l->promised ? find_session(t, l->address) : NULL;
    if (s->ssl && known)
        SSL_set_session(s->ssl, known->session);
    pthread_mutex_unlock(&t->lock);
    s->tls = t;
    l->secure = s;
    if (!s->ssl || !use_socket(l)) {
        wf_secure_free(l);
        return err_openssl("TLS");
    }
    SSL_set_app_data(s->ssl, l);
    if (l->promised)
        SSL_set_connect_state(s->ssl);
    else
        SSL_set_accept_state(s->ssl);
    return WEFT_OK;
}

void wf_secure_free(struct wf_link *l)
{
    if (!l->secure)
        return;
    SSL_free(l->secure->ssl);
    wf_free(l->net->ctx, l->secure);
    l->secure = NULL;
}

int64_t wf_secure_keys(const struct wf_link *l)
{
    return l->secure ? l->secure->n_keys : 0;
}

bool wf_secure_resumed(const struct wf_link *l)
{
    return l->secure && SSL_session_reused(l->secure->ssl);
}

/* What the peer's certificate says: "weft:ROLE/NAME". */
static weft_status read_identity(const struct wf_link *l, struct wf_identity *out)
{
    X509 *x = SSL_get1_peer_certificate(l->secure->ssl);
    int verify = SSL_get_verify_mode(l->secure->ssl);
    GENERAL_NAMES *names = x ? X509_get_ext_d2i(x, NID_subject_alt_name, NULL, NULL) : NULL;
    bool found = false;

    if (!x && !(verify & SSL_VERIFY_FAIL_IF_NO_PEER_CERT)) {
        *out = (struct wf_identity){.name = WF_GUEST, .role = WF_GUEST};
        return WEFT_OK;
    }
    for (int i = 0; i < sk_GENERAL_NAME_num(names) && !found; i++) {
        const GENERAL_NAME *g = sk_GENERAL_NAME_value(names, i);
        const char *uri, *slash;
        int n;

        if (g->type != GEN_URI)
            continue;
        uri = (const char *)ASN1_STRING_get0_data(g->d.uniformResourceIdentifier);
        n = ASN1_STRING_length(g->d.uniformResourceIdentifier);
        slash = n > 5 && memcmp(uri, "weft:", 5) == 0 ? memchr(uri + 5, '/', (size_t)n - 5) : NULL;
        if (!slash || slash - uri - 5 >= (int)sizeof out->role ||
            uri + n - slash - 1 >= (int)sizeof out->name || memchr(uri, 0, (size_t)n))
            continue;
        *out = (struct wf_identity){.incarnation = 0};
        memcpy(out->role, uri + 5, (size_t)(slash - uri - 5));
        memcpy(out->name, slash + 1, (size_t)(uri + n - slash - 1));
        found = true;
    }
    GENERAL_NAMES_free(names);
    X509_free(x);
    return found ? WEFT_OK : wf_err(WEFT_EPEER, "the peer's certificate names no task of weft");
}

/* Events to wait for; 0: it is complete. */
weft_status wf_secure_step(struct wf_link *l, int *events)
{
    SSL *ssl = l->secure->ssl;
    int rc;
    long bad;

    ERR_clear_error();
    rc = SSL_do_handshake(ssl);
    *events = 0;
    if (rc == 1)
        return read_identity(l, &l->certified);
    switch (SSL_get_error(ssl, rc)) {
    case SSL_ERROR_WANT_READ: *events = WF_READABLE; return WEFT_OK;
    case SSL_ERROR_WANT_WRITE: *events = WF_WRITABLE; return WEFT_OK;
    case SSL_ERROR_SYSCALL:
        return wf_err(WEFT_EPEER, "TLS: %s",
                      l->secure->error ? wf_errno_text(l->secure->error)
                                       : "the peer closed the connection");
    default: break;
    }
    bad = SSL_get_verify_result(ssl);
    return bad != X509_V_OK ? wf_err(WEFT_EPEER, "TLS: the peer's certificate: %s",
                                     X509_verify_cert_error_string(bad))
                            : err_openssl("TLS");
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/* The result of reading or writing as that of a system call; 0: nothing follows what was read. */
static int64_t result(struct wf_link *l, int rc)
{
    if (rc > 0)
        return rc;
    switch (SSL_get_error(l->secure->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: return l->secure->error == EINTR ? -EINTR : -EAGAIN;
    case SSL_ERROR_ZERO_RETURN: return 0;
    case SSL_ERROR_SYSCALL: return -l->secure->error;
    default: {
        unsigned long e = ERR_get_error();

        wf_snprintf(l->wire_error, sizeof l->wire_error, "TLS: %s",
                    e ? ERR_reason_error_string(e) : "failed");
        ERR_clear_error();
        return -EPROTO;
    }
    }
}

/* As many records as have arrived and fit. The end or an error after them is told next time. */
static int64_t read_tls(struct wf_link *l, const struct iovec *v, int n)
{
    struct wf_secure *s = l->secure;
    int64_t got = 0, k = 1, at = 0;

    pthread_mutex_lock(&l->out); /* an SSL is not for two threads at once */
    s->dry = false;
    if (s->told_later) {
        k = s->late;
        s->told_later = false;
        n = 0;
    }
    ERR_clear_error();
    for (int i = 0; i < n && k > 0 && got < AT_ONCE && (got == 0 || SSL_has_pending(s->ssl));) {
        k = result(l, SSL_read(s->ssl, (char *)v[i].iov_base + at,
                               (int)wf_min_i64((int64_t)v[i].iov_len - at, 1 << 30)));
        if (k <= 0)
            break;
        got += k;
        at += k;
        if (at == (int64_t)v[i].iov_len) {
            i++;
            at = 0;
        }
    }
    if (got > 0 && k <= 0 && k != -EAGAIN && k != -EINTR) {
        s->told_later = true;
        s->late = k;
    }
    pthread_mutex_unlock(&l->out);
    return got > 0 ? got : k;
}

/* Both ends take new keys before too much was sent under the present ones: the peer with its next
 * record. */
static void renew_keys(struct wf_link *l)
{
    struct wf_secure *s = l->secure;
    int64_t most = l->net->opts.key_records ? l->net->opts.key_records : KEY_RECORDS;

    if (s->n_records < most || s->unfinished || !SSL_is_init_finished(s->ssl))
        return;
    if (SSL_key_update(s->ssl, SSL_KEY_UPDATE_REQUESTED) == 1) {
        s->n_records = 0;
        s->n_keys++;
    } else {
        ERR_clear_error(); /* later */
    }
}

/* The same of writing, which never gives 0: after the end of what the peer sends, OpenSSL calls
 * every failed write the end. */
static int64_t write_result(struct wf_link *l, int rc)
{
    int64_t k = result(l, rc);

    return k ? k : l->secure->error ? -l->secure->error : -EPIPE;
}

/* Large parts from where they are, small ones together. What is offered after a short write begins
 * with the same bytes, as OpenSSL wants it. */
static int64_t write_tls(struct wf_link *l, const struct iovec *v, int n)
{
    struct wf_secure *s = l->secure;
    const char *from = v[0].iov_base;
    int64_t bytes = (int64_t)v[0].iov_len, put = 0, k = 0;

    if (bytes < GATHERED) {
        bytes = 0;
        for (int i = 0; i < n && bytes < GATHERED; i++) {
            k = wf_min_i64((int64_t)v[i].iov_len, GATHERED - bytes);
            memcpy(s->gathered + bytes, v[i].iov_base, (size_t)k);
            bytes += k;
        }
        from = (const char *)s->gathered;
    }
    ERR_clear_error();
    renew_keys(l);
    while (put < bytes && put < AT_ONCE) {
        k = write_result(l, SSL_write(s->ssl, from + put, (int)wf_min_i64(bytes - put, 1 << 30)));
        s->unfinished = k <= 0;
        if (k <= 0)
            break;
        s->n_records += (k + GATHERED - 1) / GATHERED;
        put += k;
    }
    return put > 0 ? put : k;
}

static bool pending_tls(struct wf_link *l)
{
    bool any;

    pthread_mutex_lock(&l->out);
    any = SSL_has_pending(l->secure->ssl) || l->secure->told_later || !l->secure->dry;
    pthread_mutex_unlock(&l->out);
    return any;
}

const struct wf_wire wf_wire_tls = {
    .read = read_tls, .write = write_tls, .pending = pending_tls, .announces = true};
