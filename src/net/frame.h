/* frame.h - what travels between two processes: frames, and the machine that reads them.
 *
 * A frame is a header of fixed size, a head (a few bytes, whose meaning belongs to the layer above)
 * and a payload (any number of bytes). docs/formats/wire.md has every field. Nothing here touches a
 * socket: a transport hands over bytes as they arrive, in whatever portions, and is told where the
 * next ones should go. */
#ifndef WF_NET_FRAME_H
#define WF_NET_FRAME_H

#include "base/base.h"

enum { WF_FRAME_VERSION = 1, WF_FRAME_HEADER = 48, WF_FRAME_MAX_HEAD = 1 << 16, WF_FRAME_TAIL = 4 };

enum wf_frame_type {
    WF_FRAME_HELLO = 1, /* the first in each direction: who is there */
    WF_FRAME_MESSAGE,
    WF_FRAME_REQUEST,
    WF_FRAME_RESPONSE,
    WF_FRAME_CANCEL, /* the sender no longer waits for a response */
    WF_FRAME_REGION, /* shared memory, named by the head */
    WF_FRAME_PING,
    WF_FRAME_PONG,
    WF_FRAME_BYE,     /* nothing follows: the link is closed in order */
    WF_FRAME_RELEASE, /* the payload of a message in regions is no longer read */
    WF_FRAME_SIDES,   /* further connections of this pair may be made, with the token in the head */
    WF_FRAME_ATTACH,  /* the first of such a connection: the pair it belongs to */
    WF_FRAME_STRIPE,  /* of such a connection: a stripe of a payload. id: number of the message;
                       * wait: where the stripe begins in the payload */
    WF_FRAME_TYPES
};

enum {
    WF_FRAME_SUMMED = 1,   /* flag: the payload is followed by its CRC32C */
    WF_FRAME_REGIONAL = 2, /* flag: the head ends with references to regions */
    WF_FRAME_STRIPED = 4   /* flag: the payload comes in stripes, over further connections */
};

struct wf_frame {
    enum wf_frame_type type;
    unsigned flags;
    uint32_t kind; /* of the layer above */
    int32_t n_head;
    int64_t n_payload;
    uint64_t id; /* of a request: its response and its cancel carry it, too */
    /* Requests: microseconds that the sender waits, 0: as long as it takes. Responses: the
     * status. */
    int64_t wait;
};

/* The header's bytes. */
void wf_frame_encode(const struct wf_frame *f, const void *head, uint8_t out[WF_FRAME_HEADER]);
/* Back again: version, type, lengths and checksum are checked, and that each type has only what it
 * may have. WEFT_EPEER with what is wrong. max_payload: what the reader accepts. */
weft_status wf_frame_decode(const uint8_t bytes[WF_FRAME_HEADER], int64_t max_payload,
                            struct wf_frame *out);
const char *wf_frame_name(enum wf_frame_type type);

/* ---- reading --------------------------------------------------------------------------------- */

struct wf_part {
    void *p;
    int64_t n;
};

enum { WF_PLACE_LATER = -1 };

/* What the reader of frames calls. */
struct wf_frame_calls {
    void *arg;
    /* Header and head of a frame with a payload are complete: *parts and *n_parts become the memory
     * for the payload, of exactly its size, which stays valid until `complete` or the end of the
     * link. n_parts 0: the payload is skipped; WF_PLACE_LATER: not now, asked again later. */
    weft_status (*place)(void *arg, const struct wf_frame *f, const void *head,
                         const struct wf_part **parts, int *n_parts);
    /* All of it is there. Its status ends the reading. */
    weft_status (*complete)(void *arg, const struct wf_frame *f, const void *head);
};

/* One direction of a link. */
struct wf_unframe {
    weft_ctx *ctx;
    struct wf_frame_calls calls;
    int64_t max_payload;
    enum wf_unframe_state {
        WF_UNFRAME_HEADER,
        WF_UNFRAME_HEAD,
        WF_UNFRAME_PLACE, /* the payload needs memory */
        WF_UNFRAME_PAYLOAD,
        WF_UNFRAME_TAIL,
        WF_UNFRAME_ELSEWHERE, /* the payload comes in stripes */
        WF_UNFRAME_FAILED
    } state;
    bool stop; /* set by `complete`: the bytes that follow are not taken */
    struct wf_frame frame;
    uint8_t small[WF_FRAME_HEADER]; /* a header, or the checksum of a payload */
    uint8_t *head;
    int64_t at; /* bytes of the present part of the frame that are there */
    const struct wf_part *part;
    int n_parts, now; /* the part that is being filled, and how much of it is */
    int64_t in_part;
    uint32_t head_crc, crc;
    int64_t n_frames, n_bytes; /* complete frames, bytes of everything */
};

weft_status wf_unframe_init(struct wf_unframe *u, weft_ctx *ctx, int64_t max_payload,
                            const struct wf_frame_calls *calls);
void wf_unframe_free(struct wf_unframe *u);
/* Takes bytes that have arrived; *used: how many. Fewer than n without a failure if `place` said
 * later: call again with the rest, of which there may be none. After a failure the link cannot be
 * read any further, and every later call fails. WEFT_EPEER: the peer does not keep to the protocol,
 * or bytes were damaged. */
weft_status wf_unframe_push(struct wf_unframe *u, const void *bytes, int64_t n, int64_t *used);
/* Where the next bytes of a payload go: up to max parts, of which `got` is told afterwards how many
 * bytes were written into them, in order. 0 parts: no payload is being read. */
int wf_unframe_room(const struct wf_unframe *u, struct wf_part *part, int max);
weft_status wf_unframe_got(struct wf_unframe *u, int64_t n);
/* Whether the payload that is being read has a checksum. */
bool wf_unframe_summed(const struct wf_unframe *u);
/* Whether the stream may end here, between two frames; whether memory for a payload is missing. */
bool wf_unframe_between(const struct wf_unframe *u);
bool wf_unframe_waits(const struct wf_unframe *u);
/* Whether the payload comes in stripes, which are read elsewhere; all of them are there. */
bool wf_unframe_elsewhere(const struct wf_unframe *u);
weft_status wf_unframe_arrived(struct wf_unframe *u);

#endif
