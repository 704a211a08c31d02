/* sink.c - elements into a TFRecord file, as tf.train.Example. */
#include "data/source/formats.h"
#include "weft/data_record.h"

struct sink {
    weft_record_writer *records;
    weft_example_value value[]; /* by column */
};

static weft_status record_open(weft_file_writer *w)
{
    size_t bytes = sizeof(struct sink) + (size_t)(w->n_cols + 1) * sizeof(weft_example_value);
    struct sink *k = wf_alloc(w->ctx, bytes);

    if (!k)
        return wf_err_nomem(w->ctx, bytes, "a writer");
    w->state = k;
    return weft_record_writer_new(w->ctx, w->path, NULL, &k->records);
}

static weft_status record_add(weft_file_writer *w, const weft_tensor *col)
{
    struct sink *k = w->state;

    for (int c = 0; c < w->n_cols; c++)
        k->value[c] = (weft_example_value){.name = w->col[c].name, .tensor = col[c]};
    return weft_record_writer_example(k->records, w->n_cols, k->value);
}

static weft_status record_close(weft_file_writer *w)
{
    struct sink *k = w->state;
    weft_record_writer *records = k->records;

    k->records = NULL;
    return weft_record_writer_close(records);
}

static void record_free(weft_file_writer *w)
{
    struct sink *k = w->state;

    weft_record_writer_close(k->records);
    wf_free(w->ctx, k);
}

const struct wf_sink_kind wf_sink_tfrecord = {record_open, record_add, record_close, record_free};
