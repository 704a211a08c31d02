/* weft/sys/lend.h - the data files of a job, for tasks that lack them.
 *
 * A task that has the files lends them: it answers requests for files that the job's data names
 * (data.train, data.validation, data.test), and for nothing else. A task that lacks them borrows:
 * what is missing on its machine is read from lenders as the data pipeline needs it, in blocks, and
 * a bounded number of bytes is kept. The samples are the same, to the last bit. */
#ifndef WEFT_SYS_LEND_H
#define WEFT_SYS_LEND_H

#include "weft/job.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_lend_opts {
    size_t size;
    /* Of a lender: where it listens, tls:HOST:PORT (port 0: one that is free), tcp:HOST:PORT or
     * uds:PATH. Of a borrower: addresses of lenders, separated by commas; one that does not answer
     * is left for the next. */
    const char *address;
    const char *task; /* who this is: "ps/0"; workers and evaluators can borrow */
    /* PEM files, for tls, as in weft_ps_opts. */
    const char *authority, *certificate, *key;
    int64_t cache_bytes; /* of a borrower: what it keeps in memory at most; 0: 64 MiB */
    double timeout_s;    /* of a borrower: until a read fails, over all lenders; 0: 30 */
} weft_lend_opts;

typedef struct weft_lender weft_lender;
/* Answers in a thread of its own until it is closed. bound (may be NULL): the address with the port
 * that was chosen. job must outlive it. */
WEFT_API weft_status weft_lend_open(weft_ctx *ctx, const weft_job *job, const weft_lend_opts *opts,
                                    char *bound, size_t n_bound, weft_lender **out);
/* Looks whether its certificate was renewed: to be called now and then. */
WEFT_API void weft_lend_tend(weft_lender *l);
WEFT_API void weft_lend_close(weft_lender *l);

typedef struct weft_borrower weft_borrower;
/* From now on, files of the job's data that are missing are read from lenders, by everything that
 * uses ctx: to be called before weft_job_open, and closed after weft_job_close. */
WEFT_API weft_status weft_borrow_open(weft_ctx *ctx, const weft_job *job,
                                      const weft_lend_opts *opts, weft_borrower **out);
WEFT_API void weft_borrow_close(weft_borrower *b);

#ifdef __cplusplus
}
#endif
#endif
