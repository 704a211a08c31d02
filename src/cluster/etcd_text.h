/* etcd_text.h - the texts of etcd: where it is, transactions as JSON, and what it answers. No
 * connection is made here. */
#ifndef WF_CLUSTER_ETCD_TEXT_H
#define WF_CLUSTER_ETCD_TEXT_H

#include "base/base.h"

#define WF_ETCD_SCHEME "etcd://"      /* HTTP */
#define WF_ETCD_SCHEME_TLS "etcds://" /* HTTPS */

enum {
    WF_ETCD_ENDPOINTS = 8,
    WF_ETCD_ADDRESS = 264,
    WF_ETCD_PREFIX = 160,
    WF_ETCD_KEY = WF_ETCD_PREFIX + 160,
    WF_ETCD_RANGES = 4, /* of an answer, */
    WF_ETCD_PAIRS = 64, /* in all of them together */
    WF_ETCD_MAX_ANSWER = 24 << 20
};

/* "etcd://HOST:PORT,HOST:PORT/PREFIX"; the port is 2379 by default, the prefix "weft". */
struct wf_etcd_where {
    bool tls;
    int n_endpoints;
    char endpoint[WF_ETCD_ENDPOINTS][WF_ETCD_ADDRESS]; /* host:port */
    char prefix[WF_ETCD_PREFIX];                       /* without a slash at its ends */
};

/* Whether a store's name is one of etcd, valid or not. */
bool wf_etcd_named(const char *text);
/* WEFT_EPARSE says what is wrong. */
weft_status wf_etcd_where_parse(const char *text, struct wf_etcd_where *out);
/* Whether every endpoint is this machine, so that no other one can read what is sent. */
bool wf_etcd_is_local(const struct wf_etcd_where *w);

/* A transaction: compare, then what is done if all comparisons hold, then what is done if not.
 *   wf_etcd_txn_begin(&x, ctx);
 *   wf_etcd_txn_want(…); …             keys that must (not) be
 *   wf_etcd_txn_then(&x); wf_etcd_txn_put(…); …
 *   wf_etcd_txn_else(&x); wf_etcd_txn_range(…); …
 *   st = wf_etcd_txn_end(&x);          x.b has the text, to be freed
 * `end` NULL: one key, otherwise all from `key` up to `end`. */
struct wf_etcd_txn {
    struct wf_buf b;
    int n; /* of the part that is being written */
};

void wf_etcd_txn_begin(struct wf_etcd_txn *x, weft_ctx *ctx);
void wf_etcd_txn_want(struct wf_etcd_txn *x, const char *key, const char *end, bool there);
void wf_etcd_txn_then(struct wf_etcd_txn *x);
void wf_etcd_txn_else(struct wf_etcd_txn *x);
void wf_etcd_txn_put(struct wf_etcd_txn *x, const char *key, const void *head, int64_t n_head,
                     const void *body, int64_t n_body);
void wf_etcd_txn_delete(struct wf_etcd_txn *x, const char *key, const char *end);
/* The last ones first; limit 0: all. */
void wf_etcd_txn_range(struct wf_etcd_txn *x, const char *key, const char *end, int limit,
                       bool keys_only);
weft_status wf_etcd_txn_end(struct wf_etcd_txn *x);

struct wf_etcd_pair {
    const char *key, *value; /* a NUL follows each */
    int64_t n_key, n_value;
};

/* What a transaction has answered: its ranges, in their order. */
struct wf_etcd_answer {
    bool succeeded;
    int n_ranges;
    struct {
        int n;
        struct wf_etcd_pair *pair;
    } range[WF_ETCD_RANGES];
    struct wf_etcd_pair pair[WF_ETCD_PAIRS];
    struct wf_buf bytes;
};

/* WEFT_EPARSE if it is not the answer of a transaction. Freed in any case. */
weft_status wf_etcd_answer_read(weft_ctx *ctx, const char *text, int64_t n,
                                struct wf_etcd_answer *out);
void wf_etcd_answer_free(struct wf_etcd_answer *a);
/* The message of an answer that is an error, printable and short; "" if there is none. */
void wf_etcd_error_read(const char *text, int64_t n, char to[160]);

#endif
