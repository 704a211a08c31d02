/* wirepage.h - the examples of docs/formats/wire.md and ps.md, which tests compare with what is
 * sent and written. */
#ifndef WEFT_TEST_WIREPAGE_H
#define WEFT_TEST_WIREPAGE_H

#include <stdint.h>

#define WIREPAGE WF_TEST_DIR "/../docs/formats/wire.md"

enum {
    WIREPAGE_REQUEST,
    WIREPAGE_REGION,
    WIREPAGE_MESSAGE,
    WIREPAGE_RELEASE,
    WIREPAGE_SETUP,
    WIREPAGE_SIDES,
    WIREPAGE_ATTACH,
    WIREPAGE_STRIPED,
    WIREPAGE_STRIPE
};

#define PSPAGE WF_TEST_DIR "/../docs/formats/ps.md"

enum {
    PSPAGE_PUSH,
    PSPAGE_AT,
    PSPAGE_CLOSE,
    PSPAGE_GRANT,
    PSPAGE_EPOCH,
    PSPAGE_MANIFEST,
    PSPAGE_JOB
};

/* The bytes of an example, as many as there are; -1: the page has no such one. */
int wirepage_bytes(const char *path, int example, uint8_t *out, int max);

#endif
