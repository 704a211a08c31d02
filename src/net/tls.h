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

#endif
