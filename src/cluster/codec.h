/* codec.h - messages and epoch records as bytes. docs/formats/ps.md has every field.
 *
 * Readers trust nothing: every number is in its range before it is returned, and no list is longer
 * than the bytes that carry it. Whether a node or a piece exists in this job is for the machines to
 * check. */
#ifndef WF_CLUSTER_CODEC_H
#define WF_CLUSTER_CODEC_H

#include "cluster/cluster.h"

enum {
    WF_MESSAGE_VERSION = 1,
    WF_EPOCH_VERSION = 3,
    WF_MESSAGE_HEAD = 80,        /* bytes, before the bits */
    WF_MAX_NODES = 1 << 16,      /* numbers of nodes are below this */
    WF_MAX_EPOCH_LIST = 1 << 24, /* pieces and shards of an epoch */
    WF_MAX_EPOCH_TEXT = 1 << 17, /* bytes of the list of added tasks */
    WF_MAX_LEVEL = 30            /* of a subtree of shards */
};

/* The head of the frame that carries m: everything but record and payload. Returns its length; -1:
 * it needs more than `size` bytes. */
int32_t wf_message_write(const struct wf_message *m, void *out, int32_t size);
/* Back again; record and payload are NULL. The bits of AT go to `bits`, which has room for
 * max_words; out->bits is `bits` or NULL. WEFT_EPEER with what is wrong. */
weft_status wf_message_read(const void *head, int32_t n, struct wf_message *out, uint64_t *bits,
                            int max_words);

/* Appends the record. WEFT_ELIMIT if it does not fit the buffer. */
weft_status wf_epoch_write(const struct wf_epoch *e, struct wf_buf *out);
/* WEFT_EDATA with what is wrong: of version, checksum and length first; then pieces are on
 * servers and shards on workers that belong to the epoch. *out is freed by wf_epoch_free. */
weft_status wf_epoch_read(weft_ctx *ctx, const void *p, int64_t n, struct wf_epoch **out);

#endif
