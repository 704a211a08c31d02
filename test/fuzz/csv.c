/* csv.c - rows of CSV text, on anything: the first byte chooses how it is written, the rest is the
 * text. Rows end where the scanner says, shortcuts and careful parsing read the same values, and no
 * byte outside is read. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/table/csv_parse.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_FIELDS = 6 };

/* What a row became. */
struct row {
    float f;
    int64_t i, hex;
    double d;
    weft_str s;
};

struct reader {
    struct wf_row_layout layout;
    struct wf_field field[N_FIELDS];
    struct wf_field_run run[N_FIELDS];
    struct wf_field_place place[N_FIELDS];
    struct wf_csv_out out;
    struct row row;
    char *text[64]; /* requested room */
    int n_text;
};

static weft_status more(void *arg, int64_t bytes, char **out)
{
    struct reader *r = arg;

    if (r->n_text == 64)
        free(r->text[--r->n_text]);
    *out = r->text[r->n_text++] = malloc((size_t)bytes + 1);
    return *out ? WEFT_OK : WEFT_ENOMEM;
}

static void reader_init(struct reader *r, const struct wf_row_format *format, bool careful)
{
    static const enum wf_field_kind kind[N_FIELDS] = {WF_FIELD_F32,  WF_FIELD_I64, WF_FIELD_STR,
                                                      WF_FIELD_SKIP, WF_FIELD_F64, WF_FIELD_HEX};
    static const weft_str missing[] = {{"NA", 2}};
    char *to[N_FIELDS] = {(char *)&r->row.f, (char *)&r->row.i,  (char *)&r->row.s, NULL,
                          (char *)&r->row.d, (char *)&r->row.hex};

    memset(r, 0, sizeof *r);
    for (int f = 0; f < N_FIELDS; f++) {
        r->field[f] = (struct wf_field){.name = "c", .kind = kind[f], .has_default = f != 1};
        r->run[f] = (struct wf_field_run){kind[f], f, f + 1};
        r->place[f] =
            (struct wf_field_place){to[f], 0, f + 1 == N_FIELDS ? '\n' : format->delimiter};
    }
    r->field[2].has_default = false;
    r->layout = (struct wf_row_layout){.format = *format,
                                       .n_fields = N_FIELDS,
                                       .field = r->field,
                                       .n_runs = N_FIELDS,
                                       .run = r->run,
                                       .n_missing = 1,
                                       .missing = (weft_str *)missing,
                                       .careful = careful};
    r->out = (struct wf_csv_out){.layout = &r->layout, .place = r->place, .more = more, .arg = r};
}

static void reader_done(struct reader *r)
{
    while (r->n_text)
        free(r->text[--r->n_text]);
}

static void same_row(const struct row *a, const struct row *b)
{
    if (memcmp(&a->f, &b->f, sizeof a->f) || a->i != b->i || a->hex != b->hex ||
        memcmp(&a->d, &b->d, sizeof a->d) || a->s.n != b->s.n ||
        (a->s.n && memcmp(a->s.data, b->s.data, (size_t)a->s.n)))
        abort();
}

/* One row at p; end is the end of all text. */
static void try_row(const struct wf_row_format *f, const char *p, const char *behind,
                    const char *end)
{
    struct reader fast, careful;
    const char *a, *b;

    reader_init(&fast, f, false);
    reader_init(&careful, f, true);
    a = wf_csv_row(&fast.out, p, end, 0);
    b = wf_csv_row(&careful.out, p, end, 0);
    if (a != b || (a && a != behind))
        abort();
    if (!a && fast.out.st != careful.out.st)
        abort();
    if (a)
        same_row(&fast.row, &careful.row);
    reader_done(&fast);
    reader_done(&careful);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct wf_row_format formats[] = {
        {',', '"', 0}, {'\t', 0, 0}, {';', '\'', '#'}, {',', '"', '#'}};
    struct wf_scan scan;
    const struct wf_row_format *f;
    const char *p, *end;

    if (size < 1)
        return 0;
    f = &formats[data[0] % 4];
    p = (const char *)data + 1;
    end = (const char *)data + size;
    wf_scan_init(&scan, f, data[0] & 4 ? WEFT_SIMD_PORTABLE : weft_simd_best());
    while (p < end) {
        const char *row = p, *behind;

        wf_scan_begin(&scan);
        if (wf_scan_rows(&scan, p, end - p, 1))
            behind = p + scan.end;
        else if (wf_scan_rest(&scan, p, end - p))
            behind = end;
        else
            break;
        while (row < behind && wf_scan_no_row(f, row, behind))
            row = wf_scan_row_end(f, row, behind);
        if (row == behind || wf_scan_row_end(f, row, end) != behind)
            abort();
        try_row(f, row, behind, end);
        p = behind;
    }
    return 0;
}
