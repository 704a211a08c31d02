/* faultsys.h - the seam of the network for tests: counts calls, fails the n-th, cuts reads and
 * writes short, and interrupts them. Any number of threads. */
#ifndef WEFT_TEST_FAULTSYS_H
#define WEFT_TEST_FAULTSYS_H

#include "base/sys.h"

enum { FAULTSYS_FDS = 256 };

struct faultsys {
    struct wf_sys sys;
    _Atomic int64_t n_calls;
    _Atomic int64_t fail_at;  /* the call (1, 2, …) that fails; 0: none */
    _Atomic int which;        /* of the errors that this call can end with */
    _Atomic bool happened;    /* it failed */
    const char *_Atomic what; /* its name */
    _Atomic int error;
    int64_t max_io; /* bytes that a read or write moves at most; 0: all */
    int every;      /* each so many-th read or write is interrupted or not ready; 0: none */
    _Atomic int64_t n_io, n_waits; /* waits are counted by themselves */
    _Atomic int64_t n_open;        /* descriptors that are open */
    struct {
        _Atomic int set; /* of epoll, or 0 */
        struct epoll_event e;
    } watched[FAULTSYS_FDS]; /* by descriptor */
};

void faultsys_init(struct faultsys *f); /* f->sys is then a seam; the options may be set */
/* How many different errors any call has at most. */
int faultsys_max_errors(void);

#endif
