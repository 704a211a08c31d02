/* newfile_test.c - files that appear whole, and deletion that follows no link. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/base.h"

static char dir[] = "newfile-XXXXXX";
static weft_ctx *ctx;

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void assert_text(const char *path, const char *text)
{
    char *data;
    int64_t n;

    assert_int_equal(wf_file_read(ctx, path, 1 << 20, &data, &n), 0);
    assert_string_equal(data, text);
    wf_free(ctx, data);
}

static int count_entries(const char *path)
{
    DIR *d = opendir(path);
    const struct dirent *e;
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d)))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(d);
    return n;
}

static int enter(void **state)
{
    (void)state;
    return !mkdtemp(dir) || chdir(dir) || weft_ctx_new(NULL, &ctx);
}

static int leave(void **state)
{
    char command[64];

    (void)state;
    weft_ctx_free(ctx);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return chdir("..") || system(command);
}

/* Each test in a folder of its own. */
static int own_folder(void **state)
{
    static int n;
    char name[32];

    (void)state;
    snprintf(name, sizeof name, "t%d", n++);
    return mkdir(name, 0777) || chdir(name);
}

static int back(void **state)
{
    (void)state;
    return chdir("..");
}

static void a_link_in_the_place_is_replaced_and_not_written_through(void **state)
{
    struct stat s;

    (void)state;
    put("target", "precious");
    assert_int_equal(symlink("target", "out"), 0);
    assert_int_equal(wf_file_write(ctx, "out", "new", 3), 0);
    assert_text("target", "precious");
    assert_text("out", "new");
    assert_true(!lstat("out", &s) && S_ISREG(s.st_mode));
    assert_int_equal(count_entries("."), 2);
}

static void planted_links_of_the_old_temporary_names_do_nothing(void **state)
{
    (void)state;
    put("target", "precious");
    assert_int_equal(symlink("target", "out.tmp"), 0);
    assert_int_equal(symlink("target", ".out.0123456789abcdef.tmp"), 0);
    assert_int_equal(wf_file_write(ctx, "out", "new", 3), 0);
    assert_text("target", "precious");
    assert_text("out", "new");
}

static uint64_t planted(void *arg)
{
    static uint64_t n;

    (void)arg;
    return n++;
}

static void a_name_that_is_taken_is_not_used(void **state)
{
    struct wf_fs fs = wf_fs_posix;
    struct wf_newfile f;

    (void)state;
    fs.unique = planted;
    ctx->fs = &fs;
    put("target", "precious");
    assert_int_equal(symlink("target", ".out.0000000000000000.tmp"), 0);
    assert_int_equal(symlink("nowhere", ".out.0000000000000001.tmp"), 0);
    assert_int_equal(mkdir(".out.0000000000000002.tmp", 0777), 0);
    assert_int_equal(wf_newfile_open(&f, ctx, "out"), 0);
    assert_string_equal(f.tmp, ".out.0000000000000003.tmp");
    assert_int_equal(wf_newfile_close(&f, WEFT_OK, false), 0);
    ctx->fs = &wf_fs_posix;
    assert_text("target", "precious");
    assert_int_equal(access("nowhere", F_OK), -1);
}

static void the_folder_itself_may_be_a_link(void **state)
{
    (void)state;
    assert_int_equal(mkdir("real", 0777), 0);
    assert_int_equal(symlink("real", "link"), 0);
    assert_int_equal(wf_file_write(ctx, "link/out", "new", 3), 0);
    assert_text("real/out", "new");
    assert_int_equal(count_entries("real"), 1);
}

static void of_two_writers_the_later_wins_whole(void **state)
{
    struct wf_newfile a, b;

    (void)state;
    assert_int_equal(wf_newfile_open(&a, ctx, "out"), 0);
    assert_int_equal(wf_newfile_open(&b, ctx, "out"), 0);
    assert_int_equal(write(a.fd, "aaaa", 4), 4);
    assert_int_equal(write(b.fd, "bb", 2), 2);
    assert_int_equal(write(a.fd, "AAAA", 4), 4);
    assert_int_equal(wf_newfile_close(&b, WEFT_OK, false), 0);
    assert_text("out", "bb");
    assert_int_equal(wf_newfile_close(&a, WEFT_OK, false), 0);
    assert_text("out", "aaaaAAAA");
    assert_int_equal(count_entries("."), 1);
}

static void what_a_dead_writer_left_goes_and_a_living_ones_stays(void **state)
{
    struct wf_newfile mine;
    char other[] = ".other.0123456789abcdef.tmp";
    pid_t child;
    int how;

    (void)state;
    child = fork();
    if (!child) { /* dies with its file half written */
        struct wf_newfile f;

        if (wf_newfile_open(&f, ctx, "out") || write(f.fd, "half", 4) != 4)
            _exit(1);
        _exit(77);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 77);
    assert_int_equal(count_entries("."), 1);
    put(other, "of another file");
    put("out.tmp", "a user's");
    put(".out.0123456789ABCDEF.tmp", "not ours: capital letters");
    put(".out.0123456789abcdef.tmp2", "not ours: another end");
    assert_int_equal(wf_newfile_open(&mine, ctx, "out"), 0);
    assert_int_equal(count_entries("."), 5); /* the four, and mine: the dead one's is gone */
    assert_int_equal(wf_file_write(ctx, "out", "new", 3), 0);
    assert_int_equal(count_entries("."), 6); /* mine is still there: I live */
    assert_int_equal(wf_newfile_close(&mine, WEFT_EIO, false), WEFT_EIO);
    assert_int_equal(count_entries("."), 5);
    assert_text(other, "of another file");
}

static void the_mode_follows_the_umask(void **state)
{
    mode_t before = umask(027);
    struct stat s;

    (void)state;
    assert_int_equal(wf_file_write(ctx, "out", "new", 3), 0);
    umask(before);
    assert_true(!stat("out", &s) && (s.st_mode & 0777) == 0640);
}

static void removal_takes_a_link_and_not_what_it_leads_to(void **state)
{
    struct stat s;

    (void)state;
    assert_int_equal(mkdir("precious", 0777), 0);
    put("precious/file", "precious");
    assert_int_equal(symlink("precious", "link"), 0);
    assert_int_equal(wf_file_remove(ctx, "link"), 0);
    assert_int_equal(lstat("link", &s), -1);
    assert_text("precious/file", "precious");
}

static void removal_of_a_folder_takes_links_in_it_and_not_what_they_lead_to(void **state)
{
    (void)state;
    assert_int_equal(mkdir("precious", 0777), 0);
    put("precious/file", "precious");
    assert_int_equal(mkdir("gone", 0777), 0);
    put("gone/file", "x");
    assert_int_equal(symlink("../precious", "gone/folder"), 0);
    assert_int_equal(symlink("../precious/file", "gone/link"), 0);
    assert_int_equal(wf_file_remove(ctx, "gone"), 0);
    assert_int_equal(access("gone", F_OK), -1);
    assert_text("precious/file", "precious");
    assert_int_equal(wf_file_remove(ctx, "gone"), 0);
    assert_int_equal(wf_file_remove(ctx, "nowhere/gone"), 0);
}

static void removal_stops_at_a_folder_in_the_folder(void **state)
{
    (void)state;
    assert_int_equal(mkdir("outer", 0777), 0);
    assert_int_equal(mkdir("outer/inner", 0777), 0);
    put("outer/inner/file", "kept");
    assert_true(wf_file_remove(ctx, "outer") != 0);
    assert_text("outer/inner/file", "kept");
}

static void what_names_no_file_is_refused(void **state)
{
    static const char *const paths[] = {"", "/", "//", ".", "..", "a/..", "a/.", "a/../"};

    (void)state;
    for (int i = 0; i < WF_COUNT(paths); i++) {
        assert_int_equal(wf_file_write(ctx, paths[i], "x", 1), WEFT_EINVAL);
        assert_int_equal(wf_file_remove(ctx, paths[i]), WEFT_EINVAL);
    }
}

static void output_in_place_follows_links_to_devices_alone(void **state)
{
    int fd;

    (void)state;
    put("target", "precious");
    assert_int_equal(symlink("target", "link"), 0);
    assert_int_equal(symlink("nowhere", "dangling"), 0);
    assert_int_equal(symlink("/dev/null", "null"), 0);
    assert_int_equal(wf_file_open_out(ctx, "link", O_WRONLY | O_CREAT | O_TRUNC, 0666), -ELOOP);
    assert_int_equal(wf_file_open_out(ctx, "dangling", O_WRONLY | O_CREAT, 0666), -ELOOP);
    assert_text("target", "precious");
    assert_int_equal(access("nowhere", F_OK), -1);
    fd = wf_file_open_out(ctx, "null", O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_true(fd >= 0);
    close(fd);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, own_folder, back)
    const struct CMUnitTest tests[] = {
        TEST(a_link_in_the_place_is_replaced_and_not_written_through),
        TEST(planted_links_of_the_old_temporary_names_do_nothing),
        TEST(a_name_that_is_taken_is_not_used),
        TEST(the_folder_itself_may_be_a_link),
        TEST(of_two_writers_the_later_wins_whole),
        TEST(what_a_dead_writer_left_goes_and_a_living_ones_stays),
        TEST(the_mode_follows_the_umask),
        TEST(removal_takes_a_link_and_not_what_it_leads_to),
        TEST(removal_of_a_folder_takes_links_in_it_and_not_what_they_lead_to),
        TEST(removal_stops_at_a_folder_in_the_folder),
        TEST(what_names_no_file_is_refused),
        TEST(output_in_place_follows_links_to_devices_alone),
    };

    return cmocka_run_group_tests(tests, enter, leave);
}
