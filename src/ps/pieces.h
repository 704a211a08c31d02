/* pieces.h - how the parameters are cut: once, before the first step, for as long as the job lives.
 *
 * A piece is a range of the flat vectors, and a list of runs in it: whole blocks of 4096 elements
 * of a variable, from its start. Small variables that follow each other are in one piece together,
 * unless they are placed on different servers; a large one begins a piece. So a piece is read and
 * written where it is in a flat vector, and its own vectors are that range. Norms are sums over
 * blocks, so that any cut gives the same bits. The last piece is what else a step adds up: state
 * besides the parameters, and logs.
 *
 * Before it come the pieces of tables. A table is divided into groups of rows that end on
 * blocks; the groups of all tables are dealt out to these pieces, one after the other and again
 * from the first. So a few pieces share even the largest table, and small tables cost no piece
 * each. */
#ifndef WF_PS_PIECES_H
#define WF_PS_PIECES_H

#include "merge/merge.h"

struct wf_cut_piece {
    int n_runs;
    struct wf_piece *run; /* at: in the piece's vectors */
    int64_t first, count; /* the range of the flat vectors; elements of the piece's own */
    bool state;           /* the last piece: sums only */
    bool tables;          /* rows of tables, no runs */
    int server;           /* of its variables: struct wf_var */
};

enum { WF_MAX_TABLE_PIECES = 16, WF_MAX_TABLE_BLOCKS = 32 };

struct wf_cut {
    weft_ctx *ctx;
    int n_pieces;
    struct wf_cut_piece *piece;
    int first_table, n_table_pieces;
    uint64_t inverse; /* of n_table_pieces: 2^64 divided by it, rounded up; 0 if that is 2^64 */
    int *unit;        /* by variable: 2^unit rows of a table end on a block together */
};

/* Pieces of about `bytes` bytes; a variable that cannot be cut (its penalty or constraint looks
 * at all of it) may make one larger. WEFT_ENOSUP for tables whose initializer does not give rows
 * one by one. */
weft_status wf_cut_new(weft_ctx *ctx, const struct wf_rules *rules, int64_t bytes,
                       struct wf_cut **out);
void wf_cut_free(struct wf_cut *c);

/* a / n_table_pieces, a >= 0: a number of 32 bits, as most are, is multiplied with the inverse,
 * which is exact for them and much faster. */
static inline int64_t wf_cut_div(const struct wf_cut *c, int64_t a)
{
    if (c->inverse && a <= UINT32_MAX)
        return (int64_t)((unsigned __int128)c->inverse * (uint64_t)a >> 64);
    return a / c->n_table_pieces;
}

/* The piece of a table's row, and the block of that piece: one of n_blocks, which are sent to a new
 * copy one by one. Both run for every row that travels. */
static inline int wf_cut_piece_of(const struct wf_cut *c, int var, int64_t id)
{
    int64_t group = (id >> c->unit[var]) + var;

    return c->first_table + (int)(group - wf_cut_div(c, group) * c->n_table_pieces);
}

static inline int wf_cut_block_of(const struct wf_cut *c, int var, int64_t id, int n_blocks)
{
    int64_t turn;

    if (n_blocks == 1)
        return 0;
    turn = wf_cut_div(c, (id >> c->unit[var]) + var);
    return (int)(turn <= UINT32_MAX ? (uint32_t)turn % (uint32_t)n_blocks : turn % n_blocks);
}

/* How many blocks a piece has in jobs with these rules: of 8 MB or less, if all rows exist. */
int wf_cut_blocks(const struct wf_rules *rules);

/* From the flat vector to a piece's, and back; what is between the runs stays as it is. */
void wf_cut_gather(const struct wf_rules *rules, const struct wf_cut_piece *p, const float *flat,
                   float *piece);
void wf_cut_scatter(const struct wf_rules *rules, const struct wf_cut_piece *p, const float *piece,
                    float *flat);

#endif
