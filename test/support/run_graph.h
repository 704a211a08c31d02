/* run_graph.h - plans and runs whatever graph it is given: what a stranger's file may ask for.
 *
 * Every feed gets small numbers, unknown sizes become 2. The last values are fetched and everything
 * that changes a variable is run, with the reference kernels, with the fast ones, and with passes
 * off; then gradients, where there are any. A status is fine; a crash is what the caller looks for.
 * Feeds and work are bounded, so that a huge graph is refused by the context's memory limit or left
 * out. */
#ifndef WEFT_TEST_RUN_GRAPH_H
#define WEFT_TEST_RUN_GRAPH_H

#include "graph/graph.h"

/* How many of the attempts ran to their end. */
int run_graph(weft_graph *g);
/* Parses the text first; -1 where it does not read. */
int run_graph_text(weft_ctx *ctx, const char *text, int64_t n);

#endif
