/* snapshot.h - what a server keeps of a version while it becomes a part of a checkpoint: copies of
 * the pieces that it is the primary of, and of the rows that exist.
 *
 * Dense variables are runs of their elements, as the pieces are cut; slot k of `x` is the tensor
 * `x:slot<k>`. A table `x` is the tensors `x:ids` (i64), `x:rows` and `x:rows:slot<k>` (a row for
 * each id), of which every server has a run. Who writes a part, and who reads a server's bytes to
 * write it, make the same list of items. */
#ifndef WF_PS_SNAPSHOT_H
#define WF_PS_SNAPSHOT_H

#include "ps/store.h"
#include "weft/ckpt.h"

/* The rows of a table: how many a server has, where they are among those of all, how many there
 * are; of values that are kept for a callback, total -1: there are none. In lists by variable those
 * of rows come first, then those of values that are kept. */
struct wf_snap_rows {
    int64_t n, first, total;
};

/* What is where. */
struct wf_snap_list {
    const struct wf_rules *rules; /* borrowed, as is the cut */
    const struct wf_cut *cut;
    int n_slots;
    int n_pieces;
    const int *piece;                /* those of the server, by rising number */
    const struct wf_snap_rows *rows; /* [2 * n_vars] */
};
/* The items of a part, without data, in the arena. cut_piece: of a dense item, -1 for a table. k: 0
 * for values, 1 + the slot, -1 for ids, -2 for what is known of rows that may be forgotten
 * (`x:seen`: i64, the last step and the number of steps), -3 and -4 for values that are kept, of
 * rows that have changed since (`x:best:ids`: i64, id and whether it existed; `x:best:rows`). */
struct wf_snap_item {
    weft_ckpt_piece piece;
    int cut_piece, var, k;
    int64_t at; /* of a dense item: in the vectors of its piece */
};
weft_status wf_snap_items(struct wf_arena *mem, const struct wf_snap_list *l,
                          struct wf_snap_item **out, int64_t *n);
/* The items of a variable are those that it has from WF_SNAP_FIRST to its slots; kept: total of
 * values that are kept. */
enum { WF_SNAP_FIRST = -4 };
bool wf_snap_has(const struct wf_var *v, int64_t kept, int k);
/* Where the numbers of this item are in a list by variable. */
int wf_snap_at(const struct wf_rules *r, int var, int k);
const char *wf_snap_section(int k);
/* "x", "x:slot0", "x:rows:slot0", "x:ids": k as above. */
char *wf_snap_name(struct wf_arena *mem, const struct wf_var *v, int k);
/* Of a table with `total` rows. */
/* Whether the variable is a slot of another one, NAME:slotK: of optimizers in the workers. */
bool wf_snap_is_slot(const struct wf_rules *r, const struct wf_var *v);
weft_tensor wf_snap_type(const struct wf_var *v, int k, int64_t total);

struct wf_ps_snapshot;
/* Copies of version t of these pieces, which the store holds. */
weft_status wf_ps_snapshot_new(weft_ctx *ctx, struct wf_ps_store *store, int n_pieces,
                               const int *pieces, struct wf_ps_snapshot **out);
void wf_ps_snapshot_free(struct wf_ps_snapshot *s);
/* How many rows of a table it has, at its place in a list by variable; -1: nothing is kept. */
int64_t wf_ps_snapshot_rows(const struct wf_ps_snapshot *s, int at);
/* Where its rows are among those of all servers: [2 * n_vars]. Makes the list of items, once. */
weft_status wf_ps_snapshot_place(struct wf_ps_snapshot *s, const struct wf_snap_rows *rows);
/* The items with their data, after that. */
const struct wf_snap_item *wf_ps_snapshot_items(const struct wf_ps_snapshot *s, int64_t *n);

#endif
