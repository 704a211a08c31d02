/* json.c - reading JSON, independent of the locale. */
#include "base/json.h"
#include "base/number.h"

weft_status wf_json_parse(const char *text, int64_t n, json_t **out)
{
    wf_locale plain = wf_plain_locale_enter();
    json_error_t e;
    json_t *root = json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &e);

    wf_plain_locale_leave(plain);
    if (!root)
        return wf_err(json_error_code(&e) == json_error_out_of_memory ? WEFT_ENOMEM : WEFT_EPARSE,
                      "line %d, column %d: %s", e.line, e.column, e.text);
    if (!json_is_object(root)) {
        json_decref(root);
        return wf_err(WEFT_EPARSE, "is not a JSON object");
    }
    *out = root;
    return WEFT_OK;
}
