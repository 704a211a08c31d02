/* opts.c - structs whose first field is their size: options, descriptions and results that callers
 * own.
 *
 * Such a struct only grows at its end, and zero means the default, so a program that was compiled
 * against an older header gives fewer bytes and means the defaults for the rest. No byte beyond the
 * caller's size is read or written: code works on a copy of today's size. */
#include "base/base.h"

static weft_status check_size(size_t size, size_t today, const char *name)
{
    if (size < sizeof size)
        return wf_err(WEFT_EINVAL,
                      "%s: its size is %zu: initialize it with WEFT_OPTS(%s, ...), or set .size = "
                      "sizeof(%s)",
                      name, size, name, name);
    if (size > today)
        return wf_err(WEFT_EINVAL,
                      "%s: its size is %zu, but %zu in this library (weft %s): the program was "
                      "compiled against a newer weft than the library",
                      name, size, today, weft_version());
    return WEFT_OK;
}

weft_status wf_opts_take(void *copy, size_t today, const void *opts, const char *name)
{
    size_t size = today;
    weft_status st = WEFT_OK;

    memset(copy, 0, today);
    if (opts) {
        memcpy(&size, opts, sizeof size);
        st = check_size(size, today, name);
        if (!st)
            memcpy(copy, opts, size);
    }
    memcpy(copy, &today, sizeof today);
    return st;
}

weft_status wf_opts_take_at(void *copy, size_t today, const void *array, int64_t i,
                            const char *name)
{
    size_t stride, size;
    const char *at;
    weft_status st;

    memset(copy, 0, today);
    if (!array)
        return wf_err(WEFT_EINVAL, "%s: the array is NULL", name);
    memcpy(&stride, array, sizeof stride);
    st = check_size(stride, today, name);
    if (st)
        return st;
    at = (const char *)array + (size_t)i * stride;
    memcpy(&size, at, sizeof size);
    if (size != stride)
        return size < sizeof size
                   ? check_size(size, today, name)
                   : wf_err(WEFT_EINVAL,
                            "%s: the size of element %lld is %zu, that of the first is %zu: all "
                            "elements of an array have the same size",
                            name, (long long)i, size, stride);
    return wf_opts_take(copy, today, at, name);
}

weft_status wf_opts_give(void *out, size_t size, const void *full, size_t today, const char *name)
{
    weft_status st = check_size(size, today, name);

    if (st)
        return st;
    memcpy(out, full, size);
    memcpy(out, &size, sizeof size);
    return WEFT_OK;
}
