/* tls_test.c - who is refused over tls, sessions that are resumed, and credentials that are
 * renewed. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "net/link.h"
#include "support/netnode.h"

static weft_ctx *pem_ctx;

static weft_status credentials(weft_ctx *ctx, const struct wf_pem *by, const char *role,
                               const char *name, int days, struct wf_tls **out)
{
    struct wf_pem pem;
    weft_status st = wf_cert_issue(pem_ctx, by, role, name, days, &pem);

    if (st)
        return st;
    st = wf_tls_new(
        ctx, &(struct wf_credentials){netpeer_authority()->certificate, pem.certificate, pem.key},
        out);
    wf_pem_free(pem_ctx, &pem);
    return st;
}

/* b connects to a with these credentials (NULL: its own), and is refused; who says why. */
static void expect_refused(struct wf_tls *tls, const char *name, const char *why, bool by_us)
{
    struct wf_link *l;
    struct netnode a, b;

    netnode_open(&a, "tls", "server/0", (struct wf_net_opts){.spin_us = 0});
    netnode_open(&b, "tls", name, (struct wf_net_opts){.tls = tls});
    assert_int_equal(wf_net_listen(a.net, "tls:127.0.0.1:0", a.address, sizeof a.address), 0);
    assert_int_equal(wf_net_connect(b.net, a.address, NETNODE_WAIT, &l), 0);
    NETNODE_AWAIT(&b, n_down, 1);
    assert_int_equal(a.n_up, 0);
    assert_true(b.down_status < 0);
    if (by_us && !strstr(b.why, why))
        fail_msg("'%s' does not say '%s'", b.why, why);
    netnode_close(&b);
    netnode_close(&a);
}

static void strangers_are_refused(void **state)
{
    struct wf_pem other, self, expired;
    struct wf_tls *tls;

    (void)state;
    assert_int_equal(wf_cert_authority(pem_ctx, 2, &other), 0);
    /* the certificate of another authority */
    assert_int_equal(credentials(pem_ctx, &other, "test", "worker/1", 1, &tls), 0);
    expect_refused(tls, "worker/1", "", false);
    wf_tls_free(tls);
    /* it trusts another authority than ours */
    assert_int_equal(wf_cert_issue(pem_ctx, netpeer_authority(), "test", "worker/1", 1, &self), 0);
    assert_int_equal(
        wf_tls_new(pem_ctx, &(struct wf_credentials){other.certificate, self.certificate, self.key},
                   &tls),
        0);
    expect_refused(tls, "worker/1", "the peer's certificate", true);
    wf_tls_free(tls);
    wf_pem_free(pem_ctx, &self);
    /* an expired one */
    assert_int_equal(wf_cert_issue(pem_ctx, netpeer_authority(), "test", "worker/1", -1, &expired),
                     0);
    assert_int_equal(wf_tls_new(pem_ctx,
                                &(struct wf_credentials){netpeer_authority()->certificate,
                                                         expired.certificate, expired.key},
                                &tls),
                     0);
    expect_refused(tls, "worker/1", "", false);
    wf_tls_free(tls);
    wf_pem_free(pem_ctx, &expired);
    /* a name that is not in the certificate; a role that is not */
    assert_int_equal(credentials(pem_ctx, netpeer_authority(), "test", "worker/2", 1, &tls), 0);
    expect_refused(tls, "worker/1", "", false);
    wf_tls_free(tls);
    assert_int_equal(credentials(pem_ctx, netpeer_authority(), "chief", "worker/1", 1, &tls), 0);
    expect_refused(tls, "worker/1", "", false);
    wf_tls_free(tls);
    /* what it is made of is damaged, or does not belong together */
    assert_int_equal(wf_cert_issue(pem_ctx, netpeer_authority(), "test", "worker/1", 1, &self), 0);
    assert_int_equal(wf_tls_new(pem_ctx,
                                &(struct wf_credentials){netpeer_authority()->certificate,
                                                         self.certificate, other.key},
                                &tls),
                     WEFT_EPEER);
    self.certificate[40] ^= 4;
    assert_int_equal(wf_tls_new(pem_ctx,
                                &(struct wf_credentials){netpeer_authority()->certificate,
                                                         self.certificate, self.key},
                                &tls),
                     WEFT_EPEER);
    assert_int_equal(wf_cert_issue(pem_ctx, netpeer_authority(), "a b", "worker/1", 1, &expired),
                     WEFT_EINVAL);
    assert_int_equal(wf_cert_issue(pem_ctx, netpeer_authority(), "test", "x,DNS:evil", 1, &expired),
                     WEFT_EINVAL);
    wf_pem_free(pem_ctx, &self);
    wf_pem_free(pem_ctx, &other);
}

/* A plain client at a port of TLS, and the other way round. */
static void mixed_up_transports_end(void **state)
{
    struct wf_net_opts opts = {.silence_ns = NETNODE_SECOND / 2};
    struct wf_link *l;
    struct netnode a, b;
    char address[600];

    (void)state;
    for (int i = 0; i < 2; i++) {
        netnode_open(&a, "tls", "server/0", opts);
        netnode_open(&b, "tls", "worker/1", opts);
        assert_int_equal(wf_net_listen(a.net, i ? "tcp:127.0.0.1:0" : "tls:127.0.0.1:0", a.address,
                                       sizeof a.address),
                         0);
        snprintf(address, sizeof address, "%s%s", i ? "tls" : "tcp", a.address + 3);
        assert_int_equal(wf_net_connect(b.net, address, NETNODE_WAIT, &l), 0);
        NETNODE_AWAIT(&b, n_down, 1);
        assert_true(b.down_status < 0);
        assert_int_equal(a.n_up + b.n_up, 0);
        netnode_close(&a);
        netnode_close(&b);
    }
}

static bool is_resumed(const struct wf_link *l)
{
    return wf_secure_resumed(l);
}

/* The second connection resumes the first one's session; new credentials are used from the
 * next connection on, and the present one is kept. */
static void sessions_and_renewal(void **state)
{
    _Atomic int sent[2] = {0, 0};
    struct wf_link *first, *l;
    struct wf_pem pem;
    struct netnode a, b;

    (void)state;
    netnode_pair("tls", &a, &b, (struct wf_net_opts){.spin_us = 0});
    first = b.link;
    assert_false(is_resumed(first));
    netnode_send(&a, a.link, 1, sent); /* tickets come with what is read */
    NETNODE_AWAIT(&b, n_received, 1);
    assert_int_equal(wf_net_connect(b.net, a.address, NETNODE_WAIT, &l), 0);
    NETNODE_AWAIT(&b, n_up, 2);
    NETNODE_AWAIT(&a, n_up, 2);
    assert_true(is_resumed(l));
    assert_string_equal(wf_link_peer(a.link)->name, "worker/1");
    assert_int_equal(wf_cert_issue(pem_ctx, netpeer_authority(), "test", "worker/1", 1, &pem), 0);
    assert_int_equal(wf_tls_renew(b.tls, &(struct wf_credentials){netpeer_authority()->certificate,
                                                                  pem.certificate, pem.key}),
                     0);
    wf_pem_free(pem_ctx, &pem);
    netnode_send(&b, first, 2, sent);
    NETNODE_AWAIT(&a, n_received, 1);
    netnode_check(&a.record[0], 2);
    assert_int_equal(wf_net_connect(b.net, a.address, NETNODE_WAIT, &l), 0);
    NETNODE_AWAIT(&b, n_up, 3);
    assert_false(is_resumed(l));
    assert_int_equal(a.n_down + b.n_down, 0);
    netnode_close(&b);
    netnode_close(&a);
}

static void renew(struct netnode *n, const struct wf_pem *by, const char *name)
{
    struct wf_pem pem;

    assert_int_equal(wf_cert_issue(pem_ctx, by, "test", name, 1, &pem), 0);
    assert_int_equal(
        wf_tls_renew(n->tls, &(struct wf_credentials){by->certificate, pem.certificate, pem.key}),
        0);
    wf_pem_free(pem_ctx, &pem);
}

/* Both ends are given the certificates of another authority while messages flow: no link ends, and
 * who still has those of the old one gets no new link. */
static void another_authority_takes_over(void **state)
{
    enum { N = 70 };
    static const char *const member[] = {"tls", "tls-3"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        _Atomic int sent[2] = {0, 0};
        struct netnode a, b, c;
        struct wf_pem other;
        struct wf_link *l;

        assert_int_equal(wf_cert_authority(pem_ctx, 2, &other), 0);
        netnode_pair(member[i], &a, &b, (struct wf_net_opts){.spin_us = 0});
        netnode_open(&c, "tls", "worker/2", (struct wf_net_opts){.spin_us = 0});
        for (int k = 0; k < N; k++) {
            netnode_send(&b, b.link, k, sent);
            netnode_send(&a, a.link, k, sent);
            if (k == N / 2)
                renew(&a, &other, "server/0");
            if (k == N / 2 + 10)
                renew(&b, &other, "worker/1");
        }
        NETNODE_AWAIT(&a, n_received, N);
        NETNODE_AWAIT(&b, n_received, N);
        for (int k = 0; k < N; k++) {
            netnode_check(&a.record[k], k);
            netnode_check(&b.record[k], k);
        }
        assert_int_equal(a.n_down + b.n_down, 0);
        assert_int_equal(wf_net_connect(b.net, a.address, NETNODE_WAIT, &l), 0);
        NETNODE_AWAIT(&b, n_up, 2);
        assert_false(is_resumed(l));
        assert_int_equal(wf_net_connect(c.net, a.address, NETNODE_WAIT, &l), 0);
        NETNODE_AWAIT(&c, n_down, 1);
        assert_non_null(strstr(c.why, "the peer's certificate"));
        assert_int_equal(c.n_up, 0);
        wf_pem_free(pem_ctx, &other);
        netnode_close(&c);
        netnode_close(&b);
        netnode_close(&a);
    }
}

/* Messages in both directions, while the keys of either end change all the time; and one end that
 * only reads while the other one's keys change. Both members: one connection, and three. */
static void keys_change_while_messages_flow(void **state)
{
    enum { N = 140, RECORDS = 3 };
    static const char *const member[] = {"tls", "tls-3"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        _Atomic int sent[2] = {0, 0};
        struct netnode a, b;

        netnode_pair(member[i], &a, &b, (struct wf_net_opts){.key_records = RECORDS});
        for (int k = 0; k < N; k++) {
            netnode_send(&b, b.link, k, sent);
            if (k % 2)
                netnode_send(&a, a.link, k, sent);
        }
        NETNODE_AWAIT(&a, n_received, N);
        NETNODE_AWAIT(&b, n_received, N / 2);
        for (int k = 0; k < N; k++)
            netnode_check(&a.record[k], k);
        for (int k = 0; k < N / 2; k++)
            netnode_check(&b.record[k], 2 * k + 1);
        assert_true(wf_secure_keys(b.link) >= 10);
        assert_true(wf_secure_keys(a.link) >= 5);
        assert_int_equal(a.n_down + b.n_down, 0);
        netnode_close(&b);
        netnode_close(&a);
    }
}

static int make_ctx(void **state)
{
    (void)state;
    return weft_ctx_new(WEFT_OPTS(weft_ctx_opts, .threads = 1), &pem_ctx);
}

static int free_ctx(void **state)
{
    (void)state;
    weft_ctx_free(pem_ctx);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strangers_are_refused),
        cmocka_unit_test(mixed_up_transports_end),
        cmocka_unit_test(sessions_and_renewal),
        cmocka_unit_test(another_authority_takes_over),
        cmocka_unit_test(keys_change_while_messages_flow),
    };

    return cmocka_run_group_tests(tests, make_ctx, free_ctx);
}
