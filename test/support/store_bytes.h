/* store_bytes.h - everything a store holds, as bytes to compare. */
#ifndef WF_TEST_STORE_BYTES_H
#define WF_TEST_STORE_BYTES_H

#include "exec/exec.h"
#include "weft/train.h"

/* All variables and slots, one after the other; freed with free. */
char *store_bytes(const struct wf_store *s, size_t *n);

/* The same of a trainer, with tables that its strategy holds; after wf_dist_bring. */
char *trainer_bytes(weft_trainer *t, size_t *n);

#endif
