/* stripe.h - the stripes of a payload: which of them have come, and where each belongs.
 *
 * A payload that is cut into stripes of a fixed size (the last one may be shorter) travels over
 * several connections at once; each stripe says which message it belongs to and where it begins.
 * The receiver takes each stripe of the message that it has memory for exactly once, in any order,
 * and nothing else. No socket, no lock: a caller with several threads has a mutex. */
#ifndef WF_NET_STRIPE_H
#define WF_NET_STRIPE_H

#include "net/frame.h"

enum {
    WF_STRIPE_MIN = 4096, /* bytes of a stripe: what a peer may ask for */
    WF_STRIPE_MAX = 16 << 20,
    WF_STRIPE = 1 << 18 /* what is requested */
};

/* The payload that is arriving. */
struct wf_gather {
    weft_ctx *ctx;
    int64_t stripe;             /* bytes of one */
    uint64_t number;            /* of the message, from 1; of the last one, if none is open */
    bool open;                  /* there is memory, and stripes are missing */
    const struct wf_part *part; /* the memory; borrowed until the last stripe is complete */
    int n_parts;                /* 0: the payload is skipped */
    int64_t n_payload, n_left;  /* stripes that are not complete */
    uint8_t *begun;             /* a bit for each stripe */
};

void wf_gather_init(struct wf_gather *g, weft_ctx *ctx, int64_t stripe);
void wf_gather_free(struct wf_gather *g);
/* There is memory for the next message. */
weft_status wf_gather_open(struct wf_gather *g, const struct wf_part *part, int n_parts,
                           int64_t n_payload);
/* A stripe begins to arrive; *later: its message has no memory yet, ask again. WEFT_EPEER: it is
 * not one that is missing. */
weft_status wf_gather_begin(struct wf_gather *g, const struct wf_frame *f, bool *later);
/* A stripe that has begun is complete; whether it was the last one of its message. */
bool wf_gather_end(struct wf_gather *g);

/* The parts of [at, at + n) of a payload, at most max of them; how many there are, also if that is
 * more than max. */
int wf_part_range(const struct wf_part *part, int n_parts, int64_t at, int64_t n,
                  struct wf_part *out, int max);

/* What is told about further connections: the head of a `sides` frame. */
enum {
    WF_TOKEN = 16,
    WF_SIDES_HEAD = WF_TOKEN + 5,
    WF_ATTACH_HEAD = WF_TOKEN + 9,
    WF_MAX_SIDES = 7
};
struct wf_sides_head {
    uint8_t token[WF_TOKEN]; /* drawn at random for this link */
    int n;                   /* 1 to WF_MAX_SIDES */
    int64_t stripe;
};
void wf_sides_encode(const struct wf_sides_head *h, uint8_t out[WF_SIDES_HEAD]);
weft_status wf_sides_decode(const uint8_t *head, int64_t n, struct wf_sides_head *out);

/* And the head of an `attach` frame. */
struct wf_attach_head {
    uint8_t token[WF_TOKEN];
    int index;            /* 0 to n - 1 */
    uint64_t incarnation; /* of who connects */
};
void wf_attach_encode(const struct wf_attach_head *h, uint8_t out[WF_ATTACH_HEAD]);
weft_status wf_attach_decode(const uint8_t *head, int64_t n, struct wf_attach_head *out);
/* In a time that does not depend on where they differ. */
bool wf_token_equal(const uint8_t a[WF_TOKEN], const uint8_t b[WF_TOKEN]);

#endif
