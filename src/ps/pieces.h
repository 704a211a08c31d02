/* pieces.h - how the parameters are cut: once, before the first step, for as long as the job lives.
 *
 * A piece is a list of runs: whole blocks of 4096 elements of a variable, from its start; small
 * variables are in one piece together. Its vectors have the runs one after the other. Norms are
 * sums over blocks, so that any cut gives the same bits. The last piece is what else a step adds
 * up: state besides the parameters, and logs. */
#ifndef WF_PS_PIECES_H
#define WF_PS_PIECES_H

#include "merge/merge.h"

struct wf_cut_piece {
    int n_runs;
    struct wf_piece *run; /* at: in the piece's vectors */
    int64_t count;        /* elements of its vectors */
    bool state;           /* the last piece: sums only */
};

struct wf_cut {
    weft_ctx *ctx;
    int n_pieces;
    struct wf_cut_piece *piece;
};

/* Pieces of about `bytes` bytes; a variable that cannot be cut (its penalty or constraint looks at
 * all of it) may make one larger. WEFT_ENOSUP for tables. */
weft_status wf_cut_new(weft_ctx *ctx, const struct wf_rules *rules, int64_t bytes,
                       struct wf_cut **out);
void wf_cut_free(struct wf_cut *c);

/* From the flat vector to a piece's, and back. */
void wf_cut_gather(const struct wf_rules *rules, const struct wf_cut_piece *p, const float *flat,
                   float *piece);
void wf_cut_scatter(const struct wf_rules *rules, const struct wf_cut_piece *p, const float *piece,
                    float *flat);

#endif
