/* saving.h - a checkpoint of what parameter servers hold, as the worker that writes it sees it.
 *
 * Beginning one takes copies on all servers, and returns; the rest may be done by another thread,
 * while training continues. part.h has the messages. */
#ifndef WF_PS_SAVING_H
#define WF_PS_SAVING_H

#include "base/base.h"
#include "weft/ckpt.h"

struct wf_ps_worker;
struct wf_ps_save;
struct wf_arrived;

/* Version t, the one that the worker is at, of all pieces. WEFT_ESTATE: servers are at a later one.
 * There is one at a time. */
weft_status wf_ps_save_begin(struct wf_ps_worker *w, int64_t t, struct wf_ps_save **out);
/* The tensors that servers have; in the arena, without data. */
weft_status wf_ps_save_tensors(const struct wf_ps_save *s, struct wf_arena *mem,
                               weft_ckpt_tensor **out, int64_t *n);
/* How many parts there can be. */
int64_t wf_ps_save_max(const struct wf_ps_save *s);
/* Has them written into the temporary folder of checkpoint `name` in dir, by servers that see it,
 * otherwise by this process: *n texts for weft_ckpt_commit, freed with weft_text_free. If a server
 * is lost meanwhile, copies are taken again, as long as the servers are at this version.
 * WEFT_ECANCEL: the worker is gone. By any thread. */
weft_status wf_ps_save_write(struct wf_ps_save *s, const char *dir, const char *name, char **text,
                             int64_t *n);
/* Servers drop their copies. NULL is fine. By any thread. */
void wf_ps_save_free(struct wf_ps_save *s);

/* For the worker, with its lock: what has arrived, and what is requested again. */
void wf_ps_save_take(struct wf_ps_save *s, const struct wf_arrived *a);
void wf_ps_save_tick(struct wf_ps_save *s, int64_t now);
/* Before it is stopped: calls under way return, and later ones. Without the lock. */
void wf_ps_saves_end(struct wf_ps_worker *w);

#endif
