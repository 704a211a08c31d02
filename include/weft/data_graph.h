/* weft/data_graph.h - graph functions and models as stages of a pipeline.
 *
 * Features of a frozen base, computed once and kept in memory for all epochs:
 *
 *   s = weft_ds_map_model(d, images, base, WEFT_OPTS(weft_map_graph_opts, .batch = 256, .outputs = "features"));
 *   s = weft_ds_cache(d, weft_ds_unbatch(d, s), NULL);
 *   weft_fit(head, d, weft_ds_shuffle(d, s, 10000, NULL), …);
 *
 * A stage is a pure function of the batch: the same results for any number of threads that read ahead, and from a restored
 * position on. Runs of one function are one at a time, whoever reads; a run itself uses the context's threads, and what stands
 * before and behind the stage goes on meanwhile. A batch of another size may have other last bits, as everywhere; so the batches
 * must be the same, which they are for the same pipeline.
 * While iterators over such stages live, a function or trainer is used by them alone (by any number of them: training and
 * validation data), and it outlives them. */
#ifndef WEFT_DATA_GRAPH_H
#define WEFT_DATA_GRAPH_H

#include "weft/train.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_map_graph_opts {
    size_t size;
    const char *name; /* in counters and errors; NULL: "map_graph" */
    const char *
        inputs; /* columns (with commas) in the order of the feeds; NULL: those of the feeds' names. Not for models */
    const char *
        outputs; /* names for the results; NULL: those of the fetched nodes, or of the output layers */
    bool keep_inputs; /* results stand beside the columns that were fed; else in their place */
    int64_t batch;    /* models, of samples that are not batched: batches of this size; 0: 32 */
} weft_map_graph_opts;

/* fn on each element, which is a batch if fn's placeholders have a batch axis. fn changes no
 * variable; where it draws random numbers, each batch gets the same. Columns that are not fed stay
 * as they are. A column whose dtype or shape does not fit its feed is an error that names both. */
WEFT_API weft_ds weft_ds_map_graph(weft_data *d, weft_ds s, weft_fn *fn,
                                   const weft_map_graph_opts *opts);
/* What weft_predict gives, as columns. Inputs are found, converted and batched as for weft_predict;
 * labels and other columns stay. Weights are those of the time of the run. Not for stateful layers:
 * their results depend on what came before. */
WEFT_API weft_ds weft_ds_map_model(weft_data *d, weft_ds s, weft_trainer *t,
                                   const weft_map_graph_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
