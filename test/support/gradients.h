/* gradients.h - the gradients that updates of a graph take, as outputs of a function. */
#ifndef WF_TEST_GRADIENTS_H
#define WF_TEST_GRADIENTS_H

#include "weft/weft.h"

/* Fills out[cap] from those of n updates that are dense steps of an optimizer, the first of each
 * variable; returns how many there are. */
int gradients_of_updates(weft_graph *g, int n, const weft_val *updates, int cap,
                         weft_gradient *out);

#endif
