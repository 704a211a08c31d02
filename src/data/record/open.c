/* open.c - records of files whose format was found out: TFRecord, lines of text, bytes. */
#include "data/record/example.h"
#include "data/record/record.h"
#include "data/source/formats.h"
#include "weft/data_record.h"

int wf_looks_tfrecord(const char *p, int64_t n)
{
    int64_t bytes;

    return n >= WF_RECORD_HEAD && wf_record_head(p, &bytes) ? WF_LOOKS_SURE + 1 : 0;
}

/* Any text that nothing else is surer of. */
int wf_looks_lines(const char *p, int64_t n)
{
    return wf_looks_text(p, n) ? WF_LOOKS_TEXT - 1 : 0;
}

weft_ds wf_open_tfrecord(weft_data *d, const char *path, const weft_open_opts *o)
{
    weft_ds s = weft_ds_tfrecord(
        d, path, WEFT_OPTS(weft_tfrecord_opts, .index = o->index, .on_error = o->on_error));
    weft_example_feature *features = NULL;
    int n = 0;
    weft_status st = weft_data_status(d);

    if (!st)
        st = wf_example_infer(d, path, o->on_error, &n, &features);
    if (st)
        return wf_ds_fail(d, "open", st);
    if (n == 0)
        return s; /* other records than Examples: their bytes */
    return weft_ds_example(d, s, n, features,
                           WEFT_OPTS(weft_example_opts, .on_error = o->on_error));
}

weft_ds wf_open_lines(weft_data *d, const char *path, const weft_open_opts *o)
{
    return weft_ds_lines(d, path, WEFT_OPTS(weft_lines_opts, .on_error = o->on_error));
}

weft_ds wf_open_bytes(weft_data *d, const char *path, const weft_open_opts *o)
{
    return weft_ds_fixed(
        d, path, 0,
        WEFT_OPTS(weft_fixed_opts, .dtype = WEFT_U8, .column = "byte", .on_error = o->on_error));
}
