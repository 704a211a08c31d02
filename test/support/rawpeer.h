/* rawpeer.h - a peer without a node: it sends whatever bytes a test wants, over a socket,
 * OpenSSL or the rings of shared memory, and ends when the test wants. */
#ifndef WEFT_TEST_RAWPEER_H
#define WEFT_TEST_RAWPEER_H

#include "net/frame.h"
#include "net/ring.h"

enum { RAWPEER_INCARNATION = 7 };

struct rawpeer {
    int fd;
    void *ssl, *ssl_ctx; /* of tls */
    uint8_t *memory;     /* of shm */
    int64_t bytes;
    struct wf_ring_reader in;
    struct wf_ring_writer out;
};

/* To an address that a node listens at: "tcp:…", "uds:…", "tls:…" or "shm:…". Over tls it has a
 * certificate of role "test" with this name. Aborts if it cannot connect. */
void rawpeer_open(struct rawpeer *p, weft_ctx *ctx, const char *address, const char *name);
/* Whether all of them were taken. */
bool rawpeer_send(struct rawpeer *p, const void *bytes, int64_t n);
/* Exactly n bytes; false: the connection has ended. Not over shm. */
bool rawpeer_receive(struct rawpeer *p, void *bytes, int64_t n);
/* Reads until the other end closes. */
void rawpeer_await_end(struct rawpeer *p);
/* Without a word of goodbye. */
void rawpeer_close(struct rawpeer *p);

/* Bytes of a frame, with its checksum if the flags say so; how many. */
int64_t rawpeer_frame(uint8_t *out, const struct wf_frame *f, const void *head,
                      const void *payload);
/* A hello of "test" with this name, which wants so many connections. */
int64_t rawpeer_hello(uint8_t *out, const char *name, int connections);
/* Reads a frame without a payload; its head has room for 256 bytes. */
bool rawpeer_take(struct rawpeer *p, struct wf_frame *f, uint8_t *head);

#endif
