/* csv.c - what a row of a CSV file costs on one thread: finding its end, and reading 40 values.
 *
 * usage: csv [FILE]
 *
 * FILE is a table with a header of one label, 13 floats and 26 integers; without one such rows are
 * made up. One JSON line, best of nine passes: CPU time. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "data/table/csv_parse.h"
#include "data/table/scan.h"

enum { N_ROWS = 50000, N_FIELDS = 40, BATCH = 1024 };

static double cpu_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t next_word(uint64_t *s)
{
    *s ^= *s << 13;
    *s ^= *s >> 7;
    return *s ^= *s << 17;
}

static char *make_up(long *n)
{
    size_t cap = (size_t)N_ROWS * 480;
    char *p = malloc(cap);
    uint64_t s = 1;
    size_t at = 0;

    if (!p)
        exit(1);
    at += (size_t)snprintf(p, cap, "header\n");
    for (int r = 0; r < N_ROWS; r++) {
        at += (size_t)snprintf(p + at, cap - at, "%d", (int)(next_word(&s) % 2));
        for (int i = 0; i < 13; i++) {
            double v = 0;

            for (int k = 0; k < 12; k++)
                v += (double)(next_word(&s) % 1000000) * 1e-6;
            at += (size_t)snprintf(p + at, cap - at, ",%.6g", v - 6);
        }
        for (int i = 0; i < 26; i++)
            at += (size_t)snprintf(p + at, cap - at, ",%d", (int)(next_word(&s) % 100000));
        at += (size_t)snprintf(p + at, cap - at, "\n");
    }
    *n = (long)at;
    return p;
}

static char *load(const char *path, long *n)
{
    FILE *f = fopen(path, "rb");
    char *p = NULL;

    if (f && !fseek(f, 0, SEEK_END) && (*n = ftell(f)) >= 0 && !fseek(f, 0, SEEK_SET))
        p = malloc((size_t)*n + 1);
    if (!p || fread(p, 1, (size_t)*n, f) != (size_t)*n) {
        perror(path);
        exit(1);
    }
    fclose(f);
    return p;
}

static void layout_of(struct wf_row_layout *l, struct wf_field *field, struct wf_field_run *run)
{
    for (int f = 0; f < N_FIELDS; f++)
        field[f] = (struct wf_field){
            .name = "c",
            .kind = f == 0 || f > 13 ? WF_FIELD_I64 : WF_FIELD_F32,
            .col = 0,
        };
    run[0] = (struct wf_field_run){WF_FIELD_I64, 0, 1};
    run[1] = (struct wf_field_run){WF_FIELD_F32, 1, 14};
    run[2] = (struct wf_field_run){WF_FIELD_I64, 14, 40};
    *l = (struct wf_row_layout){
        .format = {',', '"', 0},
        .n_fields = N_FIELDS,
        .field = field,
        .n_runs = 3,
        .run = run,
    };
}

/* All rows, batch by batch into the same places. */
static int64_t parse_all(const struct wf_row_layout *l, const char *p, const char *end)
{
    static int64_t label[BATCH], cat[BATCH][26];
    static float num[BATCH][13];
    struct wf_field_place place[N_FIELDS];
    struct wf_csv_out o = {.layout = l, .place = place};
    int64_t n = 0;

    place[0] = (struct wf_field_place){(char *)label, 8, ','};
    for (int f = 1; f < 14; f++)
        place[f] = (struct wf_field_place){(char *)&num[0][f - 1], sizeof num[0], ','};
    for (int f = 14; f < N_FIELDS; f++)
        place[f] = (struct wf_field_place){(char *)&cat[0][f - 14], sizeof cat[0],
                                           f == N_FIELDS - 1 ? '\n' : ','};
    for (; p < end; n++) {
        p = wf_csv_row(&o, p, end, n % BATCH);
        if (!p) {
            fprintf(stderr, "row %lld: %s\n", (long long)n, weft_error());
            exit(1);
        }
    }
    return n;
}

static int64_t scan_all(const struct wf_row_format *f, weft_simd level, const char *p,
                        const char *end)
{
    struct wf_scan s;
    int64_t n = 0;

    wf_scan_init(&s, f, level);
    while (p < end) {
        wf_scan_begin(&s);
        wf_scan_rows(&s, p, end - p, BATCH);
        if (!s.n_rows)
            break;
        n += s.n_rows;
        p += s.end;
    }
    return n;
}

int main(int argc, char **argv)
{
    struct wf_field field[N_FIELDS];
    struct wf_field_run run[3];
    struct wf_row_layout l;
    long n;
    char *text = argc > 1 ? load(argv[1], &n) : make_up(&n);
    const char *first = memchr(text, '\n', (size_t)n), *end = text + n;
    double scan[2] = {1e9, 1e9}, parse = 1e9;
    int64_t rows = 0;

    if (!first)
        return 1;
    first++;
    layout_of(&l, field, run);
    for (int i = 0; i < 9; i++) {
        for (int k = 0; k < 2; k++) {
            weft_simd level = k ? weft_simd_best() : WEFT_SIMD_PORTABLE;
            double t = cpu_s();

            rows = scan_all(&l.format, level, first, end);
            scan[k] = fmin(scan[k], cpu_s() - t);
        }
        double t = cpu_s();

        if (parse_all(&l, first, end) != rows)
            return 1;
        parse = fmin(parse, cpu_s() - t);
    }
    printf(
        "{\"bench\":\"csv\",\"rows\":%lld,\"bytes_row\":%.0f,\"scan_base_gb_s\":%.2f,"
        "\"scan_gb_s\":%.2f,\"scan_ns_row\":%.1f,\"parse_ns_row\":%.1f,\"parse_ns_value\":%.2f}\n",
        (long long)rows, (double)(end - first) / (double)rows,
        1e-9 * (double)(end - first) / scan[0], 1e-9 * (double)(end - first) / scan[1],
        1e9 * scan[1] / (double)rows, 1e9 * parse / (double)rows,
        1e9 * parse / (double)rows / N_FIELDS);
    free(text);
    return 0;
}
