/* ring_test.c - rings of shared memory as pure functions: every byte arrives once and in order,
 * whatever the portions; nobody sleeps through a message; whatever the other end writes, reading
 * and writing end with an error at worst. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>

#include "net/ring.h"

struct rings {
    void *memory;
    struct wf_ring_reader in[2];
    struct wf_ring_writer out[2];
};

static void open_rings(struct rings *r, uint64_t n_cells)
{
    size_t bytes = (size_t)wf_ring_bytes(n_cells);

    r->memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    memset(r->memory, 0, bytes);
    for (int i = 0; i < 2; i++)
        wf_ring_open(r->memory, n_cells, i, &r->in[i], &r->out[i]);
}

static uint64_t draw(uint64_t *s, uint64_t n)
{
    *s = *s * 6364136223846793005u + 1442695040888963407u;
    return (*s >> 33) % n;
}

static uint8_t byte_at(int64_t i)
{
    return (uint8_t)(i * 31 + (i >> 8) * 7 + (i >> 16));
}

static void sizes_are_checked(void **state)
{
    (void)state;
    assert_int_equal(wf_ring_bytes(0), 0);
    assert_int_equal(wf_ring_bytes(8), 0);
    assert_int_equal(wf_ring_bytes(17), 0);
    assert_int_equal(wf_ring_bytes(1ull << 40), 0);
    assert_int_equal(wf_ring_bytes(16), 4096 + 2 * 16 * 64);
    assert_int_equal(wf_ring_bytes(WF_RING_CELLS), 4096 + 2 * WF_RING_CELLS * 64);
}

/* Random portions in both directions, over many laps. */
static void bytes_arrive_in_order(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct rings r;
        int64_t sent[2] = {0, 0}, got[2] = {0, 0};
        uint64_t s = seed;

        open_rings(&r, seed % 2 ? 16 : 64);
        for (int turn = 0; turn < 40000; turn++) {
            int d = (int)draw(&s, 2);
            uint8_t bytes[2000];
            struct iovec v[3];
            bool wake;
            int64_t n = 0, k;

            for (int i = 0; i < 3; i++) {
                v[i] = (struct iovec){bytes + n, (size_t)draw(&s, draw(&s, 2) ? 600 : 8)};
                n += (int64_t)v[i].iov_len;
            }
            if (draw(&s, 2)) {
                for (int64_t i = 0; i < n; i++)
                    bytes[i] = byte_at(sent[d] + i);
                k = wf_ring_write(&r.out[d], v, 3, &wake);
                assert_true(k == -EAGAIN || (k >= 0 && k <= n));
                assert_false(wake);
                sent[d] += k > 0 ? k : 0;
            } else {
                bool waiting = wf_ring_waiting(&r.in[!d]);

                k = wf_ring_read(&r.in[!d], v, 3, &wake);
                assert_int_equal(waiting, sent[d] > got[d]);
                assert_true(k == -EAGAIN || k == wf_min_i64(n, sent[d] - got[d]));
                for (int64_t i = 0; i < k; i++)
                    assert_int_equal(bytes[i], byte_at(got[d] + i));
                got[d] += k > 0 ? k : 0;
            }
        }
        assert_true(got[0] > 100000 && got[1] > 100000);
        free(r.memory);
    }
}

/* A writer fills the ring, and is told when there is space. */
static void a_full_ring_says_when_it_is_not(void **state)
{
    uint8_t bytes[16 * 56 + 10] = {0};
    struct iovec v = {bytes, sizeof bytes}, one = {bytes, 56};
    struct rings r;
    bool wake;

    (void)state;
    open_rings(&r, 16);
    assert_int_equal(wf_ring_write(&r.out[0], &v, 1, &wake), 16 * 56);
    assert_int_equal(wf_ring_write(&r.out[0], &v, 1, &wake), -EAGAIN);
    assert_int_equal(wf_ring_room(&r.out[0]), 0);
    for (int i = 0; i < 4; i++) { /* told after a quarter, once */
        assert_int_equal(wf_ring_read(&r.in[1], &one, 1, &wake), 56);
        assert_int_equal(wake, i == 3);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(wf_ring_read(&r.in[1], &one, 1, &wake), 56);
        assert_false(wake);
    }
    assert_int_equal(wf_ring_write(&r.out[0], &v, 1, &wake), 8 * 56);
    free(r.memory);
}

static void a_sleeping_reader_is_woken_once(void **state)
{
    uint8_t bytes[10] = {0};
    struct iovec v = {bytes, 10};
    struct rings r;
    bool wake;

    (void)state;
    open_rings(&r, 16);
    assert_true(wf_ring_arm(&r.in[1]));
    assert_int_equal(wf_ring_write(&r.out[0], &v, 1, &wake), 10);
    assert_true(wake);
    assert_int_equal(wf_ring_write(&r.out[0], &v, 1, &wake), 10);
    assert_false(wake);
    assert_false(wf_ring_arm(&r.in[1])); /* there is something */
    assert_int_equal(wf_ring_write(&r.out[0], &v, 1, &wake), 10);
    assert_false(wake);
    for (int i = 0; i < 3; i++)
        assert_int_equal(wf_ring_read(&r.in[1], &v, 1, &wake), 10);
    assert_true(wf_ring_arm(&r.in[1]));
    free(r.memory);
}

/* ---- two threads ----------------------------------------------------------------------------- */

enum { TOTAL = 2000000 };

struct sleeper {
    struct rings r;
    pthread_mutex_t lock;
    pthread_cond_t bell[2]; /* of the reader, of the writer */
    bool rung[2];
};

static void ring_bell(struct sleeper *s, int who)
{
    pthread_mutex_lock(&s->lock);
    s->rung[who] = true;
    pthread_cond_signal(&s->bell[who]);
    pthread_mutex_unlock(&s->lock);
}

/* False: nobody rang for five seconds, so a wake-up was lost. */
static bool sleep_until_rung(struct sleeper *s, int who)
{
    struct timespec t;
    bool rung;
    int rc = 0;

    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_sec += 5;
    pthread_mutex_lock(&s->lock);
    while (!s->rung[who] && rc == 0)
        rc = pthread_cond_timedwait(&s->bell[who], &s->lock, &t);
    rung = s->rung[who];
    s->rung[who] = false;
    pthread_mutex_unlock(&s->lock);
    return rung;
}

static void *write_all(void *arg)
{
    struct sleeper *s = arg;
    uint64_t seed = 5;

    for (int64_t at = 0; at < TOTAL;) {
        uint8_t bytes[900];
        int64_t n = wf_min_i64(1 + (int64_t)draw(&seed, 900), TOTAL - at), k;
        struct iovec v = {bytes, (size_t)n};
        bool wake;

        for (int64_t i = 0; i < n; i++)
            bytes[i] = byte_at(at + i);
        k = wf_ring_write(&s->r.out[0], &v, 1, &wake);
        if (wake)
            ring_bell(s, 0);
        at += k > 0 ? k : 0;
        if (k == -EAGAIN && !sleep_until_rung(s, 1))
            return s;
    }
    return NULL;
}

/* Each sleeps whenever there is nothing to do. */
static void no_wake_up_is_lost(void **state)
{
    static struct sleeper s;
    pthread_t writer;
    void *failed;
    int64_t got = 0;

    (void)state;
    open_rings(&s.r, 16);
    pthread_mutex_init(&s.lock, NULL);
    pthread_cond_init(&s.bell[0], NULL);
    pthread_cond_init(&s.bell[1], NULL);
    assert_int_equal(pthread_create(&writer, NULL, write_all, &s), 0);
    while (got < TOTAL) {
        uint8_t bytes[500];
        struct iovec v = {bytes, sizeof bytes};
        bool wake;
        int64_t k = wf_ring_read(&s.r.in[1], &v, 1, &wake);

        if (wake)
            ring_bell(&s, 1);
        for (int64_t i = 0; i < k; i++)
            assert_int_equal(bytes[i], byte_at(got + i));
        got += k > 0 ? k : 0;
        if (k == -EAGAIN && wf_ring_arm(&s.r.in[1]))
            assert_true(sleep_until_rung(&s, 0));
    }
    pthread_join(writer, &failed);
    assert_null(failed);
    free(s.r.memory);
}

/* ---- the other end is hostile ---------------------------------------------------------------- */

static int64_t read_some(struct rings *r)
{
    uint8_t bytes[300];
    struct iovec v = {bytes, sizeof bytes};
    bool wake;

    return wf_ring_read(&r->in[1], &v, 1, &wake);
}

static void wrong_words_end_reading(void **state)
{
    const uint64_t bad[] = {
        1 << 8,                     /* no bytes */
        1 << 8 | 57,                /* more than a cell has */
        1 << 8 | 0xff,  2 << 8 | 5, /* the next cell's number */
        17ull << 8 | 5, (uint64_t)-1, 1ull << 63,
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rings r;

        open_rings(&r, 16);
        atomic_store(&r.out[0].cell[0].word, bad[i]);
        assert_true(wf_ring_waiting(&r.in[1]));
        assert_int_equal(read_some(&r), -EPROTO);
        assert_int_equal(read_some(&r), -EPROTO);
        free(r.memory);
    }
}

static void a_cell_may_change_while_it_is_read(void **state)
{
    uint8_t bytes[56] = {0};
    struct iovec v = {bytes, 40}, part = {bytes, 7};
    struct rings r;
    bool wake;

    (void)state;
    open_rings(&r, 16);
    assert_int_equal(wf_ring_write(&r.out[0], &v, 1, &wake), 40);
    assert_int_equal(wf_ring_read(&r.in[1], &part, 1, &wake), 7);
    /* the length that was seen first counts */
    atomic_store(&r.out[0].cell[0].word, 1 << 8 | 0xff);
    assert_int_equal(read_some(&r), 33);
    assert_int_equal(read_some(&r), -EAGAIN);
    free(r.memory);
}

static void wrong_positions_end_writing(void **state)
{
    uint8_t bytes[16 * 56] = {0};
    struct iovec v = {bytes, sizeof bytes};
    const uint64_t bad[] = {17, 1000, (uint64_t)-1, 1ull << 63};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct rings r;
        bool wake;

        open_rings(&r, 16);
        assert_int_equal(wf_ring_write(&r.out[0], &v, 1, &wake), 16 * 56);
        atomic_store(&r.out[0].control->taken, bad[i]);
        assert_int_equal(wf_ring_write(&r.out[0], &v, 1, &wake), -EPROTO);
        /* back to before */
        atomic_store(&r.out[0].control->taken, 8);
        assert_int_equal(wf_ring_write(&r.out[0], &v, 1, &wake), 8 * 56);
        atomic_store(&r.out[0].control->taken, 7);
        assert_int_equal(wf_ring_write(&r.out[0], &v, 1, &wake), -EPROTO);
        free(r.memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(bytes_arrive_in_order),
        cmocka_unit_test(a_full_ring_says_when_it_is_not),
        cmocka_unit_test(a_sleeping_reader_is_woken_once),
        cmocka_unit_test(no_wake_up_is_lost),
        cmocka_unit_test(wrong_words_end_reading),
        cmocka_unit_test(a_cell_may_change_while_it_is_read),
        cmocka_unit_test(wrong_positions_end_writing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
