/* cache_store.h - elements kept by number, in memory or in a file: shared by cache and snapshot.
 *
 * The file:
 *   "weftrows" i64 version i64 length, bytes: the text of the pipeline and its key
 *   rows (cache_row.h), in the order they came
 *   for each element: i64 offset, i64 bytes of its row
 *   i64 elements, i64 offset of that table, i64 sum of it, i64 sum of the head, "weftrows"
 * It is written under another name and renamed when it is complete, so a file with the name is
 * complete, or was damaged afterwards. Rows are verified whenever they are read. */
#ifndef WF_DATA_STAGE_CACHE_STORE_H
#define WF_DATA_STAGE_CACHE_STORE_H

#include "data/data.h"
#include "data/engine/pick.h"

enum wf_cache_in { WF_CACHE_UNDECIDED, WF_CACHE_MEMORY, WF_CACHE_FILE, WF_CACHE_NONE };

struct wf_cache_entry {
    struct wf_held *held; /* in memory: NULL if missing */
    int64_t i;
    int64_t offset, bytes; /* in the file: 0 if missing */
};

/* Everything after the lock is guarded by it. */
struct wf_cache_store {
    struct wf_ds *ds; /* whose columns the elements have */
    weft_ctx *ctx;
    const char *path; /* NULL: no file */
    const char *head; /* what a file must begin with to be ours */
    int64_t n_head;
    bool stays;  /* the file is not removed */
    bool strict; /* too little memory is an error, not a reason to continue without */
    enum wf_cache_in asked;
    pthread_mutex_t lock;
    bool ready;
    enum wf_cache_in in;
    bool complete;
    int64_t n; /* elements stored */
    struct wf_cache_entry *entry;
    int64_t cap;
    struct wf_env *env;     /* of blocks in memory */
    int64_t bytes;          /* their size */
    int fd;                 /* -1: none */
    int64_t end;            /* where the next row goes */
    struct wf_newfile file; /* until it is complete; .fd is -1 if there is none */
    int *old_fd;            /* replaced files, which readers may still use */
    int64_t n_old, cap_old;
    const void *filler; /* who fills it, in order */
};

/* `head` and `path` are in the pipeline's arena. */
weft_status wf_cache_init(struct wf_cache_store *s, struct wf_ds *ds);
void wf_cache_free(struct wf_cache_store *s);
/* Before the first use: looks for a file to read from, makes room for `count` elements if it is
 * known (otherwise -1). */
weft_status wf_cache_prepare(struct wf_cache_store *s, int64_t count);
/* Stores elements of b, which the caller keeps, under numbers id[0..n) (NULL: after the last).
 * Existing ones are kept. A problem with the file disables the store, with a warning. */
weft_status wf_cache_put(struct wf_cache_store *s, struct wf_env *env, int64_t count,
                         const struct wf_block *b, const int64_t *id);
/* There are no more elements. */
void wf_cache_complete(struct wf_cache_store *s);
/* Drops all elements. */
void wf_cache_clear(struct wf_cache_store *s);

/* In memory: picks of the stored elements, with a reference each; held is NULL for missing ones. */
void wf_cache_pick(struct wf_cache_store *s, const int64_t *id, int64_t n, struct wf_pick *pick);
/* In the file: the rows of elements id, id + 1, … that are adjacent, at most n and about a
 * megabyte, read and verified. *got is 0 if element id is missing, or damaged: then the store is
 * cleared, with a warning. */
weft_status wf_cache_read(struct wf_cache_store *s, struct wf_env *env, int64_t id, int64_t n,
                          struct wf_chunk **chunk, int64_t *bytes, int64_t *got);

#endif
