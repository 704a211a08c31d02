/* weft/data_graph.h - graph functions and models as stages of a pipeline.
 *
 * Features of a frozen base, computed once and kept in memory for all epochs:
 *
 *   s = weft_ds_map_model(d, images, base,
 *                         WEFT_OPTS(weft_map_graph_opts, .batch = 256, .outputs = "features"));
 *   s = weft_ds_cache(d, weft_ds_unbatch(d, s), NULL);
 *   weft_fit(head, d, weft_ds_shuffle(d, s, 10000, NULL), …);
 *
 * A stage is a pure function of the batch: the results are the same for any number of threads that
 * read ahead, and after restoring a position. A function runs one batch at a time, whoever reads;
 * the run itself uses the context's threads, and the stages before and after it continue meanwhile.
 * As everywhere, a batch of another size may differ in the last bits; the same pipeline always
 * makes the same batches. While iterators over such stages exist, only they may use the function or
 * trainer (any number of them: training and validation data), and it must outlive them. */
#ifndef WEFT_DATA_GRAPH_H
#define WEFT_DATA_GRAPH_H

#include "weft/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_map_graph_opts {
    size_t size;
    const char *name;   /* in counters and errors; NULL: "map_graph" */
    const char *inputs; /* columns (separated by commas) in the order of the feeds; NULL: those with
                         * the feeds' names. Not for models */
    const char *outputs; /* names for the results; NULL: those of the fetched nodes, or of the
                          * output layers */
    bool keep_inputs;    /* results are added to the columns that were fed, instead of replacing
                          * them */
    int64_t batch;       /* for models and unbatched samples: the batch size; 0: 32 */
} weft_map_graph_opts;

/* Runs fn on each element, which is a batch if fn's placeholders have a batch axis. fn must not
 * change variables; if it draws random numbers, they are the same for each batch. Columns that are
 * not fed are kept. A column whose dtype or shape does not match its feed is an error that names
 * both. */
WEFT_API weft_ds weft_ds_map_graph(weft_data *d, weft_ds s, weft_fn *fn,
                                   const weft_map_graph_opts *opts);
/* The results of weft_predict, as columns. Inputs are found, converted and batched as for
 * weft_predict; labels and other columns are kept. The weights are those at the time of the run.
 * Not for stateful layers: their results depend on earlier calls. */
WEFT_API weft_ds weft_ds_map_model(weft_data *d, weft_ds s, weft_trainer *t,
                                   const weft_map_graph_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
