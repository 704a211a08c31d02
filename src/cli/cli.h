/* cli.h - the weft command: commands and flags are rows of tables; --help comes from them. */
#ifndef WEFT_CLI_H
#define WEFT_CLI_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <weft/weft.h>

/* Exit codes, documented in `weft --help`. 128 and above are left to signals and to failures worth
 * a retry. */
enum {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,    /* the work failed: the message says why */
    EXIT_USAGE = 2,     /* the command line was invalid */
    EXIT_INPUT = 3,     /* a file was missing, unreadable or malformed */
    EXIT_STOPPED = 130, /* stopped by Ctrl-C: the same command resumes */
};

enum flag_kind { FLAG_BOOL, FLAG_INT, FLAG_TEXT, FLAG_LIST };

#define LIST_MAX 64
struct text_list {
    int n;
    const char *item[LIST_MAX];
};

/* A flag writes into the command's variable: bool, int, const char * or struct text_list. */
struct flag {
    const char *name; /* without the dashes */
    enum flag_kind kind;
    const char *arg; /* name of its value in the help; NULL for FLAG_BOOL */
    const char *help;
    void *to;
};

/* For `weft man` and completion: a command prints its flags as roff, or as words. */
#define FLAG_MAN "--print-man"
#define FLAG_WORDS "--print-words"
#define FLAG_VALUES "--print-values=" /* followed by the name of a flag */

struct command {
    const char *name;    /* "bench train" */
    const char *args;    /* positional arguments, for the usage line */
    const char *summary; /* one line */
    const char *text;    /* the rest of the help */
    int (*run)(int argc, char **argv);
};

/* Parses flags anywhere in argv[1..]; positional arguments are moved to the front of argv. Returns
 * their number, -1 after printing an error, or -2 after printing the help. */
int parse_flags(const struct command *c, const struct flag *flags, int argc, char **argv);

/* Prints "weft: " and the text to stderr, and returns the exit code. */
int fail(int code, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* ", did you mean 'near'?", or `otherwise` if nothing is near (NULL). */
struct meant {
    char text[160];
};
struct meant did_you_mean(const char *near, const char *otherwise);
/* The same, followed by the library's last error. The status decides the code. */
int fail_status(weft_status st, const char *what);

/* A library message in the terms of a job file (terms.c). */
const char *job_words(const char *text, char *out, size_t size);

/* ---- measuring ------------------------------------------------------------------------------- */

double wall_clock(void); /* seconds, monotonic */
/* Sorts v. */
double median_of(double *v, int n);

/* ---- numbers --------------------------------------------------------------------------------- */

/* The shortest text that reads back as the same number: 24.6, not 24.6000003815. single: an f32. */
const char *number_text(double v, bool single, char buf[32]);

/* ---- progress -------------------------------------------------------------------------------- */

/* Progress of a command, on stderr if that is a terminal. total <= 0: unknown. */
struct progress {
    const char *what;
    int64_t total, done;
    double start, painted, seconds;
    bool shown;
};
void progress_begin(struct progress *p, const char *what, int64_t total);
void progress_add(struct progress *p, int64_t n);
void progress_end(struct progress *p);

/* ---- histories ------------------------------------------------------------------------------- */

/* The epochs of a job's run, from its log or its checkpoints, whichever has more (history.c). */
weft_status read_epochs(weft_ctx *ctx, const weft_job *job, weft_history **out);

/* ---- the screen ------------------------------------------------------------------------------ */

/* Whether standard output is a terminal that can repaint a line. */
bool screen_has_bar(void);
int screen_columns(void); /* current width of the terminal; 80 if unknown */
/* Prints text with colors (unless NO_COLOR is set), truncated to the terminal's width unless it is
 * the last of its line. Returns false, with errno, if it could not be written. */
bool screen_print(const char *text, bool last);
/* The same into memory: no line over `columns` columns (0: no limit), escape sequences not
 * counted. */
int64_t screen_fit(const char *text, int columns, bool colors, char *out, int64_t size);
/* Ends a line that would be repainted, so that a message starts on a new line; flushes. */
void screen_finish_line(void);

/* Finds a word in a list; returns false after printing an error with the nearest word. */
bool check_word(const char *command, const char *flag, const char *word, const char *const *words,
                int n);

extern const struct command command_train, command_eval, command_predict, command_summary,
    command_keys, command_init, command_history, command_report, command_compare;
extern const struct command command_bench_data, command_bench_net, command_bench_ps,
    command_data_inspect, command_data_convert, command_data_stats;
extern const struct command command_ckpt_ls, command_ckpt_show, command_ckpt_verify,
    command_ckpt_diff, command_ckpt_prune;
extern const struct command command_version, command_doctor, command_bench_train, command_explain,
    command_run, command_node, command_launch, command_cert, command_ctl;

/* ---- workloads ------------------------------------------------------------------------------- */

#define MAX_FEEDS 4
#define MAX_UPDATES 512

/* A benchmark workload, built: the graph with its loss, and synthetic data. */
struct workload {
    const char *name;
    int64_t batch;
    weft_graph *graph;
    weft_val loss, feed[MAX_FEEDS], updates[MAX_UPDATES];
    weft_tensor data[MAX_FEEDS];
    int n_feeds, n_updates;
    weft_dtype compute; /* the half that layers compute in; WEFT_NONE: f32 */
    bool plain_grads;   /* gradients have the types of their values, whatever layers compute in */
};
int n_workloads(void);
const char *workload_name(int i);
bool is_workload(const char *name);
bool workload_is_large(int i); /* made for GPUs */
weft_status workload_build(weft_ctx *ctx, const char *name, struct workload *w);
/* compute: what layers compute in; WEFT_NONE: as the workload says. */
weft_status workload_build_in(weft_ctx *ctx, const char *name, weft_dtype compute,
                              struct workload *w);
void workload_free(struct workload *w);

/* ---- contexts -------------------------------------------------------------------------------- */

/* Flags that several commands share: --threads, --kernels, --simd, --memory. */
struct machine_flags {
    int threads, memory_mb;
    const char *kernels, *simd, *devices, *device_cache;
    bool soft_placement;
};
weft_status open_context(const struct machine_flags *m, weft_ctx **out);

#endif
