/* procs.h - processes that a command starts as parts of itself, and a directory for them. Nothing
 * is left behind, also after Ctrl-C. */
#ifndef WEFT_CLI_PROCS_H
#define WEFT_CLI_PROCS_H

#include <stdbool.h>
#include <sys/types.h>

enum { MAX_PROCS = 512, MAX_TMP = 64 };

struct procs {
    char folder[MAX_TMP + 32];
    int n;
    pid_t pid[MAX_PROCS];
};

/* Makes the directory, in TMPDIR or /tmp, and blocks the signals that end the program: a thread
 * waits for them. false: a message was printed. */
bool procs_open(struct procs *p, const char *what);
/* Starts this program with other arguments. It ends with its parent. */
bool procs_start(struct procs *p, char *const *argv);
/* Starts another program, without input and output. It ends with its parent. */
bool procs_start_program(struct procs *p, const char *path, char *const *argv);
/* Waits for all, up to `seconds`; whether all of them ended well. */
bool procs_wait(struct procs *p, double seconds);
/* Removes a directory with everything in it; links are not followed. */
void procs_remove(const char *folder);
/* keeper.c: a process that removes the directory when this one ends, in whatever way. */
struct keeper {
    pid_t pid;       /* 0: none */
    int lifeline[2]; /* others may read from the first end: it ends with this process */
};
bool keeper_start(struct keeper *k, const char *folder);
/* Now. */
void keeper_stop(struct keeper *k, const char *folder);
/* Kills what is left, and removes the directory. */
void procs_close(struct procs *p);

#endif
