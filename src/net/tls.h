/* tls.h - TLS 1.3 with certificates on both sides.
 *
 * Each task has a certificate of the job's authority, which names it: a URI "weft:ROLE/NAME" among
 * its subject alternative names. A peer without one, with one of another authority, or whose hello
 * differs from it, is refused. */
#ifndef WF_NET_TLS_H
#define WF_NET_TLS_H

#include "base/base.h"

struct wf_tls;

/* PEM texts. The certificate may be followed by others up to the authority's. */
struct wf_credentials {
    const char *authority, *certificate, *key;
};

weft_status wf_tls_new(weft_ctx *ctx, const struct wf_credentials *c, struct wf_tls **out);
/* The same for a side that listens: peers without a certificate are let in, as guests (role and
 * name are WF_GUEST). What they may do is up to who listens. */
#define WF_GUEST "guest"
weft_status wf_tls_new_open(weft_ctx *ctx, const struct wf_credentials *c, struct wf_tls **out);
/* A guest, whose peer must have a certificate of the authority with this fingerprint
 * (WF_FINGERPRINT bytes), which the peer sends. */
weft_status wf_tls_new_guest(weft_ctx *ctx, const unsigned char *pin, struct wf_tls **out);
void wf_tls_free(struct wf_tls *t); /* after the nodes that use it */
/* New connections use these from now on; those that exist are kept. Any thread. */
weft_status wf_tls_renew(struct wf_tls *t, const struct wf_credentials *c);

/* Options of OpenSSL that decide the speed, for a context of the benchmark, too. */
struct ssl_ctx_st;
void wf_tls_tune(struct ssl_ctx_st *c);

/* ---- certificates (cert.c) ------------------------------------------------------------------- */

/* An authority, and what it issues, as PEM texts that weft_text_free frees. */
struct wf_pem {
    char *certificate, *key;
};
weft_status wf_cert_authority(weft_ctx *ctx, int days, struct wf_pem *out);
weft_status wf_cert_issue(weft_ctx *ctx, const struct wf_pem *authority, const char *role,
                          const char *name, int days, struct wf_pem *out);
void wf_pem_free(weft_ctx *ctx, struct wf_pem *p);
/* A new key, and a request for a certificate for it (out->certificate), which only the holder of
 * the key can make. */
weft_status wf_cert_request(weft_ctx *ctx, struct wf_pem *out);
/* The certificate for a request: of this role and name, whatever the request says. WEFT_EPARSE: it
 * is not a valid request. */
weft_status wf_cert_sign(weft_ctx *ctx, const struct wf_pem *authority, const char *request,
                         const char *role, const char *name, int64_t seconds, char **out);
/* A file that its owner alone can read; one that exists is replaced at once. */
weft_status wf_secret_put(weft_ctx *ctx, const char *path, const char *text);
/* A file of a task in a folder: "ps/0" and ".key" are ps-0.key, readable by its owner alone. */
weft_status wf_cert_put(weft_ctx *ctx, const char *folder, const char *task, const char *suffix,
                        const char *text);
enum { WF_FINGERPRINT = 32 }; /* SHA-256 of a certificate */
/* Whether peers that trust the authority accept the certificate now; WEFT_EINVAL says why not. */
weft_status wf_cert_check(const char *authority, const char *certificate);
weft_status wf_cert_fingerprint(const char *certificate, unsigned char out[WF_FINGERPRINT]);
struct weft_authority;
const struct wf_pem *wf_authority_pem(const struct weft_authority *a);

#endif
