/* status.c - status names and the thread's error text. */
#include "base/base.h"

static _Thread_local char error_text[1024];

const char *weft_error(void)
{
    return error_text;
}

const char *weft_version(void)
{
    return WEFT_VERSION;
}

const char *weft_status_name(weft_status st)
{
    static const struct {
        weft_status st;
        const char *name;
    } names[] = {
        {WEFT_OK, "WEFT_OK"},
        {WEFT_EINVAL, "WEFT_EINVAL"},
        {WEFT_ESHAPE, "WEFT_ESHAPE"},
        {WEFT_EDTYPE, "WEFT_EDTYPE"},
        {WEFT_ENOENT, "WEFT_ENOENT"},
        {WEFT_EEXIST, "WEFT_EEXIST"},
        {WEFT_EPARSE, "WEFT_EPARSE"},
        {WEFT_ENOSUP, "WEFT_ENOSUP"},
        {WEFT_ERANGE, "WEFT_ERANGE"},
        {WEFT_ESTATE, "WEFT_ESTATE"},
        {WEFT_ENOMEM, "WEFT_ENOMEM"},
        {WEFT_ELIMIT, "WEFT_ELIMIT"},
        {WEFT_EIO, "WEFT_EIO"},
        {WEFT_ENOSPC, "WEFT_ENOSPC"},
        {WEFT_ENUMERIC, "WEFT_ENUMERIC"},
        {WEFT_EDATA, "WEFT_EDATA"},
        {WEFT_ECANCEL, "WEFT_ECANCEL"},
        {WEFT_EPEER, "WEFT_EPEER"},
        {WEFT_ETIME, "WEFT_ETIME"},
        {WEFT_EFENCED, "WEFT_EFENCED"},
        {WEFT_EBUG, "WEFT_EBUG"},
    };

    for (int i = 0; i < WF_COUNT(names); i++)
        if (names[i].st == st)
            return names[i].name;
    return "unknown status";
}

/* Sets the text. It may quote names and values from files. */
static void set_text(const char *raw)
{
    weft_printable(raw, -1, error_text, sizeof error_text);
}

/* An argument may be the text of the error before: the new one has memory of its own until it is
 * whole. */
weft_status wf_errv(weft_status st, const char *fmt, va_list args)
{
    char raw[sizeof error_text];

    wf_vsnprintf(raw, sizeof raw, fmt, args);
    set_text(raw);
    return st;
}

weft_status wf_err(weft_status st, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    wf_errv(st, fmt, args);
    va_end(args);
    return st;
}

weft_status wf_err_wrap(weft_status st, const char *fmt, ...)
{
    char raw[sizeof error_text];
    va_list args;
    int n;

    if (!st)
        return st;
    va_start(args, fmt);
    n = wf_vsnprintf(raw, sizeof raw, fmt, args);
    va_end(args);
    if (n >= 0 && n < (int)sizeof raw - 3)
        wf_snprintf(raw + n, sizeof raw - (size_t)n, ": %s", error_text);
    set_text(raw);
    return st;
}

void wf_err_set(const char *text)
{
    char raw[sizeof error_text];

    wf_snprintf(raw, sizeof raw, "%s", text);
    set_text(raw);
}
