/* cert.c - certificates: an authority, and what it issues. Keys are on the curve P-256. */
#include <errno.h>
#include <fcntl.h>

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/sys.h"
#include "net/tls.h"
#include "weft/sys/net.h"

enum { DAY = 86400 };

static weft_status err_openssl(const char *what)
{
    unsigned long e = ERR_get_error();
    const char *reason = e ? ERR_reason_error_string(e) : NULL;

    ERR_clear_error();
    return wf_err(WEFT_EIO, "%s: %s", what, reason ? reason : "OpenSSL has failed");
}

void wf_pem_free(weft_ctx *ctx, struct wf_pem *p)
{
    wf_free(ctx, p->certificate);
    wf_free(ctx, p->key);
    *p = (struct wf_pem){NULL, NULL};
}

/* ---- text ------------------------------------------------------------------------------------ */

static char *text_of(weft_ctx *ctx, BIO *b)
{
    char *from, *to;
    long n = BIO_get_mem_data(b, &from);

    to = n > 0 ? wf_alloc(ctx, (size_t)n + 1) : NULL;
    if (to)
        memcpy(to, from, (size_t)n);
    return to;
}

/* key NULL: the certificate alone. */
static weft_status write_pem(weft_ctx *ctx, X509 *cert, EVP_PKEY *key, struct wf_pem *out)
{
    BIO *c = BIO_new(BIO_s_mem()), *k = BIO_new(BIO_s_mem());
    weft_status st = WEFT_OK;

    *out = (struct wf_pem){NULL, NULL};
    if (!c || !k || !PEM_write_bio_X509(c, cert) ||
        (key && !PEM_write_bio_PrivateKey(k, key, NULL, NULL, 0, NULL, NULL)))
        st = err_openssl("a certificate");
    if (!st) {
        out->certificate = text_of(ctx, c);
        out->key = key ? text_of(ctx, k) : NULL;
        if (!out->certificate || (key && !out->key)) {
            wf_pem_free(ctx, out);
            st = wf_err_nomem(ctx, 0, "a certificate");
        }
    }
    BIO_free(c);
    BIO_free(k);
    return st;
}

static weft_status read_pem(const struct wf_pem *p, X509 **cert, EVP_PKEY **key)
{
    BIO *c = BIO_new_mem_buf(p->certificate, -1), *k = BIO_new_mem_buf(p->key, -1);

    *cert = c ? PEM_read_bio_X509(c, NULL, NULL, NULL) : NULL;
    *key = k ? PEM_read_bio_PrivateKey(k, NULL, NULL, NULL) : NULL;
    BIO_free(c);
    BIO_free(k);
    return *cert && *key ? WEFT_OK : err_openssl("the authority's certificate or key");
}

/* ---- issuing --------------------------------------------------------------------------------- */

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX v3;
    X509_EXTENSION *e;
    bool ok;

    X509V3_set_ctx_nodb(&v3);
    X509V3_set_ctx(&v3, issuer, cert, NULL, NULL, 0);
    e = X509V3_EXT_conf_nid(NULL, &v3, nid, value);
    ok = e && X509_add_ext(cert, e, -1);
    X509_EXTENSION_free(e);
    return ok;
}

/* uri NULL: an authority. */
static bool describe(X509 *cert, X509 *issuer, const char *name, const char *uri)
{
    X509_NAME *subject = X509_get_subject_name(cert);

    if (!X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)name, -1,
                                    -1, 0) ||
        !X509_set_issuer_name(cert, X509_get_subject_name(issuer)))
        return false;
    if (!uri)
        return add_extension(cert, issuer, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
               add_extension(cert, issuer, NID_key_usage, "critical,keyCertSign,cRLSign");
    return add_extension(cert, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
           add_extension(cert, issuer, NID_key_usage, "critical,digitalSignature") &&
           add_extension(cert, issuer, NID_ext_key_usage, "serverAuth,clientAuth") &&
           add_extension(cert, issuer, NID_subject_alt_name, uri);
}

static weft_status set_serial(weft_ctx *ctx, X509 *cert)
{
    unsigned char bytes[16];
    BIGNUM *n;
    weft_status st = wf_entropy(ctx, bytes, sizeof bytes);

    if (st)
        return st;
    bytes[0] &= 0x7f;
    n = BN_bin2bn(bytes, sizeof bytes, NULL);
    if (!n || !BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert)))
        st = err_openssl("a certificate");
    BN_free(n);
    return st;
}

/* issuer NULL: it signs itself. theirs: the key that the certificate is for, of which only the
 * public part is known; NULL: a new one. */
static weft_status make(weft_ctx *ctx, X509 *issuer, EVP_PKEY *issuer_key, EVP_PKEY *theirs,
                        const char *name, const char *uri, int64_t seconds, struct wf_pem *out)
{
    EVP_PKEY *own = theirs ? NULL : EVP_EC_gen("P-256"), *key = theirs ? theirs : own;
    X509 *cert = X509_new();
    weft_status st = cert ? set_serial(ctx, cert) : err_openssl("a certificate");

    if (!st &&
        (!key || !X509_set_version(cert, 2) || !X509_gmtime_adj(X509_getm_notBefore(cert), -300) ||
         !X509_gmtime_adj(X509_getm_notAfter(cert), (long)seconds) || !X509_set_pubkey(cert, key) ||
         !describe(cert, issuer ? issuer : cert, name, uri) ||
         !X509_sign(cert, issuer ? issuer_key : key, EVP_sha256())))
        st = err_openssl("a certificate");
    if (!st)
        st = write_pem(ctx, cert, own, out);
    X509_free(cert);
    EVP_PKEY_free(own);
    return st;
}

weft_status wf_cert_authority(weft_ctx *ctx, int days, struct wf_pem *out)
{
    return make(ctx, NULL, NULL, NULL, "weft job authority", NULL, (int64_t)days * DAY, out);
}

/* Letters, digits and a few others: nothing that a text of extensions could mistake. */
static bool is_plain(const char *text, const char *others)
{
    for (const char *c = text; *c; c++)
        if (!((*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || (*c >= '0' && *c <= '9') ||
              strchr(others, *c)))
            return false;
    return *text;
}

/* theirs: as in make. */
static weft_status issue(weft_ctx *ctx, const struct wf_pem *authority, EVP_PKEY *theirs,
                         const char *role, const char *name, int64_t seconds, struct wf_pem *out)
{
    char uri[128];
    X509 *issuer = NULL;
    EVP_PKEY *key = NULL;
    weft_status st = WEFT_OK;

    if (!is_plain(role, "-_") || !is_plain(name, "-_./") || strlen(role) > 15 || strlen(name) > 63)
        return wf_err(WEFT_EINVAL,
                      "role '%s', name '%s': letters, digits, '-' and '_' are allowed, in a name "
                      "also '.' and '/'; at most 15 and 63",
                      role, name);
    wf_snprintf(uri, sizeof uri, "URI:weft:%s/%s", role, name);
    st = read_pem(authority, &issuer, &key);
    if (!st)
        st = make(ctx, issuer, key, theirs, name, uri, seconds, out);
    X509_free(issuer);
    EVP_PKEY_free(key);
    return st;
}

weft_status wf_cert_issue(weft_ctx *ctx, const struct wf_pem *authority, const char *role,
                          const char *name, int days, struct wf_pem *out)
{
    return issue(ctx, authority, NULL, role, name, (int64_t)days * DAY, out);
}

/* ---- requests -------------------------------------------------------------------------------- */

weft_status wf_cert_request(weft_ctx *ctx, struct wf_pem *out)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509_REQ *req = X509_REQ_new();
    BIO *r = BIO_new(BIO_s_mem()), *k = BIO_new(BIO_s_mem());
    weft_status st = WEFT_OK;

    *out = (struct wf_pem){NULL, NULL};
    if (!key || !req || !r || !k || !X509_REQ_set_pubkey(req, key) ||
        !X509_REQ_sign(req, key, EVP_sha256()) || !PEM_write_bio_X509_REQ(r, req) ||
        !PEM_write_bio_PrivateKey(k, key, NULL, NULL, 0, NULL, NULL))
        st = err_openssl("a request for a certificate");
    if (!st) {
        out->certificate = text_of(ctx, r);
        out->key = text_of(ctx, k);
        if (!out->certificate || !out->key) {
            wf_pem_free(ctx, out);
            st = wf_err_nomem(ctx, 0, "a request for a certificate");
        }
    }
    BIO_free(r);
    BIO_free(k);
    X509_REQ_free(req);
    EVP_PKEY_free(key);
    return st;
}

weft_status wf_cert_sign(weft_ctx *ctx, const struct wf_pem *authority, const char *request,
                         const char *role, const char *name, int64_t seconds, char **out)
{
    BIO *b = BIO_new_mem_buf(request, -1);
    X509_REQ *req = b ? PEM_read_bio_X509_REQ(b, NULL, NULL, NULL) : NULL;
    EVP_PKEY *key = req ? X509_REQ_get0_pubkey(req) : NULL;
    struct wf_pem made = {NULL, NULL};
    weft_status st = WEFT_OK;

    if (!key || X509_REQ_verify(req, key) != 1) {
        ERR_clear_error();
        st = wf_err(WEFT_EPARSE, "the request for a certificate is not valid");
    } else if (!EVP_PKEY_is_a(key, "EC") || EVP_PKEY_get_bits(key) != 256) {
        st = wf_err(WEFT_EPARSE, "the request for a certificate has a key of another kind");
    }
    if (!st)
        st = issue(ctx, authority, key, role, name, seconds, &made);
    if (!st)
        *out = made.certificate;
    X509_REQ_free(req);
    BIO_free(b);
    return st;
}

weft_status wf_cert_fingerprint(const char *certificate, unsigned char out[WF_FINGERPRINT])
{
    BIO *b = BIO_new_mem_buf(certificate, -1);
    X509 *x = b ? PEM_read_bio_X509(b, NULL, NULL, NULL) : NULL;
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    bool ok = x && X509_digest(x, EVP_sha256(), hash, &n) && n == WF_FINGERPRINT;

    X509_free(x);
    BIO_free(b);
    if (!ok)
        return err_openssl("the authority's certificate");
    memcpy(out, hash, WF_FINGERPRINT);
    return WEFT_OK;
}

/* All certificates of a text; NULL if there is none. */
static STACK_OF(X509) * read_chain(const char *pem)
{
    BIO *b = BIO_new_mem_buf(pem, -1);
    STACK_OF(X509) *chain = sk_X509_new_null();
    X509 *x;

    while (b && chain && (x = PEM_read_bio_X509(b, NULL, NULL, NULL)))
        if (!sk_X509_push(chain, x))
            X509_free(x);
    BIO_free(b);
    if (chain && sk_X509_num(chain) > 0)
        return chain;
    sk_X509_free(chain);
    return NULL;
}

static weft_status why_not(int code)
{
    switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return wf_err(WEFT_EINVAL, "it has expired; make new ones with `weft cert`");
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return wf_err(WEFT_EINVAL, "it is not valid yet: is the clock of this machine right?");
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        return wf_err(WEFT_EINVAL,
                      "it was made by another authority: take all files from one `weft cert`");
    default: return wf_err(WEFT_EINVAL, "%s", X509_verify_cert_error_string(code));
    }
}

weft_status wf_cert_check(const char *authority, const char *certificate)
{
    STACK_OF(X509) *trusted = read_chain(authority), *own = read_chain(certificate);
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *c = X509_STORE_CTX_new();
    weft_status st = WEFT_OK;

    if (!trusted || !own)
        st = err_openssl(own ? "the authority's certificate" : "the certificate");
    else if (!store || !c || X509_STORE_add_cert(store, sk_X509_value(trusted, 0)) != 1 ||
             X509_STORE_CTX_init(c, store, sk_X509_value(own, 0), own) != 1)
        st = err_openssl("certificates");
    else if (X509_verify_cert(c) != 1)
        st = why_not(X509_STORE_CTX_get_error(c));
    X509_STORE_CTX_free(c);
    X509_STORE_free(store);
    sk_X509_pop_free(own, X509_free);
    sk_X509_pop_free(trusted, X509_free);
    ERR_clear_error();
    return st;
}

/* ---- files ----------------------------------------------------------------------------------- */

weft_status wf_secret_put(weft_ctx *ctx, const char *path, const char *text)
{
    const struct wf_fs *fs = ctx->fs;
    int64_t length = (int64_t)strlen(text), rc;
    char fresh[1024];
    int n = wf_snprintf(fresh, sizeof fresh, "%s.new", path), fd;

    if (n < 0 || n >= (int)sizeof fresh)
        return wf_err(WEFT_EINVAL, "the path is too long: %.200s…", path);
    fs->unlink(fs->arg, fresh); /* of a process that was killed; no one else's is written to */
    fd = wf_file_open_out(ctx, fresh, O_WRONLY | O_CREAT | O_EXCL, 0600);
    if (fd < 0)
        return wf_file_err(fd, fresh, "cannot create");
    rc = fs->write(fs->arg, fd, text, length);
    if (rc == length)
        rc = fs->sync(fs->arg, fd);
    else if (rc >= 0)
        rc = -ENOSPC;
    fs->close(fs->arg, fd);
    if (!rc)
        rc = fs->rename(fs->arg, fresh, path);
    if (rc)
        fs->unlink(fs->arg, fresh);
    return rc ? wf_file_err(rc, path, "cannot write") : WEFT_OK;
}

weft_status wf_cert_put(weft_ctx *ctx, const char *folder, const char *task, const char *suffix,
                        const char *text)
{
    char path[512];
    int n = wf_snprintf(path, sizeof path, "%s/%s%s", folder, task, suffix);

    if (n < 0 || n >= (int)sizeof path)
        return wf_err(WEFT_EINVAL, "the path of a certificate is too long: %s/%s", folder, task);
    for (char *p = path + strlen(folder) + 1; *p; p++)
        *p = *p == '/' ? '-' : *p;
    return wf_secret_put(ctx, path, text);
}

static weft_status issue_task(weft_ctx *ctx, const struct wf_pem *authority, const char *folder,
                              const char *task, int64_t seconds)
{
    size_t length = strcspn(task, "/");
    struct wf_pem own;
    char role[16];
    weft_status st;

    if (length == 0 || length >= sizeof role || !task[length])
        return wf_err(WEFT_EINVAL, "'%s' is not a task: ROLE/NUMBER", task);
    wf_snprintf(role, sizeof role, "%.*s", (int)length, task);
    st = issue(ctx, authority, NULL, role, task, seconds, &own);
    if (st)
        return st;
    st = wf_cert_put(ctx, folder, task, ".key", own.key);
    if (!st)
        st = wf_cert_put(ctx, folder, task, ".pem", own.certificate);
    wf_pem_free(ctx, &own);
    return st;
}

weft_status weft_net_certify(weft_ctx *ctx, const char *folder, int n_tasks,
                             const char *const *tasks, int days)
{
    struct wf_pem authority;
    weft_status st = wf_cert_authority(ctx, days, &authority);

    if (st)
        return st;
    st = wf_cert_put(ctx, folder, "authority", ".pem", authority.certificate);
    for (int i = 0; i < n_tasks && !st; i++)
        st = issue_task(ctx, &authority, folder, tasks[i], (int64_t)days * DAY);
    wf_pem_free(ctx, &authority);
    return st;
}

/* ---- authorities that are kept --------------------------------------------------------------- */

struct weft_authority {
    weft_ctx *ctx;
    struct wf_pem pem;
};

weft_status weft_authority_new(weft_ctx *ctx, int days, weft_authority **out)
{
    weft_authority *a = wf_alloc(ctx, sizeof *a);
    weft_status st =
        a ? wf_cert_authority(ctx, days, &a->pem) : wf_err_nomem(ctx, sizeof *a, "an authority");

    if (st) {
        wf_free(ctx, a);
        return st;
    }
    a->ctx = ctx;
    *out = a;
    return WEFT_OK;
}

void weft_authority_free(weft_authority *a)
{
    if (!a)
        return;
    OPENSSL_cleanse(a->pem.key, strlen(a->pem.key));
    wf_pem_free(a->ctx, &a->pem);
    wf_free(a->ctx, a);
}

const struct wf_pem *wf_authority_pem(const weft_authority *a)
{
    return &a->pem;
}

weft_status weft_authority_issue(weft_authority *a, const char *folder, const char *task,
                                 int64_t seconds)
{
    weft_status st = wf_cert_put(a->ctx, folder, "authority", ".pem", a->pem.certificate);

    return st ? st : issue_task(a->ctx, &a->pem, folder, task, seconds);
}
