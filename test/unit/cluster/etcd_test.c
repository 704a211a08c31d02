/* etcd_test.c - etcd's texts, and answers that are not as they should be: errors, half an
 * answer, other JSON, lost ones. chief_store_test.c has what a store promises, with a real etcd. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base64.h"
#include "cluster/chief_store.h"
#include "cluster/etcd.h"

#define HEADER "\"header\":{\"revision\":\"2\"}"

/* What the endpoints answer; NULL: the connection breaks. */
struct fake {
    weft_ctx *ctx;
    struct wf_etcd *e;
    const char *text[3];
    long code[3];
    int n_posts;
    char urls[8][100], body[8][4000];
};

static weft_status post(void *arg, const char *url, const char *body, int64_t n, struct wf_buf *to,
                        long *code)
{
    struct fake *f = arg;
    int i = strstr(url, "//a:") ? 0 : strstr(url, "//b:") ? 1 : 2;

    if (f->n_posts < 8) {
        snprintf(f->urls[f->n_posts], sizeof f->urls[0], "%s", url);
        snprintf(f->body[f->n_posts], sizeof f->body[0], "%.*s", (int)n, body);
    }
    f->n_posts++;
    if (!f->text[i])
        return wf_err(WEFT_ETIME, "no answer");
    *code = f->code[i] ? f->code[i] : 200;
    wf_buf_add(to, f->text[i], (int64_t)strlen(f->text[i]));
    return to->st;
}

static int setup(void **state)
{
    struct fake *f = calloc(1, sizeof *f);
    struct wf_etcd_where where;

    assert_int_equal(weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &f->ctx), WEFT_OK);
    assert_int_equal(wf_etcd_where_parse("etcd://a:1,b:2,c/jobs", &where), WEFT_OK);
    *state = f;
    if (wf_etcd_open(f->ctx, &where, &(struct wf_http_opts){.timeout_ns = 1000000000}, &f->e)) {
        f->e = NULL; /* this build has no libcurl */
        return 0;
    }
    wf_etcd_set_post(f->e, post, f);
    return 0;
}

static int teardown(void **state)
{
    struct fake *f = *state;

    wf_etcd_close(f->e);
    weft_ctx_free(f->ctx);
    free(f);
    return 0;
}

static struct fake *fake_of(void **state)
{
    struct fake *f = *state;

    if (!f->e) {
        print_message("skipped: %s\n", weft_error());
        skip();
    }
    return f;
}

static weft_status read_store(struct fake *f, struct wf_store_answer *a)
{
    return wf_etcd_do(f->e, &(struct wf_action){.type = WF_ACT_READ}, a);
}

static weft_status take_term(struct fake *f, uint64_t n, struct wf_store_answer *a)
{
    return wf_etcd_do(f->e, &(struct wf_action){.type = WF_ACT_CREATE_TERM, .number = n}, a);
}

static void has(const char *part)
{
    if (!strstr(weft_error(), part))
        fail_msg("'%s' does not say '%s'", weft_error(), part);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void addresses_are_read(void **state)
{
    struct wf_etcd_where w;

    (void)state;
    assert_int_equal(wf_etcd_where_parse("etcd://h1:1,[::1]:22,h-3.x/a/b.c/", &w), WEFT_OK);
    assert_false(w.tls);
    assert_int_equal(w.n_endpoints, 3);
    assert_string_equal(w.endpoint[0], "h1:1");
    assert_string_equal(w.endpoint[1], "[::1]:22");
    assert_string_equal(w.endpoint[2], "h-3.x:2379");
    assert_string_equal(w.prefix, "a/b.c");
    assert_int_equal(wf_etcd_where_parse("etcds://h", &w), WEFT_OK);
    assert_true(w.tls);
    assert_string_equal(w.prefix, "weft");
    assert_false(wf_etcd_is_local(&w));
    assert_int_equal(wf_etcd_where_parse("etcd://127.0.0.1,localhost:3,[::1]:4", &w), WEFT_OK);
    assert_true(wf_etcd_is_local(&w));
}

static void wrong_addresses_are_named(void **state)
{
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {"http://h", "does not begin with etcd://"},
        {"etcd://", "not HOST:PORT"},
        {"etcd://h,", "not HOST:PORT"},
        {"etcd://h:0", "not HOST:PORT"},
        {"etcd://h:70000", "not HOST:PORT"},
        {"etcd://h:", "not HOST:PORT"},
        {"etcd://h:+5", "not HOST:PORT"},
        {"etcd://h:2x/p", "not HOST:PORT"},
        {"etcd://[::1:5/p", "not an address"},
        {"etcd://a b/p", "not HOST:PORT"},
        {"etcd://u:p@h/p", "names and passwords"},
        {"etcd://h/p?q", "the prefix has a character"},
        {"etcd://a,b,c,d,e,f,g,h,i", "more than 8 endpoints"},
    };
    struct wf_etcd_where w;

    (void)state;
    for (int i = 0; i < WF_COUNT(wrong); i++) {
        assert_int_equal(wf_etcd_where_parse(wrong[i].text, &w), WEFT_EPARSE);
        has(wrong[i].why);
    }
}

/* Whoever can write there can take over the job. */
static void another_machine_needs_tls(void **state)
{
    struct fake *f = fake_of(state);
    struct wf_chief_store *r;

    assert_int_equal(wf_chief_store_open(
                         f->ctx, &(struct wf_chief_store_opts){.where = "etcd://10.0.0.1/x"}, &r),
                     WEFT_EINVAL);
    has("etcds://");
    assert_int_equal(wf_chief_store_open(f->ctx,
                                         &(struct wf_chief_store_opts){
                                             .where = "etcd://localhost/x", .authority = "ca.pem"},
                                         &r),
                     WEFT_EINVAL);
    has("etcd:// has no TLS");
    assert_int_equal(wf_chief_store_open(f->ctx,
                                         &(struct wf_chief_store_opts){.where = "etcd://10.0.0.1/x",
                                                                       .insecure = true},
                                         &r),
                     WEFT_OK);
    wf_chief_store_close(r);
}

/* ---- base64 ---------------------------------------------------------------------------------- */

static void base64_reads_what_it_writes(void **state)
{
    struct fake *f = *state;
    uint8_t bytes[64];

    for (int i = 0; i < 64; i++)
        bytes[i] = (uint8_t)(i * 37 + 5);
    for (int n = 0; n <= 64; n++) {
        struct wf_buf text, back;

        wf_buf_init(&text, f->ctx, 1000);
        wf_buf_init(&back, f->ctx, 1000);
        wf_base64(&text, bytes, n);
        assert_int_equal(wf_base64_read(&back, text.data ? text.data : "", text.len), WEFT_OK);
        assert_int_equal(back.len, n);
        if (n)
            assert_memory_equal(back.data, bytes, n);
        wf_buf_free(&text);
        wf_buf_free(&back);
    }
}

static void base64_refuses_other_texts(void **state)
{
    static const char *const wrong[] = {"A",    "AAA",  "A===",     "====", "AA=A",      "AB==",
                                        "AAB=", "AA A", "AA==AAAA", "AA-_", "\xc3\xa4zz"};
    struct fake *f = *state;

    for (int i = 0; i < WF_COUNT(wrong); i++) {
        struct wf_buf b;

        wf_buf_init(&b, f->ctx, 1000);
        if (wf_base64_read(&b, wrong[i], (int64_t)strlen(wrong[i])) != WEFT_EPARSE)
            fail_msg("'%s' was read", wrong[i]);
        wf_buf_free(&b);
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static void answers_that_are_not_etcds_are_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "{",
        "[]",
        "null",
        "<html>captive portal</html>",
        "{}",
        "{\"header\":1}",
        "{" HEADER ",\"succeeded\":\"yes\"}",
        "{" HEADER ",\"responses\":{}}",
        "{" HEADER ",\"responses\":[]}",
        "{" HEADER ",\"responses\":[{\"response_range\":7}]}",
        "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":{}}}]}",
        "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[{}]}}]}",
        "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":5}]}}]}",
        "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"!\"}]}}]}",
        "{" HEADER ",\"responses\":[{\"response_range\":{}},{\"response_range\":{}}]}",
        "{" HEADER ",\"responses\":[{\"response_range\":{}},{\"response_range\":{}},"
        "{\"response_range\":{}},{\"response_range\":{}},{\"response_range\":{}}]}",
        "{" HEADER "," HEADER "}",
    };
    struct fake *f = fake_of(state);
    struct wf_store_answer a;

    for (int i = 0; i < WF_COUNT(wrong); i++) {
        f->text[0] = f->text[1] = f->text[2] = wrong[i];
        if (read_store(f, &a) != WEFT_EPEER)
            fail_msg("'%s' was read", wrong[i]);
        has("etcd");
    }
}

/* Somebody else writes there. */
static void keys_of_strangers_are_an_error(void **state)
{
    static const char *const key[] = {
        "jobs/term/x", "jobs/term/1", "else/term/00000000000000000001",
        "jobs/term/00000000000000000001x", "jobs/term/99999999999999999999"};
    struct fake *f = fake_of(state);
    struct wf_store_answer a;

    for (int i = 0; i < WF_COUNT(key); i++) {
        struct wf_buf text;
        char answer[1000];

        wf_buf_init(&text, f->ctx, 1000);
        wf_base64(&text, key[i], (int64_t)strlen(key[i]));
        snprintf(answer, sizeof answer,
                 "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"%s\"}]}},"
                 "{\"response_range\":{}},{\"response_range\":{}},{\"response_range\":{}}]}",
                 text.data);
        wf_buf_free(&text);
        f->text[0] = answer;
        assert_int_equal(read_store(f, &a), WEFT_EDATA);
        has(key[i]);
    }
}

#define EMPTY                                                                \
    "{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_range\":{}}," \
    "{\"response_range\":{}},{\"response_range\":{}},{\"response_range\":{}}]}"

static void other_endpoints_are_tried(void **state)
{
    struct fake *f = fake_of(state);
    struct wf_store_answer a;

    f->text[1] = "{\"error\":\"etcdserver: no leader\",\"code\":14}";
    f->code[1] = 503;
    f->text[2] = EMPTY;
    assert_int_equal(read_store(f, &a), WEFT_OK);
    assert_int_equal(f->n_posts, 3);
    assert_string_equal(f->urls[0], "http://a:1/v3/kv/txn");
    assert_string_equal(f->urls[2], "http://c:2379/v3/kv/txn");
    assert_int_equal(read_store(f, &a), WEFT_OK); /* the one that answered is asked first */
    assert_int_equal(f->n_posts, 4);
    f->text[2] = NULL;
    assert_int_equal(read_store(f, &a), WEFT_EPEER);
    assert_int_equal(f->n_posts, 7);
    has("no leader");
}

static void errors_that_nobody_can_wait_for_are_named(void **state)
{
    static const struct {
        long code;
        const char *text;
        weft_status st;
        const char *why;
    } cases[] = {
        {404, "404 page not found", WEFT_ENOSUP, "etcd 3.4 or later"},
        {401, "{\"error\":\"etcdserver: invalid auth token\"}", WEFT_EINVAL, "refuses access"},
        {403, "{}", WEFT_EINVAL, "refuses access"},
        {400, "{\"error\":\"etcdserver: user name is empty\"}", WEFT_EINVAL, "user name is empty"},
        {429, "{\"error\":\"etcdserver: mvcc: database space exceeded\"}", WEFT_EPEER, "compact"},
        {500, "{\"error\":\"a\\nb\\u0007c\"}", WEFT_EPEER, "HTTP 500 a?b?c"},
        {301, "", WEFT_EPEER, "HTTP 301"},
    };
    struct fake *f = fake_of(state);
    struct wf_store_answer a;

    for (int i = 0; i < WF_COUNT(cases); i++) {
        for (int k = 0; k < 3; k++) {
            f->text[k] = cases[i].text;
            f->code[k] = cases[i].code;
        }
        assert_int_equal(read_store(f, &a), cases[i].st);
        has(cases[i].why);
    }
}

/* ---- lost answers ---------------------------------------------------------------------------- */

/* Puts the value of the first request into an answer: it was done, and its answer was lost. */
static void answer_as_created(const struct fake *f, char *to, size_t size)
{
    const char *v = strstr(f->body[0], "\"value\":\"") + 9;
    const char *k = strstr(strstr(f->body[0], "request_put"), "\"key\":\"") + 7;

    snprintf(to, size,
             "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"%.*s\"}]}},"
             "{\"response_range\":{\"kvs\":[{\"key\":\"%.*s\",\"value\":\"%.*s\"}]}}]}",
             (int)strcspn(k, "\""), k, (int)strcspn(k, "\""), k, (int)strcspn(v, "\""), v);
}

static void a_term_whose_answer_was_lost_is_ones_own(void **state)
{
    struct fake *f = fake_of(state);
    struct wf_store_answer a;
    char answer[4000];

    assert_int_equal(take_term(f, 1, &a), WEFT_EPEER);
    answer_as_created(f, answer, sizeof answer);
    f->text[0] = answer;
    assert_int_equal(take_term(f, 1, &a), WEFT_OK);
    assert_true(a.ok);
    /* it is known now: a further attempt is another one */
    assert_int_equal(take_term(f, 1, &a), WEFT_OK);
    assert_false(a.ok);
}

static void a_term_of_another_process_is_not_ones_own(void **state)
{
    struct fake *f = fake_of(state);
    struct wf_store_answer a;
    char answer[4000];

    assert_int_equal(take_term(f, 1, &a), WEFT_EPEER);
    answer_as_created(f, answer, sizeof answer);
    f->text[0] = answer;
    wf_etcd_close(f->e); /* that process is gone; this one has other numbers */
    assert_int_equal(setup(state), 0);
    ((struct fake *)*state)->text[0] = answer;
    assert_int_equal(take_term(*state, 1, &a), WEFT_OK);
    assert_false(a.ok);
    weft_ctx_free(f->ctx);
    free(f);
}

/* Every transaction that changes something holds only for the highest term. */
static void every_change_confirms_the_term(void **state)
{
    struct fake *f = fake_of(state);
    struct wf_control_bytes bytes = {"x", 1};
    struct wf_store_answer a;
    struct wf_buf key;

    f->text[0] = "{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_range\":{}}]}";
    assert_int_equal(wf_etcd_do(f->e,
                                &(struct wf_action){.type = WF_ACT_CREATE_CONTROL,
                                                    .number = 7,
                                                    .history = 1,
                                                    .t = 3,
                                                    .payload = &bytes},
                                &a),
                     WEFT_OK);
    wf_buf_init(&key, f->ctx, 1000);
    wf_base64(&key, "jobs/term/00000000000000000007", 30);
    for (int i = 0; i < f->n_posts; i++)
        if (strstr(f->body[i], "request_put") || strstr(f->body[i], "request_delete")) {
            const char *at = strstr(f->body[i], key.data);

            assert_true(at && at < strstr(f->body[i], "\"success\""));
        }
    wf_buf_free(&key);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(addresses_are_read),
        T(wrong_addresses_are_named),
        T(another_machine_needs_tls),
        T(base64_reads_what_it_writes),
        T(base64_refuses_other_texts),
        T(answers_that_are_not_etcds_are_refused),
        T(keys_of_strangers_are_an_error),
        T(other_endpoints_are_tried),
        T(errors_that_nobody_can_wait_for_are_named),
        T(a_term_whose_answer_was_lost_is_ones_own),
        T(a_term_of_another_process_is_not_ones_own),
        T(every_change_confirms_the_term),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
