/* fake.h - a device for tests, with memory that the host cannot touch.
 *
 * Its addresses are mapped without access: whoever reads or writes one outside of the device's own
 * work crashes. Its work is done by a thread for each stream, late: after seeded delays, or (lazy)
 * not before somebody waits. Its kernels are the reference kernels; an operand that is not in one
 * live allocation of the device is an error. */
#ifndef WEFT_TEST_FAKE_H
#define WEFT_TEST_FAKE_H

#include "weft/sys/device.h"

struct fake {
    /* what it is to do; all zero: lazy, one device, with capture */
    uint64_t delays; /* a seed: works at once, after seeded delays; 0: lazy */
    int n_devices;   /* 0: 1 */
    int64_t memory;  /* bytes; 0: 1 GiB */
    bool no_capture;
    bool no_peers; /* nothing is copied from one of its devices to another */
    bool words;    /* a lookup reports a bad id by words of trouble alone, as hardware would */
    const char *no_kernel; /* ops without a kernel, each between spaces: " exp matmul " */
    /* faults: the n-th (from 1) is left out */
    int drop_copy, drop_wait, drop_kernel;
    int drop_order;   /* of the waits, one of a stream for another one */
    int drop_read;    /* likewise, one of the host after a copy to its memory */
    int drop_landing; /* likewise, one of the host for an event */
    int fail_call;    /* the n-th call that can fail does */
    /* what it did */
    _Atomic int n_copies, n_peers, n_waits, n_orders, n_reads, n_landings, n_kernels, n_replays,
        n_calls, n_streams;
    _Atomic int n_unpinned;              /* copies from and to host memory that is not pinned */
    _Atomic int64_t allocated;           /* bytes in use */
    _Atomic int64_t bytes_in, bytes_out; /* copied from and to the host */
    size_t dropped;                      /* bytes of the copy that was left out */
    const char *dropped_op;              /* and the kernel */
    weft_device_driver driver;           /* filled by fake_init */
};

/* Fills in f->driver, "fake". */
void fake_init(struct fake *f);

/* Contexts that tests open without devices are on this device if WEFT_TEST_DEVICE names one:
 * "fake:0" (fake_ctx.c, by the linker's --wrap). */

#endif
