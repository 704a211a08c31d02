/* base64.h - bytes as base64 (RFC 4648, with padding). */
#ifndef WF_BASE_BASE64_H
#define WF_BASE_BASE64_H

#include "base/base.h"

/* Appends the text of n bytes. */
void wf_base64(struct wf_buf *b, const void *bytes, int64_t n);
/* Appends the bytes of a text of n characters. WEFT_EPARSE: it is not base64, or not the one text
 * that these bytes have. */
weft_status wf_base64_read(struct wf_buf *b, const char *text, int64_t n);

#endif
