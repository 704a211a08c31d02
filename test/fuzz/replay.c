/* replay.c - runs a fuzzer over files, and searches a little by itself.
 *
 * Linked with each fuzzer in ordinary builds, with any compiler: every file named on the command
 * line, and every file of every folder named there, is one input. The empty input is always tried
 * first. A folder that does not exist holds nothing; a file that cannot be read is a failure.
 * -search=S: for S seconds of this process' time inputs are changed at random (bits, bytes,
 * numbers, pieces cut out, doubled, moved from one to another) and tried; the same ones each time
 * unless FUZZ_SEED is set. One that fails is left in the file fuzz-failed. libFuzzer (make fuzz)
 * searches better, led by what the code does. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define INPUT_CAP_BYTES (64u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

/* ---- inputs ---------------------------------------------------------------------------------- */

struct input {
    uint8_t *data;
    size_t n;
};

static struct input *inputs;
static int n_inputs;
static struct input trying; /* what is left behind when it fails */

static void leave_behind(void)
{
    int fd = open("fuzz-failed", O_WRONLY | O_CREAT | O_TRUNC, 0666);

    if (fd >= 0 && trying.data && write(fd, trying.data, trying.n) == (ssize_t)trying.n)
        close(fd);
}

static void on_signal(int sig)
{
    leave_behind();
    signal(sig, SIG_DFL);
    raise(sig);
}

/* Of the sanitizers, where there are any. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* An exact copy on the heap, so that the address sanitizer sees any read past the end. */
static void try_input(const uint8_t *data, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);

    if (!copy)
        abort();
    if (n)
        memcpy(copy, data, n);
    trying = (struct input){copy, n};
    LLVMFuzzerTestOneInput(copy, n);
    trying = (struct input){NULL, 0};
    free(copy);
}

static int replay_file(const char *path, long long size_bytes)
{
    int failed = 1;
    uint8_t *data = NULL;
    struct input *more;
    FILE *f = NULL;

    if (size_bytes < 0 || size_bytes > INPUT_CAP_BYTES) {
        fprintf(stderr, "%s: %lld bytes is more than an input may have\n", path, size_bytes);
        return 1;
    }
    f = fopen(path, "rb");
    data = malloc(size_bytes ? (size_t)size_bytes : 1);
    more = realloc(inputs, ((size_t)n_inputs + 1) * sizeof *inputs);
    if (more)
        inputs = more;
    if (!f || !data || !more || fread(data, 1, (size_t)size_bytes, f) != (size_t)size_bytes) {
        perror(path);
        free(data);
        goto out;
    }
    inputs[n_inputs++] = (struct input){data, (size_t)size_bytes};
    try_input(data, (size_t)size_bytes);
    failed = 0;
out:
    if (f)
        fclose(f);
    return failed;
}

static int replay_dir(const char *path, int *n_files)
{
    int n_failed = 0;
    struct dirent *entry;
    DIR *dir = opendir(path);

    if (!dir) {
        perror(path);
        return 1;
    }
    while ((entry = readdir(dir))) {
        char file[4096];
        struct stat info;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        if (stat(file, &info)) {
            perror(file);
            n_failed++;
        } else if (S_ISREG(info.st_mode)) {
            n_failed += replay_file(file, (long long)info.st_size);
            ++*n_files;
        }
    }
    closedir(dir);
    return n_failed;
}

/* ---- searching ------------------------------------------------------------------------------- */

static uint64_t state;

static uint32_t roll(uint32_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return n ? (uint32_t)(state >> 33) % n : 0;
}

/* Numbers that are the edge of something. */
static uint64_t edge(void)
{
    static const uint64_t edges[] = {
        0,         1,         0x7f,       0x80,       0xff,
        0x7fff,    0xffff,    0x7fffffff, 0xffffffff, (uint64_t)1 << 32,
        INT64_MAX, UINT64_MAX};

    return edges[roll(12)] + roll(3) - 1;
}

/* One change of the n bytes at p, which has room for cap of them; the new length. */
static size_t change(uint8_t *p, size_t n, size_t cap)
{
    const struct input *other = &inputs[roll((uint32_t)n_inputs)];
    size_t at = roll((uint32_t)n + 1), len = roll(1 + roll(64)), from;
    uint64_t v = edge();

    len = len > n - at ? n - at : len;
    switch (n ? roll(7) : 5) {
    case 0: p[at ? at - 1 : 0] ^= (uint8_t)(1 << roll(8)); return n;
    case 1: p[at ? at - 1 : 0] = (uint8_t)roll(256); return n;
    case 2: /* a number, in either order */
        for (size_t i = 0, bytes = (size_t)1 << roll(4), big = roll(2); i < bytes && at + i < n;
             i++)
            p[at + i] = (uint8_t)(v >> 8 * (big ? bytes - 1 - i : i));
        return n;
    case 3: /* cut out */ memmove(p + at, p + at + len, n - at - len); return n - len;
    case 4: /* doubled */
        if (n + len > cap)
            return n;
        memmove(p + at + len, p + at, n - at);
        return n + len;
    case 5: /* a piece of another */
        from = roll((uint32_t)other->n + 1);
        len = roll(1 + roll(128));
        len = len > other->n - from ? other->n - from : len;
        if (at + len > cap)
            return n;
        memmove(p + at, other->data + from, len);
        return at + len > n ? at + len : n;
    default: return at; /* the rest is missing */
    }
}

static long search(double seconds)
{
    enum { ROOM = 4096 };
    clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);
    long n_tried = 0;

    for (; n_inputs && clock() < end; n_tried++) {
        const struct input *in = &inputs[roll((uint32_t)n_inputs)];
        size_t n = in->n, cap = in->n + ROOM;
        uint8_t *p = malloc(cap);

        if (!p)
            abort();
        if (n)
            memcpy(p, in->data, n);
        for (uint32_t i = 0, times = 1 + roll(1 + roll(8)); i < times; i++)
            n = change(p, n, cap);
        try_input(p, n);
        free(p);
    }
    return n_tried;
}

int main(int argc, char **argv)
{
    int n_failed = 0, n_files = 0;
    double seconds = 0;
    const char *seed = getenv("FUZZ_SEED");
    long n_tried;

    state = seed ? (uint64_t)atoll(seed) : 1;
    signal(SIGABRT, on_signal);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(leave_behind);
    else
        signal(SIGSEGV, on_signal);
    try_input((const uint8_t *)"", 0);
    for (int i = 1; i < argc; i++) {
        struct stat info;

        if (!strncmp(argv[i], "-search=", 8))
            seconds = atof(argv[i] + 8);
        if (stat(argv[i], &info))
            continue;
        if (S_ISDIR(info.st_mode)) {
            n_failed += replay_dir(argv[i], &n_files);
        } else {
            n_failed += replay_file(argv[i], (long long)info.st_size);
            n_files++;
        }
    }
    n_tried = search(seconds);
    printf("%d inputs replayed, %d unreadable, %ld more tried\n", n_files, n_failed, n_tried);
    for (int i = 0; i < n_inputs; i++)
        free(inputs[i].data);
    free(inputs);
    return n_failed ? 1 : 0;
}
