/* base.h - the door of the base layer: errors, memory, text, maps, threads, files.
 * Everything here is usable by every other layer; nothing here knows about tensors. */
#ifndef WF_BASE_H
#define WF_BASE_H

#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include "weft/base.h"

/* ---- errors ---------------------------------------------------------------------------------- */

/* Sets the thread's error text and returns `st`. */
weft_status wf_err(weft_status st, const char *fmt, ...) WEFT_PRINTF(2, 3);
/* Puts "text: " before the current error text and returns `st`; if st is 0, nothing changes. */
weft_status wf_err_wrap(weft_status st, const char *fmt, ...) WEFT_PRINTF(2, 3);
/* Replaces the thread's error text, e.g. when an error is passed from one thread to another. */
void wf_err_set(const char *text);
weft_status wf_errv(weft_status st, const char *fmt, va_list args);

/* ", did you mean 'near'?" for the one of `words` that is nearest to `word`; "" if none is near:
 *   wf_err(WEFT_ENOENT, "no stage '%s'%s", name, wf_did_you_mean(name, names, n).text) */
struct wf_hint {
    char text[80];
};
struct wf_hint wf_did_you_mean(const char *word, const char *const *words, int n_words);
/* The same for a word that was found; NULL: "". */
struct wf_hint wf_hint_of(const char *prefix, const char *near);

/* ---- structs that begin with their size (opts.c) --------------------------------------------- */

/* Copies the caller's struct `name` over zeros; `today` is the size of `copy`, which is all
 * defaults if opts is NULL, and on failure. A smaller struct, of a program compiled against an
 * older header, is taken as far as it goes; a larger one is WEFT_EINVAL. Read only the copy
 * afterwards. */
weft_status wf_opts_take(void *copy, size_t today, const void *opts, const char *name);
/* Element i of the caller's array, whose elements are as large as the first says. */
weft_status wf_opts_take_at(void *copy, size_t today, const void *array, int64_t i,
                            const char *name);
/* The other way: writes a result of today's size to the caller's struct of `size` bytes, as far as
 * it goes. */
weft_status wf_opts_give(void *out, size_t size, const void *full, size_t today, const char *name);

/* ---- context --------------------------------------------------------------------------------- */

struct wf_pool;
struct wf_fs;

struct wf_device;

#define WF_MAX_GROUPS 64 /* of cores */
#define WF_MAX_OWN 64    /* devices with memory of their own */

struct weft_ctx {
    weft_allocator mem;
    _Atomic int64_t mem_used, mem_peak;
    _Atomic int64_t mem_refused; /* bytes of the last allocation that failed */
    int64_t mem_limit;
    struct wf_pool *pool;
    int n_groups; /* of cores: the devices cpu:0, cpu:1, … (device.c) */
    struct wf_pool *_Atomic group_pool[WF_MAX_GROUPS]; /* NULL: not needed yet */
    int n_own, n_drivers;
    struct wf_device *own[WF_MAX_OWN]; /* devices with memory of their own (devlist.c) */
    struct wf_device *home;            /* where functions live: own[0], NULL: the host's memory */
    const struct weft_device_driver *const *drivers; /* the caller's */
    bool strict_devices; /* an op without a kernel for its device is an error */
    bool soft_placement;
    _Atomic bool soft_told; /* that something was placed elsewhere */
    int spin_us;            /* of pools, as for wf_pool_new */
    weft_simd simd;
    weft_kernels kernels;
    uint64_t seed;
    bool flush_denormals;
    weft_log_fn *log;
    void *log_arg;
    int64_t (*now_ns)(void *arg);
    void *now_arg;
    const struct wf_fs *fs;
    const struct wf_sys *sys; /* of the network: base/sys.h */
    void *_Atomic ops; /* the op layer's table, created on first use; freed through ops_free */
    void (*_Atomic ops_free)(weft_ctx *ctx);
    void *_Atomic inproc; /* the net layer's nodes of this process, in the same way */
    void (*_Atomic inproc_free)(weft_ctx *ctx);
};

int64_t wf_now(const weft_ctx *ctx); /* ns, monotonic */
int wf_usable_cpus(void);            /* number of CPUs this thread may run on; at least 1 */
/* Keeps this thread, and pools that it creates, on the k-th of n groups of the CPUs it may run on.
 * Does nothing if there are fewer CPUs than groups. */
void wf_use_group(int k, int n);

/* Instruction sets: what this CPU (and its system) supports, what a level is compiled for, and the
 * highest level that needs nothing else. */
enum wf_cpu_feature {
    WF_CPU_AVX2 = 1,
    WF_CPU_FMA = 2,
    WF_CPU_F16C = 4,
    WF_CPU_AVX512F = 8,
    WF_CPU_AVX512BW = 16,
    WF_CPU_AVX512DQ = 32,
    WF_CPU_AVX512VL = 64,
    WF_CPU_AVX512BF16 = 128,
    WF_CPU_ALL = 255
};
unsigned wf_cpu_features(void);
unsigned wf_simd_needs(weft_simd level);
weft_simd wf_simd_of(unsigned features);

void wf_log(const weft_ctx *ctx, int level, const char *fmt, ...) WEFT_PRINTF(3, 4);

/* ---- memory ---------------------------------------------------------------------------------- */

/* Zeroed, 64-byte aligned; large blocks start on a huge page. NULL if out of memory or over the
 * limit. */
void *wf_alloc(weft_ctx *ctx, size_t bytes);
/* The same with undefined contents, for memory that is overwritten at once. */
void *wf_alloc_raw(weft_ctx *ctx, size_t bytes);
/* Memory that does not come from the allocator counts, too; false: beyond the limit. */
bool wf_mem_charge(weft_ctx *ctx, int64_t bytes);
void wf_mem_release(weft_ctx *ctx, int64_t bytes);
void wf_free(weft_ctx *ctx, void *p);
/* n * size with an overflow check; NULL on overflow. */
void *wf_alloc_n(weft_ctx *ctx, int64_t n, size_t size);
char *wf_strdup(weft_ctx *ctx, const char *s);
/* Grows an array to hold at least `need` items, by doubling. *cap is updated; the new part is
 * zero. */
weft_status wf_grow(weft_ctx *ctx, void *array_ptr, int64_t *cap, int64_t need, size_t size);
/* The status for a failed allocation: ENOMEM or ELIMIT, with text naming `what`. bytes 0: those of
 * the context's last failed one. */
weft_status wf_err_nomem(weft_ctx *ctx, size_t bytes, const char *what);

/* Checked arithmetic: false on overflow or negative result. */
bool wf_mul_i64(int64_t a, int64_t b, int64_t *out);
bool wf_add_i64(int64_t a, int64_t b, int64_t *out);

static inline int64_t wf_round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}
static inline int64_t wf_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t wf_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
#define WF_COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

/* Arena: many small allocations that are freed together. */
struct wf_arena {
    weft_ctx *ctx;
    struct wf_arena_block *last;
};
void wf_arena_init(struct wf_arena *a, weft_ctx *ctx);
void *wf_arena_alloc(struct wf_arena *a, size_t bytes); /* zeroed, 16-byte aligned */
char *wf_arena_strdup(struct wf_arena *a, const char *s);
void wf_arena_free(struct wf_arena *a);

/* ---- text ------------------------------------------------------------------------------------ */

/* A growing byte buffer with a mandatory cap. The first failure sticks; check `st` once at the
 * end. */
struct wf_buf {
    weft_ctx *ctx;
    char *data; /* always NUL-terminated after something was added */
    int64_t len, cap, max;
    weft_status st;
};
void wf_buf_init(struct wf_buf *b, weft_ctx *ctx, int64_t max);
void wf_buf_add(struct wf_buf *b, const void *bytes, int64_t n);
void wf_buf_printf(struct wf_buf *b, const char *fmt, ...) WEFT_PRINTF(2, 3);
void wf_buf_free(struct wf_buf *b);

/* Bytes of the UTF-8 character at the beginning of s[0..n); 0 if it is not valid (overlong, a
 * surrogate, beyond U+10FFFF, truncated). */
int wf_utf8_length(const char *s, int64_t n);
bool wf_utf8_ok(const char *s);

/* snprintf independent of the locale: the decimal point is a period in every host program. wf_err,
 * wf_log and wf_buf_printf use it too (format.c lists what it supports). Returns the length of the
 * whole text. */
int wf_vsnprintf(char *to, size_t room, const char *fmt, va_list args);
int wf_snprintf(char *to, size_t room, const char *fmt, ...) WEFT_PRINTF(3, 4);

/* The text of an errno, in English: "No space left on device". */
const char *wf_errno_text(int e);

/* For calls into libraries that read or write numbers by the locale: between enter and leave, this
 * thread (and no other) has the C locale. */
typedef struct wf_locale {
    void *plain, *before;
} wf_locale;
wf_locale wf_plain_locale_enter(void);
void wf_plain_locale_leave(wf_locale saved);

/* ASCII letters and digits in any locale; false for everything beyond ASCII. */
static inline bool wf_is_digit(char c)
{
    return c >= '0' && c <= '9';
}
static inline bool wf_is_lower(char c)
{
    return c >= 'a' && c <= 'z';
}
static inline bool wf_is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}
static inline bool wf_is_alpha(char c)
{
    return wf_is_lower(c) || wf_is_upper(c);
}
static inline bool wf_is_alnum(char c)
{
    return wf_is_alpha(c) || wf_is_digit(c);
}
static inline bool wf_is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}
static inline bool wf_is_xdigit(char c)
{
    return wf_is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
static inline char wf_to_lower(char c)
{
    return wf_is_upper(c) ? (char)(c - 'A' + 'a') : c;
}
/* Whether two words are equal, ignoring case. */
bool wf_same_word(const char *a, const char *b);

/* ---- map: string -> int64 -------------------------------------------------------------------- */

struct wf_map {
    weft_ctx *ctx;
    struct wf_map_slot *slots;
    int64_t n, cap;
};
void wf_map_init(struct wf_map *m, weft_ctx *ctx);
/* The key is borrowed and must outlive the map. */
weft_status wf_map_put(struct wf_map *m, const char *key, int64_t value);
bool wf_map_get(const struct wf_map *m, const char *key, int64_t *value);
void wf_map_free(struct wf_map *m);

uint64_t wf_hash64(const void *bytes, size_t n, uint64_t seed);

/* CRC32C (Castagnoli) of n bytes that follow those with CRC `crc`; start with 0. */
uint32_t wf_crc32c(uint32_t crc, const void *bytes, int64_t n);
/* For three buffers at the same time: crc[i] is continued by bytes[i]. Three short ones take the
 * time of one. */
void wf_crc32c_3(const void *const bytes[3], const int64_t n[3], uint32_t crc[3]);
/* The same without products of 512 bits, and with the table, on any CPU: the definition. */
uint32_t wf_crc32c_chains(uint32_t crc, const void *bytes, int64_t n);
uint32_t wf_crc32c_table(uint32_t crc, const void *bytes, int64_t n);

/* ---- threads --------------------------------------------------------------------------------- */

/* A pool of `n_threads` threads, including the caller. wf_pool_for runs fn for every tile and
 * returns when all are done; which thread runs which tile is not defined, so results must not
 * depend on it. `thread` is below wf_pool_size, and no two tiles run at the same time with the same
 * number. If the pool is busy with another caller's tiles, these run serially in the caller. Takes
 * no lock. */
typedef void wf_tile_fn(void *arg, int64_t tile, int thread);
/* spin_us: how long an idle thread looks for work before it sleeps; < 0: the default. */
weft_status wf_pool_new(weft_ctx *ctx, int n_threads, int spin_us, struct wf_pool **out);
void wf_pool_free(struct wf_pool *pool);
void wf_pool_for(struct wf_pool *pool, int64_t n_tiles, wf_tile_fn *fn, void *arg);
int wf_pool_size(const struct wf_pool *pool);
/* While other threads compute on the same cores: idle threads of the pool sleep at once instead of
 * looking for work. */
void wf_pool_rest(struct wf_pool *pool, bool on);

/* The floating-point mode that kernels run in: round to nearest, denormals kept or flushed as the
 * context says, no traps. enter returns the caller's mode for leave. */
uint64_t wf_fpmode_enter(bool flush_denormals);
void wf_fpmode_leave(uint64_t saved);

/* ---- files ----------------------------------------------------------------------------------- */

/* The result of stat for a path. */
struct wf_file_info {
    int64_t size, mtime_ns;
    bool plain, folder; /* neither: a pipe, a device, or (stat_at only) a symbolic link */
};

/* The file seam, so that tests can fail each call in turn. All return 0 or a negative errno. */
struct wf_fs {
    int (*open)(void *arg, const char *path, int flags, int mode); /* a descriptor or -errno */
    int64_t (*read)(void *arg, int fd, void *buf, int64_t n);
    int64_t (*write)(void *arg, int fd, const void *buf, int64_t n);
    int64_t (*pread)(void *arg, int fd, void *buf, int64_t n, int64_t offset);
    int64_t (*seek)(void *arg, int fd, int64_t offset); /* from the beginning */
    int64_t (*size)(void *arg, int fd);
    int (*truncate)(void *arg, int fd, int64_t size);
    int (*sync)(void *arg, int fd);
    int (*close)(void *arg, int fd);
    int (*rename)(void *arg, const char *from, const char *to);
    int (*unlink)(void *arg, const char *path);
    int (*stat)(void *arg, const char *path, struct wf_file_info *out);
    /* Calls each(each_arg, path) for every match of a shell pattern, in no particular order; no
     * match is not an error. */
    int (*glob)(void *arg, const char *pattern, int (*each)(void *each_arg, const char *path),
                void *each_arg);
    int (*mkdir)(void *arg, const char *path, int mode);
    int (*rmdir)(void *arg, const char *path);
    /* Calls each(each_arg, name) for every entry of a directory except "." and "..", in no
     * particular order. */
    int (*list)(void *arg, const char *path, int (*each)(void *each_arg, const char *name),
                void *each_arg);
    /* Locks an open file against other processes until it is closed; -EWOULDBLOCK if another holds
     * it. */
    int (*lock)(void *arg, int fd);
    /* The same in a directory that is open as `dir`, by plain names; a symbolic link is never
     * followed. */
    int (*open_at)(void *arg, int dir, const char *name, int flags, int mode);
    int (*rename_at)(void *arg, int dir, const char *from, const char *to);
    int (*link_at)(void *arg, int dir, const char *from,
                   const char *to); /* -EEXIST if `to` is there */
    int (*unlink_at)(void *arg, int dir, const char *name, bool folder);
    int (*stat_at)(void *arg, int dir, const char *name, struct wf_file_info *out);
    int (*mkdir_at)(void *arg, int dir, const char *name, int mode);
    int (*list_at)(void *arg, int dir, int (*each)(void *each_arg, const char *name),
                   void *each_arg);
    uint64_t (*unique)(void *arg); /* a unique number, for temporary names */
    void *arg;
};
extern const struct wf_fs wf_fs_posix;

/* The status and text for a negative errno of the seam: "path: what: No space left on device". */
weft_status wf_file_err(int64_t neg_errno, const char *path, const char *what);
/* Reads a whole file of at most `max` bytes; *data is NUL-terminated and freed with wf_free. */
weft_status wf_file_read(weft_ctx *ctx, const char *path, int64_t max, char **data, int64_t *n);
/* Replaces a file atomically: a temporary file next to it, fsync, rename. */
weft_status wf_file_write(weft_ctx *ctx, const char *path, const void *data, int64_t n);

/* A file that appears complete at `path`, or not at all. It is written under a temporary name in
 * the same directory, which is held open: a link planted there is neither followed nor written
 * through, and of two writers of one path the later one wins completely. Files left for this path
 * by dead writers are removed; a living writer holds a lock on its file. */
struct wf_newfile {
    weft_ctx *ctx;
    int dir, fd; /* -1: none */
    char *path, *name, *tmp;
};
/* f->fd is open for reading and writing. After an error there is nothing to undo. */
weft_status wf_newfile_open(struct wf_newfile *f, weft_ctx *ctx, const char *path);
/* Syncs, closes and puts the file in place, or removes it after an error st. With `keep` the
 * descriptor stays open, for the caller to close. */
weft_status wf_newfile_close(struct wf_newfile *f, weft_status st, bool keep);
/* The same, but the file appears as `name` in its directory, and only if there is none of this
 * name: of several writers, exactly one gets *created. The directory is synced. */
weft_status wf_newfile_link(struct wf_newfile *f, weft_status st, const char *name, bool *created);

/* Opens for writing the path that the user gave, in place: a symbolic link is -ELOOP, unless it
 * leads to something that is not a file (/dev/stdout). */
int wf_file_open_out(weft_ctx *ctx, const char *path, int flags, int mode);
/* Splits a path into its directory ("." if there is none) and the last name; EINVAL for a path
 * without one. Freed with wf_free. */
weft_status wf_path_split(weft_ctx *ctx, const char *path, char **folder, char **name);
/* Deletes a file, a link (never its target), or a directory with its files; ENOENT is OK, a
 * directory inside the directory is not. */
weft_status wf_file_remove(weft_ctx *ctx, const char *path);

#endif
