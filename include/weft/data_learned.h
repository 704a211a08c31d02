/* weft/data_learned.h - what a pipeline has learned from its training data: vocabularies,
 * statistics, the types of its columns, the names of classes.
 *
 * A model is correct only with the values it was trained with, so they are saved with it: in
 * checkpoints and saved models (weft_trainer_set_learned in weft/train.h). Jobs do this
 * automatically; a program does it like this:
 *
 *   weft_learned_new(ctx, &l);
 *   weft_learned_from(l, d, train, 2, (weft_learn[]){   the training part alone, in one pass
 *       {.name = "city", .kind = WEFT_LEARNED_VOCAB, .columns = "city"},
 *       {.name = "sizes", .kind = WEFT_LEARNED_STATS, .columns = "height, width"}});
 *   … weft_ds_lookup(d, s, "city", weft_learned_vocab(l, "city"), NULL) …
 *   weft_trainer_set_learned(t, l);
 *   weft_trainer_save(t, "model.safetensors");
 *
 * and elsewhere, without the training data:
 *
 *   weft_learned_load(ctx, "model.safetensors", &l);
 *   … weft_ds_lookup(d, s, "city", weft_learned_vocab(l, "city"), NULL) …
 *
 * An item has a name and does not change after it was added. The order of items is kept. */
#ifndef WEFT_DATA_LEARNED_H
#define WEFT_DATA_LEARNED_H

#include "weft/data_feature.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_learned weft_learned;

typedef enum weft_learned_kind {
    WEFT_LEARNED_NONE, /* no such item */
    WEFT_LEARNED_TEXT,
    WEFT_LEARNED_COLUMNS,
    WEFT_LEARNED_VOCAB,
    WEFT_LEARNED_STATS
} weft_learned_kind;

WEFT_API weft_status weft_learned_new(weft_ctx *ctx, weft_learned **out);
WEFT_API void weft_learned_free(
    weft_learned *l); /* Free the pipelines that use its vocabularies first. */

/* Names must be UTF-8, not empty and distinct (WEFT_EEXIST). Text and columns are copied; l takes
 * ownership of a vocabulary or statistics, even if the call fails. */
WEFT_API weft_status weft_learned_add_text(weft_learned *l, const char *name, const char *text);
WEFT_API weft_status weft_learned_add_columns(weft_learned *l, const char *name, int n,
                                              const weft_column *columns);
WEFT_API weft_status weft_learned_add_vocab(weft_learned *l, const char *name, weft_vocab *v);
WEFT_API weft_status weft_learned_add_stats(weft_learned *l, const char *name, weft_stats *s);

typedef struct weft_learn {
    const char *name;
    weft_learned_kind kind; /* WEFT_LEARNED_VOCAB of one column, or WEFT_LEARNED_STATS of one or
                             * more */
    const char *columns;    /* separated by commas */
    int64_t top;            /* for a vocabulary: keep only the most frequent words; 0: all */
} weft_learn;
/* Learns n items in one pass over s, with the results of n calls of weft_vocab_count and
 * weft_ds_stats, and adds them in order. If it fails, l is unchanged. */
WEFT_API weft_status weft_learned_from(weft_learned *l, weft_data *d, weft_ds s, int n,
                                       const weft_learn *what);

/* Item i; false past the end. */
WEFT_API bool weft_learned_at(const weft_learned *l, int i, const char **name,
                              weft_learned_kind *kind);
/* The item with this name, borrowed; NULL if there is none of this kind. */
WEFT_API const char *weft_learned_text(const weft_learned *l, const char *name);
WEFT_API const weft_column *weft_learned_columns(const weft_learned *l, const char *name, int *n);
WEFT_API const weft_vocab *weft_learned_vocab(const weft_learned *l, const char *name);
WEFT_API const weft_stats *weft_learned_stats(const weft_learned *l, const char *name);

/* As JSON: the same bytes for the same items in every locale, and numbers read back exactly.
 * docs/formats/checkpoint.md has the format. Freed with weft_text_free; n may be NULL. At most 256
 * MiB. */
WEFT_API weft_status weft_learned_format(const weft_learned *l, char **text, int64_t *n);
/* WEFT_EPARSE: damaged. WEFT_ENOSUP: written by a later version. */
WEFT_API weft_status weft_learned_parse(weft_ctx *ctx, const char *text, int64_t n,
                                        weft_learned **out);

#ifdef __cplusplus
}
#endif
#endif
