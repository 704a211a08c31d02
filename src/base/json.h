/* json.h - reading JSON, the same for every file that is JSON. */
#ifndef WF_BASE_JSON_H
#define WF_BASE_JSON_H

#include <jansson.h>

#include "base/base.h"

/* The text as a JSON object, freed with json_decref. Duplicate keys, bad UTF-8 and NUL characters
 * are refused (jansson does). WEFT_EPARSE names line and column. */
weft_status wf_json_parse(const char *text, int64_t n, json_t **out);

#endif
