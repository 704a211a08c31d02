/* cache_row.h - elements as checksummed bytes: the format of caches and snapshots in files.
 *
 * A row is: i64 checksum of what follows the length, i64 length of that, then
 *   i64 epoch and id of the sample
 *   i64 number of samples of a batch (0: no batch), each epoch and id
 *   for each column: i64 sizes of the axes, if one of them is not declared; then the items.
 *   An item of text is i64 length and bytes.
 * Numbers and items are stored as in memory: files are for machines of one byte order. */
#ifndef WF_DATA_STAGE_CACHE_ROW_H
#define WF_DATA_STAGE_CACHE_ROW_H

#include "data/data.h"

#define WF_ROW_HEAD 16

/* A 64-bit checksum against damage, not against malice. */
uint64_t wf_row_sum(const void *bytes, int64_t n);
/* Appends element i of b, with the columns of ds, to out. */
weft_status wf_row_put(const struct wf_ds *ds, const struct wf_block *b, int64_t i,
                       struct wf_buf *out);
/* Whether n bytes are exactly whole rows with correct checksums; and their number. */
bool wf_rows_check(const char *p, int64_t n, int64_t *n_rows);
/* A block of the n_rows rows in p[0..n). Text stays in `chunk`, which the block keeps. */
weft_status wf_rows_block(struct wf_env *env, const struct wf_ds *ds, struct wf_chunk *chunk,
                          const char *p, int64_t n, int64_t n_rows, struct wf_block **out);

#endif
