/* nn.h - shared by the files of the neural-network family. */
#ifndef WF_GRAPH_NN_H
#define WF_GRAPH_NN_H

#include "graph/graph.h"

/* x in the dtype of `like`; x itself if it already has it. */
weft_val wf_cast_like(weft_graph *g, weft_val x, weft_val like);
weft_val wf_cast_to(weft_graph *g, weft_val x, weft_dtype dtype);

#endif
