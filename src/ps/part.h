/* part.h - how the parts of a checkpoint are requested from servers, and a server's side of it.
 *
 * 1. The deciding worker asks for copies of version t (SNAP_ASK); every server answers which pieces
 *    it has copied and how many rows of each table (SNAP). Then training continues.
 * 2. The worker makes the folder of the checkpoint, with a file that holds a random number, and
 *    asks for the parts (PART_ASK). A server that finds the number there writes its part; it
 *    answers with the part's text, that it is busy, or that it does not see the folder (PART).
 * 3. In that case the worker reads the copy (PART_READ, PART_DATA) and writes the part itself.
 * 4. The copies are dropped (PART_DROP). So they are if the worker leaves the job.
 *
 * Requests are repeated until they are answered. */
#ifndef WF_PS_PART_H
#define WF_PS_PART_H

#include "ps/site.h"
#include "ps/snapshot.h"

/* In every payload; numbers of the machine. What follows it:
 *   SNAP       item pieces and n variables: int64_t [item], int64_t [2n] as in snapshot.h; or the
 *              text of a failure
 *   PART_ASK   n variables: struct wf_snap_rows [2n], then folder, name of the checkpoint, and name
 *              of the writer, each with its NUL; at: the random number
 *   PART       the text of a part or of a failure
 *   PART_READ  nothing: the bytes [at, at + n) of an item are requested
 *   PART_DATA  these bytes */
struct wf_save_head {
    uint64_t id; /* of the checkpoint under way */
    int64_t state;
    int64_t item, at, n;
};
enum wf_save_state {
    WF_SAVE_READY,
    WF_SAVE_GONE,  /* the server is at a later version */
    WF_SAVE_BUSY,  /* the part is being written */
    WF_SAVE_BLIND, /* the server does not see the folder */
    WF_SAVE_FAILED
};
#define WF_SAVE_PROBE "probe"            /* the file with the random number, as 16 digits */
#define WF_SAVE_BYTES ((int64_t)1 << 20) /* at most, of an answer to PART_READ */

/* Who is asked: what a server has. */
struct wf_parts_of {
    struct wf_site *node;
    struct wf_ps_store *store; /* NULL: nothing yet */
    const struct wf_server *m;
    const struct wf_rules *rules;
    int n_pieces;
};
/* The copies of a server: those of the checkpoint under way, and of earlier ones while they are
 * being written. */
struct wf_parts {
    struct wf_saved_part *first;
    bool closed;
};
/* A request about checkpoints; with the lock. Whatever goes wrong is told to the worker. */
void wf_parts_take(struct wf_parts *p, const struct wf_parts_of *of, const struct wf_arrived *a);
/* Frees what is not needed any more; now and then, with the lock. */
void wf_parts_tick(struct wf_parts *p, const struct wf_parts_of *of);
/* Waits for writes under way; nothing is taken afterwards. Without the lock, before the node
 * stops. */
void wf_parts_close(struct wf_parts *p, struct wf_site *node);

#endif
