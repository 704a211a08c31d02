/* message.c - the head of a message from a stranger: it is refused, or written again with the same
 * bytes; bits stay within the room for them, which the first byte of the input says. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "cluster/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { WORDS = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int room = size ? data[0] % (WORDS + 1) : 0;
    int32_t n = size ? (int32_t)size - 1 : 0;
    uint64_t *bits = malloc((size_t)room * sizeof *bits + 1);
    uint8_t *head = malloc((size_t)n + 1), again[WF_MESSAGE_HEAD + 8 * WORDS];
    struct wf_message m;

    memcpy(head, size ? data + 1 : data, (size_t)n);
    if (wf_message_read(head, n, &m, bits, room) == WEFT_OK) {
        if (wf_message_write(&m, again, sizeof again) != n || memcmp(again, head, (size_t)n) != 0)
            abort();
        if (m.n_words > room || m.from < 0 || m.to < 0 || m.level > WF_MAX_LEVEL)
            abort();
    }
    free(head);
    free(bits);
    return 0;
}
