/* faultfs.h - a file seam for tests: counts calls, fails or kills at the n-th, and loses what
 * was not synced.
 *
 * A kill ends the process with _exit(FAULTFS_KILLED) before the call is carried out. With `lose`
 * it first takes away what a power cut may take: data of files that were not synced is cut in
 * half, entries of folders that were not synced vanish, renames in them are undone. One thread
 * at a time. */
#ifndef WEFT_TEST_FAULTFS_H
#define WEFT_TEST_FAULTFS_H

#include "base/base.h"

#define FAULTFS_KILLED 77
#define FAULTFS_EVENTS 512
#define FAULTFS_PATH 256

enum faultfs_kind { FAULTFS_CREATE, FAULTFS_RENAME, FAULTFS_DIRTY };

struct faultfs {
    struct wf_fs fs;
    int64_t n_calls;  /* so far */
    int64_t n_writes; /* of them, those that need room on the disk: creating, making folders,
                       * writing */
    int64_t fail_at;  /* the call (1, 2, …) that fails; 0: none */
    int64_t full_at;  /* the writing call from which on the disk is full */
    int error;        /* errno of fail_at; 0: EIO */
    bool sticky;      /* all that follow fail, too */
    bool read_only;   /* whatever changes something fails with EROFS */
    int64_t kill_at;
    bool lose;
    bool real_sync;
    int64_t max_io; /* bytes that a read or write does at most; 0: all */
    struct faultfs_event {
        enum faultfs_kind kind;
        bool done; /* synced: cannot be lost any more */
        char path[FAULTFS_PATH], to[FAULTFS_PATH];
    } event[FAULTFS_EVENTS];
    int n_events;
    char fd_path[256][FAULTFS_PATH];
};

void faultfs_init(struct faultfs *f); /* f->fs is then a seam; the options may be set */

void faultfs_die(struct faultfs *f); /* now */

#endif
