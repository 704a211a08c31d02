/* lend.h - data files of a job, read by one task for another that lacks them.
 *
 * A lender answers requests for files that the job's data names, and for nothing else. A borrower
 * is a file system (base.h): what is missing here and is named by the job is read from lenders, in
 * blocks, which it keeps up to a number of bytes. Readers of data do not know of it: they compute
 * the same samples from the same bytes.
 *
 * Paths between the two are relative to the job file's directory, where they are in the job. */
#ifndef WF_CLUSTER_LEND_H
#define WF_CLUSTER_LEND_H

#include "base/base.h"

enum {
    WF_LEND_VERSION = 1,
    WF_LEND_KIND = 0x4c45,     /* of messages */
    WF_LEND_BLOCK = 256 << 10, /* of a file, at most in one answer */
    WF_LEND_NAMES = 16 << 20,  /* of a list of names, in bytes */
    WF_LEND_PATH = 4096,
    WF_LEND_REQUEST = 14, /* version, what, offset, bytes; then the path */
    WF_LEND_ANSWER = 25   /* result, size, time, flags; then bytes or names as the payload */
};
enum wf_lend_what { WF_LEND_STAT, WF_LEND_READ, WF_LEND_LIST, WF_LEND_GLOB };

/* The files of a job: patterns and directories, as this process sees them. */
struct wf_lend_files {
    const char *root; /* the job file's directory, or "" */
    int n;
    const char *const *pattern;
};

/* Whether the job's data names the file, or a directory above it. ".." never passes. */
bool wf_lend_names(const struct wf_lend_files *f, const char *path);
/* Between a path of this process and one relative to the root. false: too long. */
bool wf_lend_outward(const struct wf_lend_files *f, const char *path, char out[WF_LEND_PATH]);
bool wf_lend_inward(const struct wf_lend_files *f, const char *path, char out[WF_LEND_PATH]);

struct wf_tls;

struct wf_lend_opts {
    const char *task;           /* who this is: "ps/0" */
    struct wf_tls *tls;         /* for tls; borrowed */
    struct wf_lend_files files; /* the texts stay until it is closed */
};
struct wf_lender;
weft_status wf_lender_open(weft_ctx *ctx, const struct wf_lend_opts *o, const char *address,
                           char *bound, size_t n_bound, struct wf_lender **out);
void wf_lender_close(struct wf_lender *l);
/* One request, without a network: fills head (WF_LEND_ANSWER bytes), and appends the payload. */
void wf_lend_answer(weft_ctx *ctx, const struct wf_lend_files *files, const unsigned char *request,
                    int64_t n, unsigned char *head, struct wf_buf *payload);

struct wf_borrow_opts {
    const char *task;
    struct wf_tls *tls;
    struct wf_lend_files files;
    int n_lenders;
    const char *const *address; /* tried in turn */
    int64_t cache_bytes;        /* 0: 64 MiB */
    int64_t timeout_ns;         /* of one read, over all lenders; 0: 30 s */
    void (*before)(void *arg);  /* called before a lender is connected to; may be NULL */
    void *before_arg;
};
struct wf_borrower;
/* ctx->fs is the borrower's until it is closed. */
weft_status wf_borrow_open(weft_ctx *ctx, const struct wf_borrow_opts *o, struct wf_borrower **out);
void wf_borrow_close(struct wf_borrower *b);

struct wf_borrowed {
    int64_t bytes, requests, cached, moved; /* cached: bytes that are kept; moved: to another
                                             * lender */
};
struct wf_borrowed wf_borrow_counts(struct wf_borrower *b);

#endif
