/* server.h - what the parts of the server machine know of each other. Its users include ps.h. */
#ifndef WF_PS_SERVER_H
#define WF_PS_SERVER_H

#include "ps/ps.h"

static inline bool wf_bits_have(const uint64_t *bits, int i)
{
    return bits[i / 64] >> (i % 64) & 1;
}

static inline void wf_bits_set(uint64_t *bits, int i)
{
    bits[i / 64] |= (uint64_t)1 << (i % 64);
}

static inline const struct wf_holders *wf_server_holders(const struct wf_server *s, int piece)
{
    return &s->view.epoch->holders[piece];
}

static inline struct wf_message *wf_server_send(struct wf_server *s, struct wf_actions *out,
                                                enum wf_message_type type, int to, int piece,
                                                int64_t t)
{
    struct wf_message *m = wf_view_send(&s->view, out, type, to);

    if (m) {
        m->piece = piece;
        m->t = t;
    }
    if (s->plan.window && (type == WF_MSG_RECORD || type == WF_MSG_FILL)) {
        s->piece[piece].told_step = s->n_events;
        if (m)
            m->lease = s->piece[piece].record_lease;
    }
    return m;
}

/* The version that a history begins with: with leases, it is the number of those that are in it. */
static inline int64_t wf_server_first(const struct wf_server *s)
{
    return s->view.epoch->start * (s->plan.window ? s->plan.n_shards : 1);
}

/* ---- server_tell.c --------------------------------------------------------------------------- */

void wf_server_send_at(struct wf_server *s, struct wf_actions *out, int to, int piece);
void wf_server_announce(struct wf_server *s, struct wf_actions *out, int piece, bool made);
void wf_server_open(struct wf_server *s, struct wf_actions *out, int piece);
weft_status wf_server_take_pull(struct wf_server *s, const struct wf_message *m,
                                struct wf_actions *out);
weft_status wf_server_take_read(struct wf_server *s, const struct wf_message *m,
                                struct wf_actions *out);

/* ---- server_steps.c -------------------------------------------------------------------------- */

void wf_server_save(struct wf_server *s, struct wf_actions *out, int piece);
void wf_server_next_step(struct wf_server *s, int piece);
weft_status wf_server_try_apply(struct wf_server *s, struct wf_actions *out, int piece);
weft_status wf_server_begin_record(struct wf_server *s, struct wf_actions *out, int piece);
weft_status wf_server_take_push(struct wf_server *s, const struct wf_message *m,
                                struct wf_actions *out);

/* ---- server_norms.c -------------------------------------------------------------------------- */

bool wf_server_knows(const struct wf_server *s, int64_t t);
void wf_server_begin_norms(struct wf_server *s, int64_t t);
weft_status wf_server_share_partial(struct wf_server *s, struct wf_actions *out, int piece);
weft_status wf_server_after_decision(struct wf_server *s, struct wf_actions *out);
weft_status wf_server_try_decide(struct wf_server *s, struct wf_actions *out);
weft_status wf_server_take_partial(struct wf_server *s, const struct wf_message *m,
                                   struct wf_actions *out);
weft_status wf_server_take_decision(struct wf_server *s, int64_t t, const void *payload,
                                    struct wf_actions *out);
void wf_server_answer_want(struct wf_server *s, const struct wf_message *m, struct wf_actions *out);

/* ---- server_copies.c ------------------------------------------------------------------------- */

void wf_server_ask_copies(struct wf_server *s, struct wf_actions *out, int piece);
void wf_server_fill_more(struct wf_server *s, struct wf_actions *out, int piece);
void wf_server_check_lockstep(struct wf_server *s, struct wf_actions *out, int piece);
void wf_server_send_records(struct wf_server *s, struct wf_actions *out, int piece);
void wf_server_ask_next(struct wf_server *s, struct wf_actions *out, int piece, int to);
void wf_server_start_over(struct wf_server *s, int piece);
weft_status wf_server_take_record(struct wf_server *s, const struct wf_message *m,
                                  struct wf_actions *out);
weft_status wf_server_take_recorded(struct wf_server *s, const struct wf_message *m,
                                    struct wf_actions *out);
void wf_server_take_synced(struct wf_server *s, const struct wf_message *m, struct wf_actions *out);
weft_status wf_server_take_fill(struct wf_server *s, const struct wf_message *m,
                                struct wf_actions *out);
void wf_server_take_fill_next(struct wf_server *s, const struct wf_message *m,
                              struct wf_actions *out);

/* ---- server_leases.c ------------------------------------------------------------------------- */

weft_status wf_server_init_leases(struct wf_server *s);
void wf_server_free_leases(struct wf_server *s);
weft_status wf_server_enter_leases(struct wf_server *s, int piece, bool fresh);
void wf_server_note_record(struct wf_server *s, const struct wf_message *m);
bool wf_server_note_fill(struct wf_server *s, const struct wf_message *m);
void wf_server_send_lease(struct wf_server *s, struct wf_actions *out, int piece);
weft_status wf_server_try_lease(struct wf_server *s, struct wf_actions *out, int piece);
weft_status wf_server_take_lease(struct wf_server *s, const struct wf_message *m,
                                 struct wf_actions *out);
weft_status wf_server_take_back(struct wf_server *s, const struct wf_message *m,
                                struct wf_actions *out);
weft_status wf_server_go(struct wf_server *s, struct wf_actions *out, int piece);
void wf_server_report(struct wf_server *s, struct wf_actions *out);

/* ---- server_clocks.c ------------------------------------------------------------------------- */

weft_status wf_server_enter_clocks(struct wf_server *s, int piece);
void wf_server_take_clock(struct wf_server *s, const struct wf_message *m, struct wf_actions *out);
void wf_server_note_clock(struct wf_server *s, int piece, int node, int64_t clock);
weft_status wf_server_take_rows(struct wf_server *s, const struct wf_message *m,
                                struct wf_actions *out);
weft_status wf_server_take_want(struct wf_server *s, const struct wf_message *m);
void wf_server_serve(struct wf_server *s, struct wf_actions *out, int piece);

#endif
