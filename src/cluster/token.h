/* token.h - what lets a process without a certificate join a job: one line of text.
 *
 *   weft-token-1 ROLE ID AUTHORITY SECRET
 *
 * ID (8 bytes) finds the token, AUTHORITY (32) is the fingerprint of the job's authority, SECRET
 * (32) proves that its holder was given it; all three as hex. */
#ifndef WF_CLUSTER_TOKEN_H
#define WF_CLUSTER_TOKEN_H

#include "base/base.h"
#include "net/tls.h"

enum { WF_TOKEN_ID = 8, WF_TOKEN_SECRET = 32, WF_TOKEN_TEXT = 256 };

struct wf_token {
    char role[16];
    unsigned char id[WF_TOKEN_ID], authority[WF_FINGERPRINT], secret[WF_TOKEN_SECRET];
};

/* A new one; WEFT_EINVAL: the role has characters that a role cannot have. */
weft_status wf_token_new(weft_ctx *ctx, const char *role,
                         const unsigned char authority[WF_FINGERPRINT], struct wf_token *out);
void wf_token_write(const struct wf_token *t, char out[WF_TOKEN_TEXT]);
/* WEFT_EPARSE says what is wrong, and never what the secret is. */
weft_status wf_token_parse(const char *text, int64_t n, struct wf_token *out);

#endif
