/* shape.h - builders of shape ops that the graph layer uses itself. */
#ifndef WF_GRAPH_SHAPE_H
#define WF_GRAPH_SHAPE_H

#include "graph/graph.h"

/* Splits x into n parts of the given sizes along axis (counted from the front); any number of
 * parts: if there are more than a node may have outputs, in two steps. */
weft_status wf_split_all(weft_graph *g, weft_val x, int n, const int64_t *sizes, int axis,
                         weft_val *out);
/* The n slices along an axis of size n, without that axis; also any number. */
weft_status wf_unstack_all(weft_graph *g, weft_val x, int n, int axis, weft_val *out);
/* x[…, begin : begin + size, …] along one axis (counted from the front); a size of -1 reaches to
 * the end. */
weft_val wf_slice_axis(weft_graph *g, weft_val x, int axis, int64_t begin, int64_t size);
/* x with its axes in the order of perm; x itself if they already are. */
weft_val wf_transpose(weft_graph *g, weft_val x, const int *perm, int n);

#endif
