/* open.c - detects the format of a file, and opens it with that format's defaults. */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/stat.h>

#include "data/file/files.h"
#include "data/source/formats.h"

static const struct wf_format formats[] = {
#define FORMAT(name, suffixes, takes, looks, writes, doc) \
    {#name, suffixes, takes, doc, looks, wf_open_##name, writes},
#include "data/source/formats.def"
#undef FORMAT
};

/* Those that have a constant come first, in its order. */
enum {
#define FORMAT(name, suffixes, takes, looks, writes, doc) ROW_##name,
#include "data/source/formats.def"
#undef FORMAT
};
_Static_assert(ROW_tfrecord + 1 == WEFT_FORMAT_TFRECORD && ROW_csv + 1 == WEFT_FORMAT_CSV &&
                   ROW_images + 1 == WEFT_FORMAT_IMAGES && ROW_bytes + 1 == WEFT_FORMAT_BYTES,
               "formats.def is in the order of weft_format");

const struct wf_format *wf_format_row(weft_format f)
{
    int i = (int)f - 1;

    return i >= 0 && i < WF_COUNT(formats) ? &formats[i] : NULL;
}

bool weft_format_at(int i, const char **name, const char **suffixes, const char **takes,
                    const char **doc)
{
    if (i < 0 || i >= WF_COUNT(formats))
        return false;
    if (name)
        *name = formats[i].name;
    if (suffixes)
        *suffixes = formats[i].sink ? formats[i].suffixes : "";
    if (takes)
        *takes = formats[i].takes;
    if (doc)
        *doc = formats[i].doc;
    return true;
}

const char *weft_format_list(void)
{
    return ""
#define FORMAT(name, suffixes, takes, looks, writes, doc) #name " "
#include "data/source/formats.def"
#undef FORMAT
           "(default: by content)";
}

const char *weft_format_name(weft_format f)
{
    const struct wf_format *row = wf_format_row(f);

    return row ? row->name : "unknown";
}

weft_format weft_format_parse(const char *name)
{
    for (int i = 0; i < WF_COUNT(formats); i++)
        if (strcmp(formats[i].name, name) == 0)
            return (weft_format)(i + 1);
    return WEFT_FORMAT_UNKNOWN;
}

/* ---- telling by the first bytes -------------------------------------------------------------- */

bool wf_looks_text(const char *p, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];

        if (c < 0x20 && c != '\n' && c != '\r' && c != '\t' && c != '\f')
            return false;
    }
    return n > 0;
}

static weft_format by_content(const char *p, int64_t n)
{
    int best = 0;
    weft_format found = WEFT_FORMAT_UNKNOWN;

    for (int i = 0; i < WF_COUNT(formats); i++) {
        int sure = formats[i].looks ? formats[i].looks(p, n) : 0;

        if (sure > best) {
            best = sure;
            found = (weft_format)(i + 1);
        }
    }
    return found;
}

const char *wf_plain_path(struct wf_arena *a, const char *path)
{
    char *plain = path && strstr(path, "\\,") ? wf_arena_strdup(a, path) : NULL, *to = plain;

    for (const char *p = plain; p && *p; p++)
        if (p[0] != '\\' || p[1] != ',')
            *to++ = *p;
    if (plain)
        *to = '\0';
    return plain ? plain : path;
}

static bool is_folder(weft_ctx *ctx, const char *path)
{
    struct wf_arena a;
    struct stat s;
    bool yes;

    wf_arena_init(&a, ctx);
    yes = stat(wf_plain_path(&a, path), &s) == 0 && S_ISDIR(s.st_mode);
    wf_arena_free(&a);
    return yes;
}

weft_status wf_first_file(weft_data *d, const char *path, const char **out)
{
    struct wf_files files;
    weft_status st = wf_files_find(d, path, NULL, &files);

    if (!st)
        *out = files.path[0];
    return st;
}

weft_status weft_format_of(weft_ctx *ctx, const char *path, weft_format *out)
{
    weft_data *d = NULL;
    const char *file = NULL;
    char *head = NULL;
    int64_t n = 0;
    bool whole;
    weft_status st;

    if (is_folder(ctx, path)) {
        *out = WEFT_FORMAT_IMAGES;
        return WEFT_OK;
    }
    st = weft_data_new(ctx, &d);
    if (!st)
        st = wf_first_file(d, path, &file);
    if (!st)
        st = wf_unpack_head(ctx, file, NULL, WF_HEAD_BYTES, &head, &n, &whole);
    if (!st && n == 0)
        st = wf_err(WEFT_EPARSE, "%s: the file is empty", file);
    if (!st) {
        *out = by_content(head, n);
        if (*out == WEFT_FORMAT_UNKNOWN)
            st = wf_err(WEFT_EPARSE, "%s: its content is of no known format, nor text: %s", file,
                        weft_format_list());
    }
    wf_free(ctx, head);
    weft_data_free(d);
    return st;
}

/* ---- opening --------------------------------------------------------------------------------- */

static bool takes(const struct wf_format *f, const char *option)
{
    size_t n = strlen(option);

    for (const char *p = f->takes; (p = strstr(p, option)); p += n)
        if ((p == f->takes || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
            return true;
    return false;
}

/* An option that would be ignored is a mistake. */
static weft_status check_options(const struct wf_format *f, const weft_open_opts *o)
{
    const struct {
        const char *name;
        bool given;
    } option[] = {{"types", o->types != NULL},
                  {"query", o->query != NULL},
                  {"index", o->index},
                  {"height", o->height != 0},
                  {"width", o->width != 0},
                  {"channels", o->channels != 0},
                  {"classes", o->n_classes != 0},
                  {"on_error", o->on_error != WEFT_ON_ERROR_STOP}};

    for (int i = 0; i < WF_COUNT(option); i++)
        if (option[i].given && !takes(f, option[i].name))
            return wf_err(WEFT_EINVAL,
                          "the format %s does not take the option %s; it takes columns label "
                          "weight%s%s",
                          f->name, option[i].name, *f->takes ? " " : "", f->takes);
    return WEFT_OK;
}

weft_ds weft_ds_open(weft_data *d, const char *path, const weft_open_opts *opts)
{
    weft_open_opts o;
    const struct wf_format *row;
    weft_ds s;
    weft_status st = wf_opts_take(&o, sizeof o, opts, "weft_open_opts");
    weft_format f = st ? WEFT_FORMAT_UNKNOWN : o.format;

    if (!st && f == WEFT_FORMAT_UNKNOWN)
        st = weft_format_of(d->ctx, path, &f);
    row = st ? NULL : wf_format_row(f);
    if (!st)
        st = row ? check_options(row, &o) : wf_err(WEFT_EINVAL, "format %d does not exist", (int)f);
    if (st)
        return wf_ds_fail(d, "open", st);
    s = row->open(d, path, &o);
    if (o.columns)
        s = weft_ds_select(d, s, o.columns);
    if (o.label)
        s = weft_ds_role(d, s, o.label, WEFT_LABEL);
    if (o.weight)
        s = weft_ds_role(d, s, o.weight, WEFT_WEIGHT);
    return s;
}
