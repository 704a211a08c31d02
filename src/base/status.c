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

/* The text may quote names and values from files. */
static void make_printable(void)
{
    char raw[sizeof error_text];

    memcpy(raw, error_text, sizeof raw);
    weft_printable(raw, -1, error_text, sizeof error_text);
}

weft_status wf_errv(weft_status st, const char *fmt, va_list args)
{
    wf_vsnprintf(error_text, sizeof error_text, fmt, args);
    make_printable();
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
    char old[sizeof error_text];
    va_list args;
    int n;

    if (!st)
        return st;
    memcpy(old, error_text, sizeof old);
    va_start(args, fmt);
    n = wf_vsnprintf(error_text, sizeof error_text, fmt, args);
    va_end(args);
    if (n >= 0 && n < (int)sizeof error_text - 3)
        wf_snprintf(error_text + n, sizeof error_text - (size_t)n, ": %s", old);
    make_printable();
    return st;
}

void wf_err_set(const char *text)
{
    wf_snprintf(error_text, sizeof error_text, "%s", text);
    make_printable();
}
