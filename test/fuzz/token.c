/* token.c - fuzzer: tokens to join with. Whatever the bytes, a token or an error; what was read
 * is written and read again as the same. And the texts of a door's answer. */
#include <stdlib.h>
#include <string.h>

#include "cluster/door.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text[WF_DOOR_TEXTS];
    struct wf_token t, again;
    char line[WF_TOKEN_TEXT];

    if (!wf_token_parse((const char *)data, (int64_t)size, &t)) {
        wf_token_write(&t, line);
        if (wf_token_parse(line, (int64_t)strlen(line), &again) ||
            memcmp(&t, &again, sizeof t) != 0)
            abort();
    }
    if (!wf_door_texts((const char *)data, (int64_t)size, text) &&
        strlen(text[0]) + strlen(text[1]) + strlen(text[2]) + strlen(text[3]) + 4 != size)
        abort();
    return 0;
}
