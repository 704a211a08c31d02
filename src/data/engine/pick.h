/* pick.h - elements picked from several blocks: the basis of buffers, windows and mixtures.
 *
 * A held block is shared: the stage that picks from it and the promises that still have to copy
 * from it each have a reference, so that choosing is serial and cheap while copying happens on any
 * thread. */
#ifndef WF_DATA_ENGINE_PICK_H
#define WF_DATA_ENGINE_PICK_H

#include "data/data.h"

struct wf_held {
    _Atomic int refs;
    struct wf_block *block;
    int64_t n_used;          /* for the stage that holds it */
    void (*drop)(void *arg); /* called when the block is freed, if not NULL */
    void *drop_arg;
};
/* Takes ownership of b, also on failure. */
weft_status wf_hold(struct wf_block *b, struct wf_held **out);
struct wf_held *wf_held_ref(struct wf_held *h);
void wf_held_unref(struct wf_held *h); /* NULL is fine */

/* Element i of a held block. */
struct wf_pick {
    struct wf_held *held;
    int64_t i;
};

enum wf_pick_text { WF_TEXT_SHARED, WF_TEXT_COPIED };
/* A block of these elements. A run of one block's elements becomes a view of it, unless text is to
 * be copied: then the old blocks are not kept alive. */
weft_status wf_pick_block(struct wf_env *env, const struct wf_pick *pick, int64_t n,
                          enum wf_pick_text text, struct wf_block **out);

/* A list of picks with a reference each: the data of a promise. */
struct wf_picks {
    weft_ctx *ctx;
    enum wf_pick_text text;
    int64_t n, cap;
    struct wf_pick *pick;
};
weft_status wf_picks_new(weft_ctx *ctx, int64_t cap, struct wf_picks **out);
void wf_picks_add(struct wf_picks *p, struct wf_held *h, int64_t i); /* within cap */
void wf_picks_free(struct wf_picks *p);
/* A promise of n elements made of the picked ones; p becomes its data. Takes ownership of p. */
weft_status wf_picks_promise(struct wf_stage *s, struct wf_picks *p, int64_t n,
                             struct wf_promise **out);
/* The make and drop of a promise of the picked elements themselves. wf_picks_make consumes the
 * data. */
weft_status wf_picks_make(struct wf_promise *p, struct wf_worker *w, struct wf_block **out);
void wf_picks_drop(struct wf_promise *p);

/* Bytes of the elements themselves, including text. */
int64_t wf_block_content_bytes(const struct wf_block *b);

/* A made input read element by element: the current block and the position in it. */
struct wf_cursor {
    struct wf_held *held; /* NULL: none */
    int64_t i;
};
/* Makes sure that there is an element at the cursor; *more is false at the end of the input. A new
 * block has at most `want` elements. */
weft_status wf_cursor_need(struct wf_cursor *c, struct wf_stage *in, int64_t want, bool *more);
void wf_cursor_clear(struct wf_cursor *c);
/* What follows the cursor, as data; elements of ds. */
weft_status wf_cursor_save(const struct wf_cursor *c, struct wf_buf *out);
weft_status wf_cursor_restore(struct wf_cursor *c, struct wf_env *env, const struct wf_ds *ds,
                              struct wf_reader *r);

/* Slots that hold elements for a while: a buffer. Elements stay in the blocks they came in;
 * wf_slots_tidy copies what is left of blocks that are mostly used up, so that memory stays below
 * about twice the size of the elements. */
struct wf_slots {
    struct wf_env *env;
    int64_t cap;
    struct wf_pick *slot; /* held is NULL if empty */
    int64_t n_held;       /* elements of all blocks that a slot refers to */
};
weft_status wf_slots_init(struct wf_slots *s, struct wf_env *env, int64_t cap);
void wf_slots_free(struct wf_slots *s); /* fine after a failed init, or without one */
void wf_slots_set(struct wf_slots *s, int64_t j, struct wf_held *h, int64_t i); /* an empty slot */
void wf_slots_clear(struct wf_slots *s, int64_t j);
void wf_slots_clear_all(struct wf_slots *s);
weft_status wf_slots_tidy(struct wf_slots *s);
/* n full slots from `first`, as data. */
weft_status wf_slots_save(const struct wf_slots *s, int64_t first, int64_t n, struct wf_buf *out);
weft_status wf_slots_restore(struct wf_slots *s, const struct wf_ds *ds, int64_t first, int64_t n,
                             struct wf_reader *r);

/* A block that may be absent, as data. */
weft_status wf_maybe_save(const struct wf_block *b, struct wf_buf *out);
weft_status wf_maybe_load(struct wf_env *env, const struct wf_ds *ds, struct wf_reader *r,
                          struct wf_block **out);

#endif
