/* entry.h - what a chief's store is made of, whatever holds it: terms, epochs, manifests and
 * control records, each with two numbers, and bytes with a checksum. docs/formats/ps.md has
 * them. */
#ifndef WF_CLUSTER_ENTRY_H
#define WF_CLUSTER_ENTRY_H

#include "base/base.h"

enum {
    WF_ENTRIES_KEPT = 8,  /* of each kind, */
    WF_CONTROLS_KEPT = 2, /* except these: they may be large */
    WF_ENTRY_HEAD = 40,
    WF_MAX_ENTRY = 1 << 29 /* bytes, with its head */
};

enum wf_entry_kind { WF_TERM = 1, WF_EPOCH, WF_MANIFEST, WF_CONTROL };

/* a = term, epoch or history; b = version of a manifest, step of a control record, otherwise 0. */
struct wf_entry {
    enum wf_entry_kind kind;
    uint64_t a;
    int64_t b;
};

/* Two numbers make the name. */
static inline bool wf_entry_has_b(enum wf_entry_kind kind)
{
    return kind == WF_MANIFEST || kind == WF_CONTROL;
}

/* The head of a body of n bytes. The nonce is a random number: whose entry this is. n_parts: 0, or
 * the body is elsewhere, in that many parts. */
void wf_entry_head(const struct wf_entry *e, uint64_t nonce, int n_parts, const void *body,
                   int64_t n, uint8_t head[WF_ENTRY_HEAD]);
/* Whether bytes are this entry, with its body; WEFT_EDATA says what is wrong. */
weft_status wf_entry_check(const struct wf_entry *e, const void *bytes, int64_t n);
/* The parts that the body is in, of bytes that begin with a head; 0: it follows the head. */
int wf_entry_parts(const void *bytes, int64_t n);
/* The bytes of its body, as the head says. */
int64_t wf_entry_body(const void *bytes);
uint64_t wf_entry_nonce(const void *bytes);

/* The sign of life of a chief, in a place of its own: 16 hexadecimal digits. What is not that reads
 * as 0. */
enum { WF_PULSE_TEXT = 17 };
void wf_pulse_write(uint64_t pulse, char text[WF_PULSE_TEXT]);
uint64_t wf_pulse_read(const char *text, int64_t n);

#endif
