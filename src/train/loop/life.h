/* life.h - the life cycle of a trainer's fit: one state, the moves between states, and the calls
 * that each state allows.
 *
 * Requests from outside (callbacks, signal handlers, other threads) are not states: they are bits
 * that fit checks between two steps. */
#ifndef WF_TRAIN_LOOP_LIFE_H
#define WF_TRAIN_LOOP_LIFE_H

#include "weft/train.h"

enum wf_life {
    WF_LIFE_NEW,      /* no fit yet */
    WF_LIFE_OPENING,  /* fit opens its data and builds its graph */
    WF_LIFE_TRAINING, /* steps, validation, checkpoints, callbacks */
    WF_LIFE_CLOSING,  /* no further step: train_end, the last checkpoint */
    /* How the last fit ended: */
    WF_LIFE_COMPLETE, /* all epochs are done */
    WF_LIFE_ENDED,    /* a callback ended it for good */
    WF_LIFE_DIVERGED, /* like one of these, but the loss is NaN or infinite */
    WF_LIFE_STOPPED,  /* stopped from outside when nothing was left to do */
    WF_LIFE_PAUSED,   /* stopped from outside; a later run does the rest */
    WF_LIFE_UNSAVED,  /* complete or ended, and then train_end or the last checkpoint failed */
    WF_LIFE_FAILED,
    WF_N_LIVES
};

/* Requests to a fit. */
enum wf_ask {
    WF_ASK_END = 1,       /* a callback: training ends after this batch, for good */
    WF_ASK_INTERRUPT = 2, /* from outside: fit returns after this batch, a later run resumes */
    WF_ASK_SAVE = 4,      /* a checkpoint after this batch */
    WF_ASK_PAST = 8,      /* the requests were made to a fit that has returned */
    WF_ASK_STOP = WF_ASK_END | WF_ASK_INTERRUPT
};

/* What a caller wants to do with the trainer. Everything else is allowed in every state. */
enum wf_life_call {
    WF_CALL_FIT,
    WF_CALL_TRAIN,     /* train_on_batch */
    WF_CALL_GRADIENTS, /* of a batch */
    WF_CALL_APPLY,     /* gradients */
    WF_CALL_BIND,      /* labels of another type than the graph was built for */
    WF_CALL_EVALUATE,  /* evaluate, predict, and the same for one batch */
    WF_N_CALLS
};

const char *wf_life_name(enum wf_life life);
/* Whether one state may follow another. */
bool wf_life_follows(enum wf_life from, enum wf_life to);
/* Moves to the next state. A move that is not allowed is a bug in fit: WEFT_EBUG. */
weft_status wf_life_move(weft_trainer *t, enum wf_life to);
/* WEFT_ESTATE with the reason if the state does not allow the call. */
weft_status wf_life_allows(const weft_trainer *t, enum wf_life_call call);
/* Whether the last fit finished by itself or by a callback, with a finite loss. */
bool wf_life_in_order(const weft_trainer *t);
bool wf_asked(const weft_trainer *t, unsigned what); /* any of these */
/* From any thread, or a signal handler. A request made while no fit is running goes to the next
 * one. */
void wf_ask(weft_trainer *t, unsigned what);
/* A fit begins: drops requests to the previous one, except an interruption made since. A fit
 * ends. */
void wf_ask_begin(weft_trainer *t);
void wf_ask_end(weft_trainer *t);
/* Stopped from outside, and not ended by a callback. */
bool wf_interrupted(const weft_trainer *t);

#endif
