/* map.c - the device map: which task computes on what.
 *
 *   worker: threads=1; worker/1: gpu:0 memory=4G; ps: threads=2
 *
 * A pure function of text. */
#include "base/number.h"
#include "train/program/program.h"

#define BLANKS " \t\n"

static weft_status wrong(const char *map, const char *at, size_t n, const char *what)
{
    return wf_err(WEFT_EPARSE, "device map: '%.*s' at character %lld: %s", (int)(n > 40 ? 40 : n),
                  at, (long long)(at - map), what);
}

/* "4G", "512M", "100": bytes. */
static bool read_bytes(const char *text, int64_t *out)
{
    char digits[24];
    size_t n = strspn(text, "0123456789");
    int64_t unit = 1;

    if (n == 0 || n >= sizeof digits)
        return false;
    memcpy(digits, text, n);
    digits[n] = '\0';
    if (text[n]) {
        const char *units = "KMGT", *u = strchr(units, text[n]);

        if (!u || text[n + 1])
            return false;
        for (const char *k = units; k <= u; k++)
            unit *= 1024;
    }
    return wf_text_i64(digits, out) && *out > 0 && *out <= INT64_MAX / unit && (*out *= unit) > 0;
}

/* One word of an entry. */
static weft_status read_word(const char *map, const char *at, size_t n, weft_worker_config *c)
{
    char word[64];
    int64_t v;

    if (n >= sizeof word)
        return wrong(map, at, n, "it is too long");
    memcpy(word, at, n);
    word[n] = '\0';
    if (strncmp(word, "threads=", 8) == 0) {
        if (!wf_text_i64(word + 8, &v) || v < 1 || v > 4096)
            return wrong(map, at, n, "threads=1 to 4096 are possible");
        c->threads = (int)v;
    } else if (strncmp(word, "memory=", 7) == 0) {
        if (!read_bytes(word + 7, &v))
            return wrong(map, at, n, "bytes are expected, as memory=512M or memory=4G");
        c->memory = v;
    } else if (strchr(word, '=')) {
        return wrong(map, at, n, "threads= and memory= are possible");
    } else {
        wf_snprintf(c->devices, sizeof c->devices, "%s", word);
    }
    return WEFT_OK;
}

/* Whether an entry is for a task: "worker/1", "worker", "all". */
static bool fits(const char *entry, size_t n, const char *task)
{
    size_t role = strcspn(task, "/");

    return (n == 3 && strncmp(entry, "all", 3) == 0) ||
           (strncmp(entry, task, n) == 0 && (n == role || !task[n]));
}

static weft_status read_entry(const char *map, const char *at, size_t n, const char *task,
                              weft_worker_config *c)
{
    size_t colon, name;
    weft_status st = WEFT_OK;

    for (colon = 0; colon < n && at[colon] != ':'; colon++)
        ;
    if (colon == n)
        return wrong(map, at, n, "TASK: DEVICE threads=N memory=BYTES is expected");
    for (name = colon; name > 0 && strchr(BLANKS, at[name - 1]);)
        name--;
    if (name == 0)
        return wrong(map, at, n, "it names no task");
    for (size_t i = colon + 1; i < n && !st;) {
        size_t end = i;

        while (end < n && !strchr(BLANKS, at[end]))
            end++;
        if (end > i) {
            weft_worker_config ignored = {.size = sizeof ignored};

            st = read_word(map, at + i, end - i, fits(at, name, task) ? c : &ignored);
        }
        i = end + 1;
    }
    return st;
}

weft_status wf_device_map(const char *map, const char *task, weft_worker_config *out)
{
    weft_worker_config c = *out;
    weft_status st = WEFT_OK;

    for (const char *p = map; p && *p && !st;) {
        size_t n;

        p += strspn(p, BLANKS ";");
        n = strcspn(p, ";");
        if (n)
            st = read_entry(map, p, n, task, &c);
        p += n;
    }
    if (!st)
        *out = c;
    return st;
}

/* An entry names a task of the job, a role, or all. */
static weft_status check_name(const char *map, const char *at, size_t n, const weft_cluster *c)
{
    for (int i = 0; i < weft_cluster_tasks(c); i++) {
        weft_task t = {.size = sizeof t};

        if (weft_cluster_task(c, i, &t) == WEFT_OK && fits(at, n, t.name))
            return WEFT_OK;
    }
    return wrong(map, at, n, "the job has no such task");
}

weft_status wf_device_map_check(const char *map, const weft_cluster *c)
{
    weft_worker_config ignored = {.size = sizeof ignored};
    weft_status st = wf_device_map(map, "worker/0", &ignored);

    for (const char *p = map; p && *p && !st;) {
        size_t n, name;

        p += strspn(p, BLANKS ";");
        n = strcspn(p, ";");
        for (name = 0; name < n && p[name] != ':'; name++)
            ;
        while (name > 0 && strchr(BLANKS, p[name - 1]))
            name--;
        if (n)
            st = check_name(map, p, name, c);
        p += n;
    }
    return st;
}
