/* cache_store.h - elements kept by number, in memory or in a file: what cache and snapshot share.
 *
 * The file:
 *   "weftrows" i64 version i64 length, bytes: the text of the pipeline and its key
 *   rows (cache_row.h), in the order they came
 *   for each element: i64 offset, i64 bytes of its row
 *   i64 elements, i64 offset of that table, i64 sum of it, i64 sum of the head, "weftrows"
 * It is written under another name and renamed when it is complete, so that a file with the name
 * is whole or damaged afterwards. Rows are checked whenever they are read. */
#ifndef WF_DATA_STAGE_CACHE_STORE_H
#define WF_DATA_STAGE_CACHE_STORE_H

#include "data/data.h"
#include "data/engine/pick.h"

enum wf_cache_in { WF_CACHE_UNDECIDED, WF_CACHE_MEMORY, WF_CACHE_FILE, WF_CACHE_NONE };

struct wf_cache_entry {
    struct wf_held *held; /* in memory: NULL where it is missing */
    int64_t i;
    int64_t offset, bytes; /* in the file: 0 where it is missing */
};

/* Everything behind the lock is guarded by it. */
struct wf_cache_store {
    struct wf_ds *ds; /* whose columns the elements have */
    weft_ctx *ctx;
    const char *path; /* NULL: no file */
    const char *head; /* what a file must begin with to be ours */
    int64_t n_head;
    bool stays;  /* the file is not removed */
    bool strict; /* too little memory is an error, not a reason to do without */
    enum wf_cache_in asked;
    pthread_mutex_t lock;
    bool ready;
    enum wf_cache_in in;
    bool complete;
    int64_t n; /* elements there */
    struct wf_cache_entry *entry;
    int64_t cap;
    struct wf_env *env;     /* of blocks in memory */
    int64_t bytes;          /* they take */
    int fd;                 /* -1: none */
    int64_t end;            /* where the next row goes */
    struct wf_newfile file; /* until it is complete; .fd is -1 when there is none */
    int *old_fd;            /* files given up, which readers may still use */
    int64_t n_old, cap_old;
    const void *filler; /* who fills it, in order */
};

/* `head` and `path` live in the pipeline's arena. */
weft_status wf_cache_init(struct wf_cache_store *s, struct wf_ds *ds);
void wf_cache_free(struct wf_cache_store *s);
/* Before the first use: look for a file to read from, make room for `count` elements if it is
 * known (else -1). */
weft_status wf_cache_prepare(struct wf_cache_store *s, int64_t count);
/* Elements of b, which stay the caller's, under numbers id[0..n) (NULL: behind the last). What
 * is there already stays. Trouble with the file makes the store one in nothing, with a warning. */
weft_status wf_cache_put(struct wf_cache_store *s, struct wf_env *env, int64_t count,
                         const struct wf_block *b, const int64_t *id);
/* No more will come. */
void wf_cache_complete(struct wf_cache_store *s);
/* Forget what is there. */
void wf_cache_clear(struct wf_cache_store *s);

/* In memory: picks of the elements there, with a reference each; held is NULL where one is
 * missing. */
void wf_cache_pick(struct wf_cache_store *s, const int64_t *id, int64_t n, struct wf_pick *pick);
/* In the file: the rows of elements id, id + 1, … that lie one after the other, at most n and
 * about a megabyte, read and checked. *got is 0 where element id is missing, or damaged: the
 * store is cleared then, with a warning. */
weft_status wf_cache_read(struct wf_cache_store *s, struct wf_env *env, int64_t id, int64_t n,
                          struct wf_chunk **chunk, int64_t *bytes, int64_t *got);

#endif
