/* entry.c - the bytes of what is in a chief's store. */
#include "cluster/entry.h"

#include "base/bytes.h"
#include "base/number.h"

enum { VERSION = 1 };

static const char magic[4] = {'w', 'f', 's', 't'};

void wf_entry_head(const struct wf_entry *e, uint64_t nonce, int n_parts, const void *body,
                   int64_t n, uint8_t head[WF_ENTRY_HEAD])
{
    memcpy(head, magic, sizeof magic);
    head[4] = VERSION;
    head[5] = (uint8_t)e->kind;
    head[6] = (uint8_t)n_parts;
    head[7] = (uint8_t)(n_parts >> 8);
    wf_put_le64(head + 8, e->a);
    wf_put_le64(head + 16, (uint64_t)e->b);
    wf_put_le64(head + 24, nonce);
    wf_put_le32(head + 32, (uint32_t)n);
    wf_put_le32(head + 36, wf_crc32c(wf_crc32c(0, head, 36), body, n));
}

weft_status wf_entry_check(const struct wf_entry *e, const void *bytes, int64_t n)
{
    const uint8_t *p = bytes;

    if (n < WF_ENTRY_HEAD || memcmp(p, magic, sizeof magic) != 0)
        return wf_err(WEFT_EDATA, "not a file of a chief's store");
    if (p[4] != VERSION)
        return wf_err(WEFT_EDATA, "version %d; this is version %d", p[4], VERSION);
    if (wf_get_le32(p + 32) != (uint64_t)(n - WF_ENTRY_HEAD) ||
        wf_get_le32(p + 36) != wf_crc32c(wf_crc32c(0, p, 36), p + WF_ENTRY_HEAD, n - WF_ENTRY_HEAD))
        return wf_err(WEFT_EDATA, "damaged, its checksum is wrong");
    if (p[5] != e->kind || wf_get_le64(p + 8) != e->a || wf_get_le64(p + 16) != (uint64_t)e->b)
        return wf_err(WEFT_EDATA, "holds what belongs in a file of another name");
    return WEFT_OK;
}

int wf_entry_parts(const void *bytes, int64_t n)
{
    const uint8_t *p = bytes;

    return n < WF_ENTRY_HEAD ? 0 : p[6] | p[7] << 8;
}

int64_t wf_entry_body(const void *bytes)
{
    return wf_get_le32((const uint8_t *)bytes + 32);
}

uint64_t wf_entry_nonce(const void *bytes)
{
    return wf_get_le64((const uint8_t *)bytes + 24);
}

void wf_pulse_write(uint64_t pulse, char text[WF_PULSE_TEXT])
{
    wf_snprintf(text, WF_PULSE_TEXT, "%016llx", (unsigned long long)pulse);
}

uint64_t wf_pulse_read(const char *text, int64_t n)
{
    int64_t pulse;

    return n == WF_PULSE_TEXT - 1 && wf_parse_hex(text, n, &pulse) ? (uint64_t)pulse : 0;
}
