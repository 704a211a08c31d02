/* learned.h - values in the JSON of what was learned: writing and reading. */
#ifndef WF_DATA_FEATURE_LEARNED_H
#define WF_DATA_FEATURE_LEARNED_H

#include "base/json.h"
#include "data/data.h"
#include "weft/data_learned.h"

/* The number of items; and removing those from number n on. */
int64_t wf_learned_n(const weft_learned *l);
void wf_learned_cut(weft_learned *l, int64_t n);

/* Bytes as a JSON string, or {"hex": "00ff"} if they are not UTF-8 or contain a NUL. */
void wf_learned_put_bytes(struct wf_buf *b, const char *p, int64_t n);
/* A number that reads back exactly, in any locale; NaN and infinities as strings. */
void wf_learned_put_real(struct wf_buf *b, double v);
const char *wf_learned_dtype(weft_dtype t); /* "text" for WEFT_STR */

/* Bytes are copied into the arena, NUL-terminated; a name must not contain a NUL. */
weft_status wf_learned_get_bytes(const json_t *j, struct wf_arena *a, weft_str *out);
weft_status wf_learned_get_name(const json_t *j, struct wf_arena *a, weft_str *out);
/* False if it is not that. */
bool wf_learned_get_real(const json_t *j, double *out);
bool wf_learned_dtype_parse(const json_t *j, weft_dtype *out);

/* Statistics as a list of columns (stats.c). */
void wf_stats_put(const weft_stats *s, struct wf_buf *b);
weft_status wf_stats_get(weft_ctx *ctx, const json_t *list, weft_stats **out);

#endif
