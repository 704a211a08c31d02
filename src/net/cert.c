/* cert.c - certificates: an authority, and what it issues. Keys are on the curve P-256. */
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "base/sys.h"
#include "net/tls.h"

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

static weft_status write_pem(weft_ctx *ctx, X509 *cert, EVP_PKEY *key, struct wf_pem *out)
{
    BIO *c = BIO_new(BIO_s_mem()), *k = BIO_new(BIO_s_mem());
    weft_status st = WEFT_OK;

    *out = (struct wf_pem){NULL, NULL};
    if (!c || !k || !PEM_write_bio_X509(c, cert) ||
        !PEM_write_bio_PrivateKey(k, key, NULL, NULL, 0, NULL, NULL))
        st = err_openssl("a certificate");
    if (!st) {
        out->certificate = text_of(ctx, c);
        out->key = text_of(ctx, k);
        if (!out->certificate || !out->key) {
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

/* issuer NULL: it signs itself. */
static weft_status make(weft_ctx *ctx, X509 *issuer, EVP_PKEY *issuer_key, const char *name,
                        const char *uri, int days, struct wf_pem *out)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    weft_status st = cert ? set_serial(ctx, cert) : err_openssl("a certificate");

    if (!st &&
        (!key || !X509_set_version(cert, 2) || !X509_gmtime_adj(X509_getm_notBefore(cert), -300) ||
         !X509_gmtime_adj(X509_getm_notAfter(cert), (long)days * 86400) ||
         !X509_set_pubkey(cert, key) || !describe(cert, issuer ? issuer : cert, name, uri) ||
         !X509_sign(cert, issuer ? issuer_key : key, EVP_sha256())))
        st = err_openssl("a certificate");
    if (!st)
        st = write_pem(ctx, cert, key, out);
    X509_free(cert);
    EVP_PKEY_free(key);
    return st;
}

weft_status wf_cert_authority(weft_ctx *ctx, int days, struct wf_pem *out)
{
    return make(ctx, NULL, NULL, "weft job authority", NULL, days, out);
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

weft_status wf_cert_issue(weft_ctx *ctx, const struct wf_pem *authority, const char *role,
                          const char *name, int days, struct wf_pem *out)
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
        st = make(ctx, issuer, key, name, uri, days, out);
    X509_free(issuer);
    EVP_PKEY_free(key);
    return st;
}
