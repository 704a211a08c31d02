/* lend_test.c - data files that one task reads for another: what is lent and what is not, blocks
 * that are kept, lenders that die, requests that nobody should send. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "cluster/lend.h"
#include "weft/weft.h"

enum { BIG = 3 * WF_LEND_BLOCK + 1000 };

struct world {
    weft_ctx *ctx, *far; /* of lenders; of the borrower */
    char root[64], pattern[4][128], address[2][128];
    const char *list[4], *away[4], *at[2];
    struct wf_lender *lender[2];
    struct wf_borrower *b;
};

static void put(struct world *w, const char *name, int64_t n, int salt)
{
    char path[256];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", w->root, name);
    f = fopen(path, "w");
    assert_non_null(f);
    for (int64_t i = 0; i < n; i++)
        fputc((int)((i * 7 + i / 251 + salt) & 255), f);
    fclose(f);
}

static void lend(struct world *w, int i)
{
    struct wf_lend_opts o = {.task = i ? "ps/1" : "ps/0", .files = {w->root, 4, w->list}};

    snprintf(w->address[i], sizeof w->address[i], "uds:%s/s%d", w->root, i);
    w->at[i] = w->address[i];
    assert_int_equal(wf_lender_open(w->ctx, &o, w->address[i], NULL, 0, &w->lender[i]), WEFT_OK);
}

/* The job's data: big.bin, part*.csv, the directory images, and a file that does not exist. */
static void open_world(struct world *w, int64_t cache)
{
    static const char *const names[4] = {"big.bin", "part*.csv", "images", "absent.bin"};
    struct wf_borrow_opts o = {
        .task = "worker/1", .n_lenders = 2, .cache_bytes = cache, .timeout_ns = 2000000000};
    char path[128];

    memset(w, 0, sizeof *w);
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &w->ctx), WEFT_OK);
    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &w->far), WEFT_OK);
    snprintf(w->root, sizeof w->root, "/tmp/lend-XXXXXX");
    assert_non_null(mkdtemp(w->root));
    snprintf(path, sizeof path, "%s/images", w->root);
    mkdir(path, 0700);
    for (int i = 0; i < 4; i++) {
        snprintf(w->pattern[i], sizeof w->pattern[i], "%s/%s", w->root, names[i]);
        w->list[i] = w->pattern[i];
        w->away[i] = names[i]; /* the borrower's job file is in its current directory */
    }
    put(w, "big.bin", BIG, 1);
    put(w, "part1.csv", 10, 2);
    put(w, "part2.csv", 20, 3);
    put(w, "images/a.png", 30, 4);
    put(w, "secret.txt", 5, 5);
    lend(w, 0);
    lend(w, 1);
    o.files = (struct wf_lend_files){"", 4, w->away};
    o.address = w->at;
    assert_int_equal(wf_borrow_open(w->far, &o, &w->b), WEFT_OK);
}

static void close_world(struct world *w)
{
    char command[128];

    wf_borrow_close(w->b);
    wf_lender_close(w->lender[0]);
    wf_lender_close(w->lender[1]);
    snprintf(command, sizeof command, "rm -rf %s", w->root);
    assert_int_equal(system(command), 0);
    weft_ctx_free(w->far);
    weft_ctx_free(w->ctx);
}

static void is_like(const unsigned char *p, int64_t n, int64_t at, int salt)
{
    for (int64_t i = at; i < at + n; i++)
        assert_int_equal(p[i - at], (i * 7 + i / 251 + salt) & 255);
}

static int n_found;
static char found[8][64];

static int note(void *arg, const char *name)
{
    (void)arg;
    assert_true(n_found < 8);
    snprintf(found[n_found++], sizeof found[0], "%s", name);
    return 0;
}

static void files_of_the_job_are_read_as_if_they_were_here(void **state)
{
    struct world w;
    static unsigned char all[BIG + 10];
    const struct wf_fs *fs;
    struct wf_file_info info;
    int fd;

    (void)state;
    open_world(&w, 0);
    fs = w.far->fs;
    assert_int_equal(fs->stat(fs->arg, "big.bin", &info), 0);
    assert_true(info.plain && !info.folder && info.size == BIG);
    fd = fs->open(fs->arg, "big.bin", O_RDONLY, 0);
    assert_true(fd >= 0);
    assert_int_equal(fs->size(fs->arg, fd), BIG);
    assert_int_equal(fs->read(fs->arg, fd, all, sizeof all), BIG);
    is_like(all, BIG, 0, 1);
    assert_int_equal(fs->read(fs->arg, fd, all, 10), 0);
    assert_true(fs->seek(fs->arg, fd, 5) >= 0);
    assert_int_equal(fs->read(fs->arg, fd, all, 10), 10);
    is_like(all, 10, 5, 1);
    assert_int_equal(fs->pread(fs->arg, fd, all, 100, WF_LEND_BLOCK - 50), 100);
    is_like(all, 100, WF_LEND_BLOCK - 50, 1);
    assert_int_equal(fs->pread(fs->arg, fd, all, 100, BIG - 1), 1);
    assert_int_equal(fs->pread(fs->arg, fd, all, 100, BIG + 1), 0);
    assert_int_equal(fs->write(fs->arg, fd, all, 1), -EBADF);
    assert_int_equal(fs->close(fs->arg, fd), 0);
    assert_int_equal(fs->close(fs->arg, fd), -EBADF);
    n_found = 0;
    assert_int_equal(fs->glob(fs->arg, "part*.csv", note, NULL), 0);
    assert_int_equal(n_found, 2);
    assert_true(!strncmp(found[0], "part", 4) && !strncmp(found[1], "part", 4));
    n_found = 0;
    assert_int_equal(fs->list(fs->arg, "images", note, NULL), 0);
    assert_int_equal(n_found, 1);
    assert_string_equal(found[0], "a.png");
    fd = fs->open(fs->arg, "images/a.png", O_RDONLY, 0);
    assert_int_equal(fs->read(fs->arg, fd, all, 100), 30);
    is_like(all, 30, 0, 4);
    fs->close(fs->arg, fd);
    /* what is missing there, too, and what nobody borrows */
    assert_int_equal(fs->open(fs->arg, "absent.bin", O_RDONLY, 0), -ENOENT);
    assert_int_equal(fs->open(fs->arg, "secret.txt", O_RDONLY, 0), -ENOENT);
    assert_int_equal(fs->open(fs->arg, "big.bin", O_WRONLY, 0), -ENOENT);
    close_world(&w);
}

static void what_is_kept_is_bounded(void **state)
{
    struct world w;
    static unsigned char all[BIG];
    const struct wf_fs *fs;
    struct wf_borrowed c;
    int64_t before;
    int fd;

    (void)state;
    open_world(&w, 2 * WF_LEND_BLOCK);
    fs = w.far->fs;
    fd = fs->open(fs->arg, "big.bin", O_RDONLY, 0);
    assert_int_equal(fs->read(fs->arg, fd, all, BIG), BIG);
    is_like(all, BIG, 0, 1);
    c = wf_borrow_counts(w.b);
    assert_true(c.cached <= 2 * WF_LEND_BLOCK && c.cached > 0);
    before = c.requests;
    assert_int_equal(fs->pread(fs->arg, fd, all, 500, BIG - 500), 500); /* is kept */
    assert_int_equal(wf_borrow_counts(w.b).requests, before);
    assert_int_equal(fs->pread(fs->arg, fd, all, 500, 0), 500); /* is not */
    is_like(all, 500, 0, 1);
    assert_int_equal(wf_borrow_counts(w.b).requests, before + 1);
    fs->close(fs->arg, fd);
    close_world(&w);
}

static void a_lender_that_dies_is_left_for_the_next(void **state)
{
    struct world w;
    static unsigned char all[BIG];
    const struct wf_fs *fs;
    int fd;

    (void)state;
    open_world(&w, 0);
    fs = w.far->fs;
    fd = fs->open(fs->arg, "big.bin", O_RDONLY, 0);
    assert_int_equal(fs->pread(fs->arg, fd, all, 100, 0), 100);
    wf_lender_close(w.lender[0]);
    w.lender[0] = NULL;
    assert_int_equal(fs->pread(fs->arg, fd, all, BIG, 0), BIG);
    is_like(all, BIG, 0, 1);
    assert_true(wf_borrow_counts(w.b).moved >= 1);
    /* none is left: the read fails in time; and it works again when one is back */
    wf_lender_close(w.lender[1]);
    w.lender[1] = NULL;
    assert_int_equal(fs->open(fs->arg, "part1.csv", O_RDONLY, 0), -EIO);
    lend(&w, 0);
    assert_true(fs->open(fs->arg, "part1.csv", O_RDONLY, 0) >= 0);
    close_world(&w);
}

static int64_t answer(const struct world *w, int version, int what, int64_t offset, int64_t n,
                      const char *path, int64_t n_path, struct wf_buf *payload)
{
    const struct wf_lend_files files = {w->root, 4, w->list};
    unsigned char request[WF_LEND_REQUEST + 2 * WF_LEND_PATH], head[WF_LEND_ANSWER];

    request[0] = (unsigned char)version;
    request[1] = (unsigned char)what;
    wf_put_le64(request + 2, (uint64_t)offset);
    wf_put_le32(request + 10, (uint32_t)n);
    memcpy(request + WF_LEND_REQUEST, path, (size_t)n_path);
    payload->len = 0;
    payload->st = WEFT_OK;
    wf_lend_answer(w->ctx, &files, request, WF_LEND_REQUEST + n_path, head, payload);
    return (int64_t)wf_get_le64(head);
}

static void nothing_but_the_data_of_the_job_is_lent(void **state)
{
    static const char *const refused[] = {"secret.txt",
                                          "/etc/passwd",
                                          "../secret.txt",
                                          "images/../secret.txt",
                                          "images/..",
                                          "part/../secret.csv",
                                          "imagesx",
                                          ".",
                                          "part1.csv/../../secret.txt",
                                          "*",
                                          "partx.csv.key"};
    static char longest[WF_LEND_PATH + 10];
    struct world w;
    struct wf_buf b;

    (void)state;
    open_world(&w, 0);
    wf_buf_init(&b, w.ctx, WF_LEND_NAMES);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        for (int what = WF_LEND_STAT; what <= WF_LEND_GLOB; what++) {
            assert_int_equal(
                answer(&w, 1, what, 0, 10, refused[i], (int64_t)strlen(refused[i]), &b), -EACCES);
            assert_int_equal(b.len, 0);
        }
    assert_int_equal(answer(&w, 1, WF_LEND_GLOB, 0, 0, "images/.[.]/s*", 14, &b), -EACCES);
    assert_int_equal(answer(&w, 1, WF_LEND_GLOB, 0, 0, "part*.csv", 9, &b), 0);
    assert_true(b.len > 0);
    assert_int_equal(answer(&w, 1, WF_LEND_READ, 0, 10, "big.bin", 7, &b), 10);
    assert_int_equal(answer(&w, 2, WF_LEND_READ, 0, 10, "big.bin", 7, &b), -EINVAL);
    assert_int_equal(answer(&w, 1, 9, 0, 10, "big.bin", 7, &b), -EINVAL);
    assert_int_equal(answer(&w, 1, WF_LEND_READ, -1, 10, "big.bin", 7, &b), -EINVAL);
    assert_int_equal(answer(&w, 1, WF_LEND_READ, 0, WF_LEND_BLOCK + 1, "big.bin", 7, &b), -EINVAL);
    assert_int_equal(answer(&w, 1, WF_LEND_READ, 0, 0xffffffff, "big.bin", 7, &b), -EINVAL);
    assert_int_equal(answer(&w, 1, WF_LEND_READ, 0, 10, "big\0bin", 7, &b), -EINVAL);
    assert_int_equal(answer(&w, 1, WF_LEND_READ, 0, 10, "", 0, &b), -EINVAL);
    memset(longest, 'a', sizeof longest);
    assert_int_equal(answer(&w, 1, WF_LEND_STAT, 0, 10, longest, sizeof longest, &b), -EINVAL);
    assert_true(answer(&w, 1, WF_LEND_STAT, 0, 10, longest, WF_LEND_PATH - 2, &b) < 0);
    assert_true(answer(&w, 1, WF_LEND_READ, 0, 10, "images", 6, &b) < 0); /* a directory */
    wf_buf_free(&b);
    close_world(&w);
}

static void a_server_cannot_borrow(void **state)
{
    struct world w;
    struct wf_borrow_opts o = {.task = "ps/1", .n_lenders = 1, .timeout_ns = 300000000};
    struct wf_file_info info;

    (void)state;
    open_world(&w, 0);
    wf_borrow_close(w.b);
    o.files = (struct wf_lend_files){"", 4, w.away};
    o.address = w.at;
    assert_int_equal(wf_borrow_open(w.far, &o, &w.b), WEFT_OK);
    assert_int_equal(w.far->fs->stat(w.far->fs->arg, "big.bin", &info), -EIO);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_of_the_job_are_read_as_if_they_were_here),
        cmocka_unit_test(what_is_kept_is_bounded),
        cmocka_unit_test(a_lender_that_dies_is_left_for_the_next),
        cmocka_unit_test(nothing_but_the_data_of_the_job_is_lent),
        cmocka_unit_test(a_server_cannot_borrow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
