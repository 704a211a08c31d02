/* wirepage.h - the examples of docs/formats/wire.md, which tests compare with what is sent. */
#ifndef WEFT_TEST_WIREPAGE_H
#define WEFT_TEST_WIREPAGE_H

#include <stdint.h>

#define WIREPAGE WF_TEST_DIR "/../docs/formats/wire.md"

enum { WIREPAGE_REQUEST, WIREPAGE_REGION, WIREPAGE_MESSAGE, WIREPAGE_RELEASE, WIREPAGE_SETUP };

/* The bytes of an example, as many as there are; -1: the page has no such one. */
int wirepage_bytes(const char *path, int example, uint8_t *out, int max);

#endif
