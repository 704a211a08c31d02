/* npy.c - NumPy's array files, read and written. Object arrays (pickles) are refused. */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <sys/stat.h>

#include "cli.h"

#define MAX_HEADER 10000

static const struct {
    const char *descr;
    weft_dtype dtype;
} types[] = {
    {"<f4", WEFT_F32}, {"<f8", WEFT_F64}, {"<f2", WEFT_F16}, {"|i1", WEFT_I8},
    {"|u1", WEFT_U8},  {"<i4", WEFT_I32}, {"<i8", WEFT_I64}, {"|b1", WEFT_BOOL},
};
#define N_TYPES ((int)(sizeof types / sizeof *types))

/* The text after 'key': in the header's dictionary. */
static const char *find_key(const char *header, const char *key)
{
    char quoted[32];
    const char *p;

    snprintf(quoted, sizeof quoted, "'%s'", key);
    p = strstr(header, quoted);
    if (!p)
        return NULL;
    p += strlen(quoted);
    while (*p == ' ' || *p == ':')
        p++;
    return p;
}

static const char *parse_header(const char *header, weft_tensor *t)
{
    const char *descr = find_key(header, "descr"), *order = find_key(header, "fortran_order");
    const char *shape = find_key(header, "shape");

    if (!descr || !order || !shape || *descr != '\'' || *shape != '(')
        return "its header is malformed";
    if (strncmp(order, "False", 5))
        return "it is in Fortran order: save it with numpy.ascontiguousarray";
    for (int i = 0; i < N_TYPES; i++)
        if (!strncmp(descr + 1, types[i].descr, 3) && descr[4] == '\'')
            t->dtype = types[i].dtype;
    if (!t->dtype)
        return "its dtype is not one of f4 f8 f2 i1 u1 i4 i8 b1, little-endian";
    for (shape++; *shape != ')';) {
        char *end;
        long long n;

        if (!isdigit((unsigned char)*shape))
            return "its shape is malformed";
        errno = 0;
        n = strtoll(shape, &end, 10);
        if (errno || t->rank == WEFT_MAX_RANK)
            return "its shape is too large";
        t->dim[t->rank++] = n;
        for (shape = end; *shape == ' ' || *shape == ',';)
            shape++;
    }
    return weft_tensor_bytes(t) < 0 ? "its shape is too large" : NULL;
}

/* The header's text; NULL with a reason. */
static const char *read_header(FILE *f, char *header)
{
    unsigned char head[12];
    size_t n;

    if (fread(head, 1, 10, f) != 10 || memcmp(head, "\x93NUMPY", 6))
        return "it is no npy file";
    n = head[8] | (size_t)head[9] << 8;
    if (head[6] >= 2) {
        if (fread(head + 10, 1, 2, f) != 2)
            return "it ends in its header";
        n |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    }
    if (n > MAX_HEADER)
        return "its header is too long";
    if (fread(header, 1, n, f) != n)
        return "it ends in its header";
    header[n] = '\0';
    return NULL;
}

int npy_read(const char *path, weft_tensor *out)
{
    char header[MAX_HEADER + 1];
    FILE *f = fopen(path, "rb");
    const char *wrong;
    weft_tensor t = {.dtype = WEFT_NONE};
    struct stat s;
    size_t bytes = 0;

    if (!f)
        return fail(EXIT_INPUT, "%s: %s", path, strerror(errno));
    wrong = read_header(f, header);
    if (!wrong)
        wrong = parse_header(header, &t);
    if (!wrong) {
        bytes = (size_t)weft_tensor_bytes(&t);
        /* Believe the shape only as far as the file goes. */
        if (fstat(fileno(f), &s) || (S_ISREG(s.st_mode) && (size_t)s.st_size < bytes))
            wrong = "it is shorter than its shape says";
    }
    if (!wrong && !(t.data = malloc(bytes + 1)))
        wrong = "it does not fit in memory";
    if (!wrong && fread(t.data, 1, bytes, f) != bytes)
        wrong = "it is shorter than its shape says";
    fclose(f);
    if (wrong) {
        free(t.data);
        return fail(EXIT_INPUT, "%s: %s", path, wrong);
    }
    *out = t;
    return EXIT_DONE;
}

int npy_write(const char *path, const weft_tensor *t)
{
    char header[256] = "";
    const char *descr = NULL;
    int at, bad;
    FILE *f;

    for (int i = 0; i < N_TYPES; i++)
        if (types[i].dtype == t->dtype)
            descr = types[i].descr;
    if (!descr)
        return fail(EXIT_FAILED, "%s: npy has no %s: cast the value first", path,
                    weft_dtype_name(t->dtype));
    at = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                  descr);
    for (int i = 0; i < t->rank; i++)
        at += snprintf(header + at, sizeof header - (size_t)at, "%lld,%s", (long long)t->dim[i],
                       i + 1 < t->rank ? " " : "");
    at += snprintf(header + at, sizeof header - (size_t)at, "), }");
    while ((10 + at + 1) % 64)
        header[at++] = ' ';
    header[at++] = '\n';
    f = fopen(path, "wb");
    if (!f)
        return fail(EXIT_FAILED, "%s: %s", path, strerror(errno));
    bad = fwrite("\x93NUMPY\x01\x00", 1, 8, f) != 8;
    bad |= fputc(at & 255, f) == EOF || fputc(at >> 8, f) == EOF;
    bad |= fwrite(header, 1, (size_t)at, f) != (size_t)at;
    bad |= fwrite(t->data, 1, (size_t)weft_tensor_bytes(t), f) != (size_t)weft_tensor_bytes(t);
    bad |= fclose(f) != 0;
    return bad ? fail(EXIT_FAILED, "%s: cannot write: %s", path, strerror(errno)) : EXIT_DONE;
}
