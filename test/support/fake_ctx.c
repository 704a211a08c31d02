/* fake_ctx.c - runs whole test programs on the fake device: if WEFT_TEST_DEVICE is set
 * ("fake:0"), contexts are on it, except those with drivers of their own and those that ask for
 * exactly cpu:0. Groups of cores stay. Portable kernels, so that updates by the merge layer have
 * the bits of the device's. The linker's --wrap puts this between a test, or the library, and
 * weft_ctx_new. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/fake.h"

weft_status __real_weft_ctx_new(const weft_ctx_opts *opts, weft_ctx **out);
weft_status __wrap_weft_ctx_new(const weft_ctx_opts *opts, weft_ctx **out);

/* One for all contexts of the program: it only counts. */
static struct fake shared;
static const weft_device_driver *const drivers[] = {&shared.driver};

weft_status __wrap_weft_ctx_new(const weft_ctx_opts *opts, weft_ctx **out)
{
    const char *device = getenv("WEFT_TEST_DEVICE");
    weft_ctx_opts o = {.size = sizeof o};
    char list[256];

    if (!device || (opts && opts->size > sizeof o) || (opts && opts->size < sizeof opts->size))
        return __real_weft_ctx_new(opts, out);
    if (opts)
        memcpy(&o, opts, opts->size);
    o.size = sizeof o;
    if ((o.devices && strcmp(o.devices, "cpu:0") == 0) || o.n_drivers)
        return __real_weft_ctx_new(opts, out);
    if (!shared.driver.kind) {
        fake_init(&shared);
        shared.n_devices = 4;
    }
    snprintf(list, sizeof list, "%s%s%s", o.devices ? o.devices : "", o.devices ? ", " : "",
             device);
    o.devices = list;
    if (o.simd == WEFT_SIMD_AUTO)
        o.kernels = WEFT_KERNELS_PORTABLE;
    o.n_drivers = 1;
    o.drivers = drivers;
    return __real_weft_ctx_new(&o, out);
}
