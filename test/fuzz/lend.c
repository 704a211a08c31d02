/* lend.c - fuzzer: requests for data files. Whatever the bytes, an answer: nothing but what the
 * job names is looked at, and no more than a block of it is given. */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "cluster/lend.h"
#include "weft/weft.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const named[] = {"/named/data.bin", "/named/part*.csv", "/named/images"};
static const struct wf_lend_files files = {"/named", 3, named};

static void check(const char *path)
{
    if (!wf_lend_names(&files, path) || strncmp(path, "/named/", 7) != 0 || strstr(path, "/../"))
        abort();
}

static int fake_open(void *arg, const char *path, int flags, int mode)
{
    (void)arg;
    (void)flags;
    (void)mode;
    check(path);
    return 3;
}

static int64_t fake_pread(void *arg, int fd, void *buf, int64_t n, int64_t offset)
{
    (void)arg;
    (void)fd;
    if (n < 0 || n > WF_LEND_BLOCK || offset < 0)
        abort();
    memset(buf, 1, (size_t)n);
    return n;
}

static int fake_close(void *arg, int fd)
{
    (void)arg;
    (void)fd;
    return 0;
}

static int fake_stat(void *arg, const char *path, struct wf_file_info *out)
{
    (void)arg;
    check(path);
    *out = (struct wf_file_info){.size = 10, .plain = true};
    return 0;
}

static int fake_names(void *arg, const char *path, int (*each)(void *each_arg, const char *name),
                      void *each_arg)
{
    (void)arg;
    check(path);
    return each(each_arg, "/named/part1.csv");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static weft_ctx *ctx;
    static struct wf_fs fs = {.open = fake_open,
                              .pread = fake_pread,
                              .close = fake_close,
                              .stat = fake_stat,
                              .glob = fake_names,
                              .list = fake_names};
    unsigned char head[WF_LEND_ANSWER];
    struct wf_buf payload;
    int64_t rc;

    if (!ctx) {
        if (weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &ctx))
            abort();
        ctx->fs = &fs;
    }
    wf_buf_init(&payload, ctx, WF_LEND_NAMES);
    wf_lend_answer(ctx, &files, data, (int64_t)size, head, &payload);
    rc = (int64_t)wf_get_le64(head);
    if ((rc < 0 && payload.len) || payload.len > WF_LEND_BLOCK)
        abort();
    wf_buf_free(&payload);
    return 0;
}
