/* sink.c - elements into a CSV file; a name ending in .tsv has tabs. */
#include "data/source/formats.h"
#include "weft/data_table.h"

static weft_status csv_open(weft_file_writer *w)
{
    size_t n = strlen(w->path);
    bool tabs = n > 4 && strcmp(w->path + n - 4, ".tsv") == 0;
    weft_csv_writer *csv = NULL;
    weft_status st =
        weft_csv_writer_new(w->ctx, w->path, w->n_cols, w->col,
                            WEFT_OPTS(weft_csv_writer_opts, .delimiter = tabs ? '\t' : ','), &csv);

    w->state = csv;
    return st;
}

static weft_status csv_add(weft_file_writer *w, const weft_tensor *col)
{
    return weft_csv_writer_add(w->state, col);
}

static weft_status csv_close(weft_file_writer *w)
{
    weft_csv_writer *csv = w->state;

    w->state = NULL;
    return weft_csv_writer_close(csv);
}

static void csv_free(weft_file_writer *w)
{
    weft_csv_writer_free(w->state);
}

const struct wf_sink_kind wf_sink_csv = {csv_open, csv_add, csv_close, csv_free};
